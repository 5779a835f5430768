"""Prior calibration: what the labels score when the row says nothing.

The prior of a label is the mean of its scores on the `CONTENT_FREE` texts (Zhao et al., "Calibrate
Before Use", 2021, with the log-probabilities averaged). Subtracting it takes away the model's
preference for a label as such.
"""

from __future__ import annotations

import numpy as np

from lengthwise.records import FloatArray

CONTENT_FREE = ("N/A", "[MASK]", "...")
"""Texts that say nothing about any label."""


def prior_from(scores: FloatArray) -> FloatArray:
    """The labels' prior, shape (labels,), from normalised scores on content-free texts (texts, labels)."""
    prior: FloatArray = np.asarray(scores, dtype=np.float64).mean(axis=0)
    return prior
