"""The reference: the model used as anybody would, one unpadded row at a time, label by label.

It shares nothing with the fast backends but the model's weights: no plan, no packs, no kept keys and
values, no gathering of logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from lengthwise.records import FloatArray, TokenIds


class HuggingFaceReference:
    """Plain Transformers execution with the attention that Transformers itself chose."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def score(self, prompt: TokenIds, labels: Sequence[TokenIds]) -> FloatArray:
        """Summed log-probability of each label's tokens behind the prompt, shape (labels,)."""
        if all(len(label) == 1 for label in labels):
            last = self._log_probs(prompt, 1)[0]
            return np.array([last[label[0]] for label in labels])
        return np.array([self._label_score(prompt, label) for label in labels])

    def _label_score(self, prompt: TokenIds, label: TokenIds) -> float:
        log_probs = self._log_probs(prompt + label[:-1], len(label))
        return float(sum(log_probs[k, token] for k, token in enumerate(label)))

    def _log_probs(self, tokens: TokenIds, last: int) -> FloatArray:
        """Log-softmax over the vocabulary at the ``last`` positions, shape (last, vocabulary).

        In float64: over 50,000 to 150,000 entries torch's float32 log-softmax is off by 1e-5 a token, more
        than everything else here together.
        """
        import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

        only_last = {"logits_to_keep": last} if self._keeps_logits else {}
        with torch.inference_mode():
            ids = torch.tensor([tokens], device=self.model.device)
            logits = self.model(input_ids=ids, use_cache=False, **only_last).logits
            result: FloatArray = torch.log_softmax(logits[0, -last:].cpu().double(), dim=-1).numpy()
        return result
