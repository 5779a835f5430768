"""The proof: what is compared, what it allows to conclude, what stops a run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.decide import decide
from lengthwise.score import log_softmax
from lengthwise.verify import (
    SAMPLE_LEAST,
    SAMPLE_MOST,
    TIE_BAND_FACTOR,
    TOLERANCE,
    Proof,
    choose,
    upper_bound,
    verify_window,
)


def answers_of(scores):
    scores = np.array(scores, dtype=float)
    return decide(log_softmax(scores), np.full(len(scores), 0.5))


def verified(fast, truth, mode="all", before=None, dtype="float32"):
    asked = []

    def reference(index):
        asked.extend(index)
        return answers_of([truth[i] for i in index]) if len(index) else answers_of(np.empty((0, 2)))

    result = verify_window(
        answers_of(fast),
        [10] * len(fast),
        reference,
        mode=mode,
        before=before or Proof(),
        dtype=dtype,
        seed=0,
    )
    return result, asked


def test_equal_answers_prove_without_defects():
    """Drift far below every margin: nothing differs, nothing is settled, the run passes."""
    truth = [[0.0, -3.0], [-4.0, 0.0]]
    result, _ = verified([[1e-6, -3.0], [-4.0, 0.0]], truth)
    assert result.defects == ()
    assert result.proof.compared == 2
    assert result.proof.differing == 0
    assert result.proof.settled == 0
    assert 0 < result.proof.max_drift < 2e-6
    assert result.proof.passed("float32")


def test_a_flipped_label_far_from_a_tie_is_a_defect():
    """A fast path that swaps the winner of a clear row is caught."""
    result, _ = verified([[0.0, -3.0], [-3.0, 0.0]], [[0.0, -3.0], [0.0, -3.0]])
    assert [defect.prompt for defect in result.defects] == [1]
    assert result.proof.differing == 1
    assert result.proof.outside_band == 1
    assert not result.proof.passed("float32")


def test_too_much_drift_is_a_defect_even_with_equal_labels():
    """All labels equal, but the numbers are 0.01 nats off in fp32: something is broken."""
    result, _ = verified([[0.0, -3.0]], [[0.0, -3.01]])
    assert [defect.prompt for defect in result.defects] == [0]
    assert not result.proof.passed("float32")
    assert result.proof.passed("bfloat16")


def test_a_difference_inside_the_tie_band_is_settled_by_the_reference():
    """A near tie that numerics flipped takes the reference's label, is counted, and fails nothing."""
    result, _ = verified([[-0.69314, -0.69315]], [[-0.69316, -0.69313]])
    assert result.answers.label.tolist() == [1]
    assert result.proof.differing == 1
    assert result.proof.settled == 1
    assert result.defects == ()


def test_uncompared_rows_inside_the_tie_band_are_settled_too():
    """With drift 5e-5 seen in the run so far, a row with margin 1e-4 that is not in the sample is rerun."""
    fast = [[0.0, -3.0 - i] for i in range(30)] + [[0.0, -1e-4]]
    truth = fast[:-1] + [[-1e-4, 0.0]]
    result, asked = verified(fast, truth, mode=3, before=Proof(compared=2, max_drift=5e-5))
    assert asked.count(30) == 1
    assert result.answers.label[30] == 1
    assert result.proof.settled == 1


def test_the_tie_band_is_a_stated_multiple_of_the_drift():
    """A margin just inside 8 times the drift is settled, one just outside is not."""
    drift = 5e-5
    inside, outside = TIE_BAND_FACTOR * drift * 0.99, TIE_BAND_FACTOR * drift * 1.01
    fast = [[0.0, -inside], [0.0, -outside]]
    result, _ = verified(fast, fast, before=Proof(max_drift=drift))
    assert result.proof.settled == 1


def test_a_huge_drift_does_not_excuse_a_flipped_label():
    """The band never grows beyond 8 times the dtype's tolerance, so the check can fail."""
    result, _ = verified([[0.0, -3.0], [0.0, -1.0]], [[0.0, -9.0], [-1.0, 0.0]])
    assert result.proof.outside_band == 1
    assert TIE_BAND_FACTOR * TOLERANCE["float32"] < 1.0


def test_a_row_that_is_not_a_number_on_one_path_only_is_a_defect():
    """The fast path gives NaN where the reference has an answer."""
    result, _ = verified([[np.nan, 0.0]], [[0.0, -3.0]])
    assert len(result.defects) == 1


def test_nothing_is_compared_when_nothing_is_wanted():
    """Mode "none" asks the reference for nothing."""
    result, asked = verified([[0.0, -3.0]], [[0.0, -3.0]], mode="none")
    assert asked == []
    assert result.proof.compared == 0


@given(st.integers(0, 3000), st.sampled_from(["sample", "all", 5, 400]), st.integers(0, 99))
def test_chosen_prompts_are_distinct_and_within_the_quota(count, mode, seed):
    """No prompt twice; 1% but at least 10 and at most 100 for a sample; the count that was asked for."""
    lengths, margins = [i % 50 for i in range(count)], np.linspace(1, 2, count)
    spread, tight = choose(mode, lengths, margins, 0, seed)
    chosen = spread + tight
    assert len(set(chosen)) == len(chosen)
    wished = {"all": count, "sample": min(count, max(SAMPLE_LEAST, min(SAMPLE_MOST, round(count * 0.01))))}
    assert len(chosen) == min(count, wished.get(mode, mode))


def test_the_sample_spreads_over_length_and_takes_the_smallest_margins():
    """Of 1,000 prompts 100-fold by length, each tenth of the lengths is met, and the tightest rows are in."""
    lengths = list(range(1000))
    margins = np.linspace(5, 6, 1000)
    margins[[7, 500, 900]] = [0.01, 0.02, 0.03]
    spread, tight = choose(90, lengths, margins, 0, 1)
    assert {7, 500, 900} <= set(tight)
    assert {place // 100 for place in spread} == set(range(10))


def test_a_long_run_stays_under_proof():
    """When 99 prompts are used up, the next window still gets one; a fixed number is kept exactly."""
    spread, tight = choose("sample", [5] * 4096, np.ones(4096), 99, 0)
    assert len(spread) + len(tight) == 1
    assert choose(40, [5] * 4096, np.ones(4096), 40, 0) == ([], [])


@pytest.mark.parametrize(
    ("events", "trials", "bound"), [(0, 10, 0.25887), (0, 100, 0.02951), (1, 50, 0.09140), (3, 3, 1.0)]
)
def test_the_bound_is_clopper_pearson(events, trials, bound):
    """Known one-sided 95% bounds (0 of n: 1 - 0.05 ** (1 / n))."""
    assert upper_bound(events, trials) == pytest.approx(bound, abs=2e-5)


def test_the_bound_says_nothing_without_evidence_and_zero_with_all():
    """Nothing compared: no bound. Everything compared: none can differ."""
    assert Proof(distinct=5).bound is None
    assert Proof(distinct=5, compared=5, random=5).bound == 0.0


def test_proofs_of_windows_add_up():
    """Counts add, drift takes the larger, margin the smaller."""
    total = Proof(10, 2, 1, 1, 0, 0, 1e-5, 0.5, 1).merge(Proof(20, 3, 3, 0, 0, 0, 2e-5, 0.7, 0))
    assert total == Proof(30, 5, 4, 1, 0, 0, 2e-5, 0.5, 1)
