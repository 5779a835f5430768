"""From log-probabilities to answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.decide import NOT_A_NUMBER, decide, to_rows


def answers(rows):
    return decide(np.array(rows, dtype=float), np.full(len(rows), 0.5))


def test_the_highest_wins_with_its_distance_to_the_second():
    """Label 1 at -0.2 wins over -2 and -3 with a margin of 1.8."""
    result = answers([[-2.0, -0.2, -3.0]])
    assert result.label.tolist() == [1]
    assert result.margin[0] == pytest.approx(1.8)
    assert result.status == ("ok",)


def test_ties_go_to_the_first_label_and_are_marked():
    """Two equal scores: the label that stands first in the task wins."""
    result = answers([[-3.0, -0.7, -0.7], [-0.1, -2.0, -5.0]])
    assert result.label.tolist() == [1, 0]
    assert result.tied.tolist() == [True, False]


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_what_is_not_a_number_is_never_an_answer(bad):
    """One bad value makes the row an error, not the first label."""
    result = answers([[bad, -0.5], [-0.5, -1.0]])
    assert result.label.tolist() == [-1, 0]
    assert result.status == (NOT_A_NUMBER, "ok")
    assert np.isnan(result.margin[0])
    assert np.isnan(result.log_probs[0]).all()


@given(st.lists(st.integers(-1, 2), max_size=12))
def test_rows_get_the_answer_of_their_prompt(prompt_of_row):
    """Every row holds its own prompt's answer, in order; rows without a prompt keep their status."""
    result = answers([[-1.0, -2.0], [-2.0, -1.0], [np.nan, -1.0]])
    said = ["empty" if p < 0 else "truncated" if p == 1 else "ok" for p in prompt_of_row]
    rows = to_rows(result, np.array(prompt_of_row, dtype=np.int64), said)
    assert rows.label.tolist() == [{-1: -1, 0: 0, 1: 1, 2: -1}[p] for p in prompt_of_row]
    expected = {-1: "empty", 0: "ok", 1: "truncated", 2: NOT_A_NUMBER}
    assert rows.status == tuple(expected[p] for p in prompt_of_row)


def test_a_window_without_any_prompt_has_rows_without_answers():
    """All rows empty: no label, NaN numbers, as many columns as labels."""
    rows = to_rows(decide(np.empty((0, 3)), np.empty(0)), np.array([-1, -1]), ["empty", "empty"])
    assert rows.label.tolist() == [-1, -1]
    assert rows.log_probs.shape == (2, 3)
    assert np.isnan(rows.log_probs).all()
