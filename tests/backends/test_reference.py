"""The reference is plain Transformers execution, and its log-probabilities are as exact as its logits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lengthwise.backends.reference import HuggingFaceReference

VOCABULARY = 150_000


class FixedLogits:
    """Stands in for a model with a large vocabulary: fixed logits a position."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.logits = 6 * torch.randn(8, VOCABULARY, generator=generator)
        self.fed: list[list[int]] = []

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        raise NotImplementedError

    def __call__(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        assert not use_cache
        self.fed += input_ids.tolist()
        return SimpleNamespace(logits=self.logits[None, : input_ids.shape[1]])


def exact(logits: torch.Tensor, token: int) -> float:
    wide = logits.double().numpy()
    return float(wide[token] - wide.max() - np.log(np.exp(wide - wide.max()).sum()))


def test_label_by_label_one_unpadded_row_each() -> None:
    """Labels of several tokens: one forward each, prompt and label without its last token."""
    model = FixedLogits()
    HuggingFaceReference(model).score((5, 6), ((1, 2), (3,)))
    assert model.fed == [[5, 6, 1], [5, 6]]


def test_one_token_labels_share_one_forward() -> None:
    """Their log-probabilities stand at the same position."""
    model = FixedLogits()
    HuggingFaceReference(model).score((5, 6), ((1,), (3,)))
    assert model.fed == [[5, 6]]


def test_log_probabilities_are_exact_over_a_large_vocabulary() -> None:
    """Summing 150,000 exponentials in float32 would cost 1e-5 a token; a sum of four shows nothing of it."""
    model = FixedLogits()
    label = (7, 80_000, 149_999, 3)
    (score,) = HuggingFaceReference(model).score((1, 2, 3), (label,))
    expected = sum(exact(model.logits[2 + k], token) for k, token in enumerate(label))
    assert abs(score - expected) < 1e-9
