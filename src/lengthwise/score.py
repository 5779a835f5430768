"""From edge log-probabilities to label scores, and from scores to normalised log-probabilities.

With ``s_k`` the score of label k (the sum of its tokens' log-probabilities after the prompt):

    sum     score_k = s_k
    mean    score_k = s_k / number of its tokens
    prior   score_k - prior_k, where prior_k is the label's score on content-free inputs
    log p_k = score_k - log(sum_j exp(score_j))
    mass    = sum_k exp(s_k), always from the plain sums
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lengthwise.records import FloatArray, LabelTrie, Want


class EdgeTable:
    """Collects the wanted values of a window: (prompts, edges), NaN until filled."""

    def __init__(self, prompts: int, trie: LabelTrie) -> None:
        self.trie = trie
        self._edges_of = {node: trie.edges_of(node) for node in range(len(trie.parents))}
        self.values: FloatArray = np.full((prompts, len(trie.edges)), np.nan)

    def fill(self, wants: Iterable[Want], values: Iterable[FloatArray]) -> None:
        """Store each want's values; a position answered twice is a bug of the plan."""
        for want, row in zip(wants, values, strict=True):
            edges = self._edges_of[want.node]
            self.values[want.prompt, edges.start : edges.stop] = row

    def label_scores(self) -> FloatArray:
        """Summed log-probability of each label, shape (prompts, labels)."""
        return np.stack([self.values[:, list(path)].sum(axis=1) for path in self.trie.paths], axis=1)


def adjusted_scores(
    sums: FloatArray, token_counts: Sequence[int], *, normalize: str, prior: FloatArray | None
) -> FloatArray:
    """Scores after length normalisation ("sum" or "mean") and subtraction of the prior, same shape."""
    scores = sums / np.asarray(token_counts, dtype=np.float64) if normalize == "mean" else sums
    return scores if prior is None else scores - prior


def log_softmax(scores: FloatArray) -> FloatArray:
    """Log-probabilities over the last axis, in float64."""
    peak = scores.max(axis=-1, keepdims=True)
    shifted: FloatArray = scores - peak
    normalised: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def label_mass(sums: FloatArray) -> FloatArray:
    """Total full-vocabulary probability of the labels, shape (prompts,)."""
    mass: FloatArray = np.exp(sums).sum(axis=-1)
    return mass
