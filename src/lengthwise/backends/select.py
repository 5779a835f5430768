"""Which backend a model can take, found out by running it: packed, else bucketed, else one by one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from lengthwise.backends.attention import UnsupportedAttentionError
from lengthwise.backends.base import Backend, Reference
from lengthwise.backends.bucketed import BucketedBackend
from lengthwise.backends.packed import PackedBackend
from lengthwise.plan.bucket import plan_buckets
from lengthwise.plan.pack import plan_packs
from lengthwise.records import FloatArray, LabelTrie, Plan, TokenIds

logger = logging.getLogger("lengthwise")

ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention"})
LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})

PROBE_TRIE = LabelTrie(parents=(-1, 0), tokens=(-1, 0), edges=((0, 0), (1, 1)), paths=((0, 1),))
PROBE_LABELS = ((0, 1),)
"""One label, of the tokens 0 and 1: one position is fed behind the prompt, two are wanted."""


def choose_backend(
    strategy: str, model: Any, vocab_size: int, reference: Reference, sample: TokenIds, tolerance: float
) -> tuple[Backend | None, list[str]]:
    """The backend for a strategy and notes on what had to give way; None means one by one.

    A model that mixes tokens outside attention (state spaces, linear attention, convolutions) cannot
    be packed, and nobody keeps a list of them: two short prompts made of ``sample`` tokens are run
    packed and on the reference, and only a backend whose scores agree within ``tolerance`` is used.
    """
    notes: list[str] = []
    prompts = probe_prompts(sample)
    expected = np.stack([reference.score(prompt, PROBE_LABELS) for prompt in prompts])
    candidates = {"packed": ("packed", "bucketed"), "bucketed": ("bucketed",), "sequential": ()}[strategy]
    for name in candidates:
        reason = _refusal(name, model)
        if reason is None:
            backend, reason = _tried(name, model, vocab_size, prompts, expected, tolerance)
            if backend is not None:
                return backend, notes
        notes.append(f"{name} is not possible with this model ({reason})")
    return None, notes


def probe_prompts(sample: TokenIds) -> list[TokenIds]:
    """Two prompts of unlike lengths that share a beginning; as few as possible, since every run pays them."""
    tokens = (sample * (24 // len(sample) + 1))[:24]
    return [tokens[:9] + tokens[5:12], tokens[:9] + tokens[2:6] + tokens[:11]]


def length_limit_for_sharing(config: Any) -> int | None:
    """Length above which a row must run alone, or None.

    With "dynamic" and "longrope" position scaling the frequencies depend on the longest row of a
    forward; up to the original context length they do not.
    """
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [p for p in parameters.values() if isinstance(p, dict)] or [parameters]
    limits = [
        p.get("original_max_position_embeddings") or config.max_position_embeddings
        for p in nested
        if p.get("rope_type", p.get("type")) in LENGTH_DEPENDENT_ROPE
    ]
    return min(limits) if limits else None


def _refusal(name: str, model: Any) -> str | None:
    """Why the model's configuration alone rules a backend out, or None."""
    if name != "packed":
        return None
    config = model.config.get_text_config()
    other = set(getattr(config, "layer_types", None) or ()) - ATTENTION_LAYERS
    if other:
        return f"it has layers of the kind {', '.join(sorted(other))}"
    return None


def _tried(
    name: str,
    model: Any,
    vocab_size: int,
    prompts: Sequence[TokenIds],
    expected: FloatArray,
    tolerance: float,
) -> tuple[Backend | None, str | None]:
    try:
        backend, scores = _probe(name, model, vocab_size, prompts)
    except UnsupportedAttentionError as error:
        return None, str(error)
    except (
        AttributeError,
        IndexError,
        KeyError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # whatever a model's own code does with inputs it was not written for
        logger.debug("probing %s failed", name, exc_info=True)
        return None, f"{type(error).__name__}: {error}".splitlines()[0][:120]
    drift = float(np.abs(scores - expected).max())
    if not drift <= tolerance:
        return None, f"its scores differ from the reference by {drift:.2g}"
    backend.reset()
    return backend, None


def _probe(name: str, model: Any, vocab_size: int, prompts: Sequence[TokenIds]) -> tuple[Backend, FloatArray]:
    backend: Backend
    if name == "packed":
        backend = packed = PackedBackend(model, vocab_size)
        head = prompts[0][:4]
        plan = plan_packs(
            prompts, PROBE_TRIE, head, head_resident=False, budget=24, max_wants=64, min_saved=1
        )
        scores = _scores(backend, plan, len(prompts))
        _check_windows(packed, model.config.get_text_config())
    else:
        backend = BucketedBackend(model, vocab_size)
        plan = plan_buckets(prompts, PROBE_TRIE, batch_size=8, budget=4096, max_wants=64)
        scores = _scores(backend, plan, len(prompts))
    return backend, scores


def _scores(backend: Backend, plan: Plan, count: int) -> FloatArray:
    edges = np.full((count, len(PROBE_TRIE.edges)), np.nan)
    for work in plan.work:
        for want, values in zip(work.wants, backend.run(work, PROBE_TRIE), strict=True):
            edges[want.prompt, list(PROBE_TRIE.edges_of(want.node))] = values
    return np.stack([edges[:, list(path)].sum(axis=1) for path in PROBE_TRIE.paths], axis=1)


def _check_windows(backend: PackedBackend, config: Any) -> None:
    """A sliding window that never reaches attention as an argument cannot be honoured there."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    expected = window is not None and (kinds is None or "sliding_attention" in kinds)
    seen = backend.last_context.windows_seen if backend.last_context else set()
    if expected and window not in seen:
        raise UnsupportedAttentionError("its sliding window does not reach the attention interface")
