"""Hypothesis strategies and small constructions that several test modules share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from lengthwise.backends.base import Backend
from lengthwise.records import FloatArray, LabelTrie, Plan, TokenIds
from lengthwise.score import EdgeTable

tokens = st.integers(min_value=0, max_value=3)
"""Few distinct tokens, so that beginnings are shared often."""

prompts = st.lists(st.lists(tokens, min_size=1, max_size=30).map(tuple), min_size=1, max_size=25, unique=True)
heads = st.lists(tokens, max_size=6).map(tuple)


def trie_of(labels: Sequence[TokenIds]) -> LabelTrie:
    """The label trie by the definition in records.py, written as plainly as possible."""
    nodes: list[TokenIds] = sorted(
        {label[:k] for label in labels for k in range(len(label))}, key=lambda p: (len(p), p)
    )
    number = {prefix: i for i, prefix in enumerate(nodes)}
    edges = sorted({(number[label[:k]], label[k]) for label in labels for k in range(len(label))})
    place = {edge: i for i, edge in enumerate(edges)}
    return LabelTrie(
        parents=tuple(-1 if not prefix else number[prefix[:-1]] for prefix in nodes),
        tokens=tuple(-1 if not prefix else prefix[-1] for prefix in nodes),
        edges=tuple(edges),
        paths=tuple(
            tuple(place[(number[label[:k]], label[k])] for k in range(len(label))) for label in labels
        ),
    )


LABELS: tuple[tuple[TokenIds, ...], ...] = (
    ((7,), (8,), (9,)),
    ((7, 1), (7, 2), (8,)),
    ((7, 1, 2, 3), (7, 1, 2, 4), (7, 2), (8, 5, 5, 5, 5, 5, 5, 5, 5)),
)
"""One-token labels, labels that share a first token, labels of very unlike length."""

label_sets = st.sampled_from(LABELS)


def run_plan(plan: Plan, backend: Backend, trie: LabelTrie, count: int) -> FloatArray:
    """Label scores (prompts, labels) after running all of a plan."""
    table = EdgeTable(count, trie)
    for work in plan.work:
        table.fill(work.wants, backend.run(work, trie))
    return table.label_scores()


def reference_scores(
    reference: object, prompts: Sequence[TokenIds], labels: Sequence[TokenIds]
) -> FloatArray:
    """Label scores (prompts, labels) from the reference."""
    return np.stack([reference.score(prompt, labels) for prompt in prompts])  # type: ignore[attr-defined]
