"""From logits to the wanted log-probabilities, in float32."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.records import FloatArray, LabelTrie, Want

if TYPE_CHECKING:
    import torch

LOGITS_BYTES = 64 * 2**20
"""Most bytes of float32 logits that one forward may make."""


def wants_within_memory(vocab_size: int) -> int:
    """How many positions' full-vocabulary logits fit into `LOGITS_BYTES`, at least 16."""
    return max(16, LOGITS_BYTES // (4 * vocab_size))


def wanted_log_probs(logits: torch.Tensor, wants: Sequence[Want], trie: LabelTrie) -> list[FloatArray]:
    """For row i of ``logits`` (wants, vocabulary): log-softmax at the edge tokens of want i's node."""
    import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

    if not wants:
        return []
    logits = logits.float()
    normaliser = torch.logsumexp(logits, dim=-1)
    tokens_of = {want.node: [trie.edges[e][1] for e in trie.edges_of(want.node)] for want in wants}
    counts = [len(tokens_of[want.node]) for want in wants]
    rows = np.repeat(np.arange(len(wants)), counts)
    columns = [token for want in wants for token in tokens_of[want.node]]
    values = logits[torch.from_numpy(rows).to(logits.device), torch.tensor(columns, device=logits.device)]
    values = values - normaliser[torch.from_numpy(rows).to(logits.device)]
    flat = values.double().cpu().numpy()
    return list(np.split(flat, np.cumsum(counts)[:-1]))


def keeps_logits(model: torch.nn.Module) -> bool:
    """Whether the model's forward can restrict the head to chosen positions."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def chosen_logits(model: Any, positions: torch.Tensor | int, **inputs: Any) -> torch.Tensor:
    """Logits of one forward at ``positions`` of the sequence axis (an int: that many last ones)."""
    if keeps_logits(model):
        logits: torch.Tensor = model(logits_to_keep=positions, use_cache=False, **inputs).logits
        return logits
    logits = model(use_cache=False, **inputs).logits
    return logits[:, -positions:] if isinstance(positions, int) else logits[:, positions]
