"""Scores by formula, on a toy model whose conditional probabilities are written by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lengthwise.calibrate import prior_from
from lengthwise.records import Want
from lengthwise.score import EdgeTable, adjusted_scores, label_mass, log_softmax
from tests.strategies import trie_of

TOY = {
    (): {1: 0.5, 2: 0.25, 3: 0.25},
    (1,): {1: 0.2, 4: 0.8},
    (1, 4): {5: 0.5, 6: 0.5},
}
"""p(token | tokens so far behind the prompt)."""
LABELS = [(2,), (1, 1), (1, 4, 6)]


def toy_table(labels):
    trie = trie_of(labels)
    table = EdgeTable(1, trie)
    wants = [Want(0, 0, node) for node in range(len(trie.parents))]
    values = [
        np.log([TOY[trie.prefix(node)][trie.edges[edge][1]] for edge in trie.edges_of(node)])
        for node in range(len(trie.parents))
    ]
    table.fill(wants, values)
    return table


def test_a_labels_score_is_the_sum_of_its_tokens_log_probabilities():
    """Labels of 1, 2 and 3 tokens in one call: 0.25, 0.5 * 0.2 and 0.5 * 0.8 * 0.5."""
    scores = toy_table(LABELS).label_scores()[0]
    np.testing.assert_allclose(np.exp(scores), [0.25, 0.1, 0.2], rtol=1e-12)


def test_label_mass_is_the_labels_total_probability():
    """0.25 + 0.1 + 0.2, whatever the normalisation."""
    assert label_mass(toy_table(LABELS).label_scores())[0] == pytest.approx(0.55)


def test_mean_divides_by_the_number_of_tokens():
    """normalize = mean: the geometric mean a token."""
    sums = toy_table(LABELS).label_scores()
    scores = adjusted_scores(sums, [1, 2, 3], normalize="mean", prior=None)[0]
    np.testing.assert_allclose(scores, [math.log(0.25), math.log(0.1) / 2, math.log(0.2) / 3], rtol=1e-12)


def test_the_prior_is_subtracted_after_normalising():
    """A label the model likes as such loses that advantage."""
    scores = adjusted_scores(
        np.log([[0.6, 0.3]]), [1, 1], normalize="sum", prior=np.log(np.array([0.8, 0.1]))
    )
    np.testing.assert_allclose(np.exp(log_softmax(scores)), [[0.2, 0.8]], rtol=1e-12)


def test_the_prior_is_the_mean_score_on_content_free_texts():
    """Scores of three texts that say nothing, averaged label by label."""
    np.testing.assert_allclose(prior_from(np.array([[-1.0, -2.0], [-3.0, -2.0]])), [-2.0, -2.0])


@given(arrays(np.float64, (4, 5), elements=st.floats(-700, 0)))
def test_log_softmax_is_normalised_and_keeps_order(scores):
    """Probabilities sum to one and differences between labels stay what they were."""
    result = log_softmax(scores)
    np.testing.assert_allclose(np.exp(result).sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(result - result[:, :1], scores - scores[:, :1], atol=1e-9)


def test_an_unanswered_edge_is_not_a_number():
    """A table that was not filled gives NaN scores, never a number."""
    assert np.isnan(EdgeTable(2, trie_of(LABELS)).label_scores()).all()
