"""The report: counts, JSON, answer columns."""

import json
import math

import numpy as np
import pytest

from lengthwise.decide import decide, to_rows
from lengthwise.report import Ledger, RunReport, RunTotals, answer_cells, status_kind
from lengthwise.score import log_softmax
from lengthwise.verify import Proof


def some_answers():
    scores = log_softmax(np.log([[0.7, 0.2], [0.3, 0.3]]))
    decided = decide(scores, np.array([0.9, 0.6]))
    return to_rows(decided, np.array([0, 1, -1, 0]), ["ok", "truncated", "error: too long (9 tokens)", "ok"])


def report_of(totals, **setup):
    return RunReport(totals, ("a", "b"), 2.0, {"dtype": "float32", **setup}, ("a note",))


def test_totals_count_rows_labels_statuses_and_ties():
    """Four rows: three answers for label a, one of them by a tie, one error counted without its details."""
    totals = RunTotals()
    totals.add_answers(some_answers())
    report = report_of(totals)
    assert (totals.rows, totals.answered, totals.ties) == (4, 3, 1)
    assert report.label_counts == {"a": 3, "b": 0}
    assert dict(totals.statuses) == {"ok": 2, "truncated": 1, "error: too long": 1}
    assert report.mean_mass == pytest.approx((0.9 + 0.6 + 0.9) / 3)
    assert report.rows_per_second == 2.0


def test_json_is_strict_even_with_infinite_numbers():
    """An infinite drift or margin becomes null; there is no NaN in the text."""
    totals = RunTotals(proof=Proof(distinct=3, compared=1, max_drift=math.inf, min_margin=math.inf))
    text = json.dumps(report_of(totals).as_dict(), allow_nan=False)
    assert json.loads(text)["proof"]["max_drift"] is None


def test_a_run_without_rows_has_a_report():
    """Nothing read: zeros and nulls, no division by zero."""
    data = RunReport(RunTotals(), ("a", "b"), 0.0, {"dtype": "float32"}, ()).as_dict()
    assert data["rows_per_second"] == 0.0
    assert data["label_mass"] == {"mean": None, "least": None}
    assert data["proof"]["passed"] is None


def test_tiny_label_mass_is_warned_of_with_the_mend():
    """Labels that hold 0.1% of the probability: the prompt does not fit the model."""
    totals = RunTotals(answered=10, mass_sum=0.01, mass_least=0.001)
    warning = report_of(totals).warnings()[-1]
    assert "0.10%" in warning
    assert "lengthwise explain" in warning
    assert len(report_of(RunTotals(answered=10, mass_sum=5.0)).warnings()) == 1


def test_ledgers_add():
    """Field by field."""
    assert Ledger(1, 2, 3, 4, 5, 6, 7) + Ledger(1, 1, 1, 1, 1, 1, 1) == Ledger(2, 3, 4, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("status", "kind"), [("ok", "ok"), ("error: too long (9 tokens)", "error: too long"), ("empty", "empty")]
)
def test_status_kinds_leave_details_out(status, kind):
    """Thousands of too long rows are one line in the report."""
    assert status_kind(status) == kind


def test_answer_cells_follow_the_rows():
    """Label, probability, margin, status, then one probability a label; rows without answer are empty."""
    names = ["label", "probability", "margin", "status", "probability_a", "probability_b"]
    cells = answer_cells(some_answers(), ("a", "b"), names, probabilities=True)
    assert cells["label"] == ["a", "a", None, "a"]
    assert cells["status"] == ["ok", "truncated", "error: too long (9 tokens)", "ok"]
    assert cells["probability"] == pytest.approx([7 / 9, 0.5, None, 7 / 9])
    assert cells["probability_b"] == pytest.approx([2 / 9, 0.5, None, 2 / 9])
    assert cells["margin"][1] == 0.0
    assert list(answer_cells(some_answers(), ("a", "b"), names[:4], probabilities=False)) == names[:4]
