"""The report for people, line by line, from fixed reports."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pytest
from rich.console import Console

from lengthwise.cli.show import Outcome, bar, proof_sentences, shorten, show_report
from lengthwise.report import Ledger, RunReport, RunTotals
from lengthwise.verify import Proof

SETUP = {"model": "smollm2-135m", "dtype": "float32", "device": "cpu", "threads": 2}
PACKED = Outcome("packed", "sample", "labelled.csv")
PROOF = Proof(
    distinct=335, compared=30, random=20, differing=0, max_drift=3.14e-5, min_margin=0.0123, settled=0
)
MISMATCH = {
    "rows": [17, 1900],
    "lines": [18, 1902],
    "fast": "billing",
    "reference": "account",
    "drift": 0.25,
    "margin": None,
}


def totals(**changes: Any) -> RunTotals:
    """A run of 600 rows."""
    values = {
        "rows": 600,
        "answered": 590,
        "ledger": Ledger(73_555, 41_000, 3_800, 110, 3_910, 5_200, 12),
        "proof": PROOF,
        "labels": Counter({0: 295, 1: 236, 2: 59}),
        "statuses": Counter({"ok": 588, "empty": 10, "truncated": 2}),
        "mass_sum": 531.0,
        "mass_least": 0.25,
    }
    return RunTotals(**{**values, **changes})


def report(seconds: float = 25.1, notes: tuple[str, ...] = (), **changes: Any) -> RunReport:
    return RunReport(totals(**changes), ("billing", "technical", "account"), seconds, SETUP, notes)


def shown(report: RunReport, outcome: Outcome = PACKED, encoding: str = "ascii") -> str:
    """What goes to a stream that is no terminal."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    show_report(Console(file=stream), report, outcome)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_the_whole_report() -> None:
    """Every part, as it stands in a log file."""
    assert shown(report(notes=("a note.",))) == (
        """\
600 rows in 25.1 s: 23.9 rows/s, 2,930 tokens/s
  model      smollm2-135m, float32 on cpu, 2 threads, packed
  output     labelled.csv
Tokens
  raw                  73,555   every row on its own
  after dedupe         41,000   44.3% saved
  after sharing         3,800   90.7% saved
  padding                 110   2.9% added
  computed              3,910   18.8 times fewer than raw
  for the proof         5,200   one by one, in addition
Labels
  billing          295   50.0%  ###############
  technical        236   40.0%  ############
  account           59   10.0%  ###
  The labels hold 90.0% of the model's probability on average, at least 25.0%.
Rows with another status than ok
         10  empty
          2  truncated
Proof
  Compared 30 of 335 distinct prompts with one-by-one execution: none differs.
  Largest drift 3.1e-05, smallest margin 0.012 (in nats); no prompt lies within the tie band (0.00025).
  So with 95% confidence at most 13.9% of the others differ.
Notes
  a note.
"""
    )


def test_bars_are_blocks_where_they_can_be_shown() -> None:
    """UTF-8 gets full blocks; the rest of the text is the same."""
    text = shown(report(), encoding="utf-8")
    assert "\u2588" * 15 in text
    assert text.replace("\u2588", "#") == shown(report())


def test_colours_on_a_terminal_only() -> None:
    """The same words in both, escape sequences in one."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard", width=200)
    show_report(console, report(notes=("a note.",)), PACKED)
    assert "\x1b[1m600 rows in 25.1 s\x1b[0m" in stream.getvalue()
    assert "\x1b" not in shown(report())


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.1234, "0.12 s"), (89.94, "89.9 s"), (7500, "2 h 05 min (7,500 s)")]
)
def test_times(seconds: float, words: str) -> None:
    """Short runs with digits, long ones in words too."""
    assert shown(report(seconds=seconds)).startswith(f"600 rows in {words}: ")


def test_more_tokens_than_before_are_not_called_saved() -> None:
    """Bucketed without sharing can cost more than it saves; the report says it as it is."""
    text = shown(report(ledger=Ledger(1000, 1000, 1100, 400, 1500)))
    assert "after sharing         1,100   10.0% added" in text
    assert "computed              1,500\n" in text


def test_user_texts_are_no_markup_and_no_commands() -> None:
    """Labels and notes with brackets, emoji codes and escape sequences appear as written, made visible."""
    run = RunReport(
        totals(labels=Counter({0: 590})), ("[red]x[/] :smile: \x1b[31m", "b"), 1.0, SETUP, ("[b]",)
    )
    text = shown(run)
    assert "  [red]x[/] :smile: \\x1b[31m        590" in text
    assert "\n  [b]\n" in text


def test_many_labels_are_cut() -> None:
    """30 labels are listed, the rest is summed up."""
    names = tuple(f"label {i}" for i in range(40))
    run = RunReport(totals(labels=Counter({i: 40 - i for i in range(40)})), names, 1.0, SETUP, ())
    assert "  and 10 more labels with 55 rows\n" in shown(run)


def test_ties_and_low_mass_are_said() -> None:
    """Exact ties are counted; a prompt that does not fit the model is a warning."""
    text = shown(report(ties=3, mass_sum=0.59))
    assert "3 exact ties, decided by the order of the labels." in text
    assert "Warnings\n  the labels hold only 0.10%" in text


def test_a_run_without_rows() -> None:
    """Nothing to divide by, nothing to show, no crash."""
    run = RunReport(RunTotals(), ("a", "b"), 0.0, {}, ())
    assert shown(run, Outcome("packed", "sample", "stdout")) == (
        "0 rows in 0.00 s: 0.0 rows/s, 0 tokens/s\n"
        "  model      no model, packed\n"
        "  output     stdout\n"
        "Proof\n"
        "  There was nothing to compare.\n"
    )


def test_mismatches_are_listed() -> None:
    """Rows, line, both labels and the numbers; what is not finite in words; only the first twenty."""
    text = shown(
        report(mismatches=[MISMATCH] * 23), Outcome("packed", "sample", "none", "The verification failed.")
    )
    line = "  rows 17, 1,900 (line 18): billing instead of account, drift 0.25, margin not finite\n"
    assert text.startswith("The verification failed.\n600 rows")
    assert text.count(line) == 20
    assert "  and 3 more prompts (all are in the --report file)\n" in text


def proof_text(outcome: Outcome = PACKED, **changes: Any) -> str:
    values = {"distinct": 335, "compared": 30, "random": 20, "max_drift": 3.14e-5, "min_margin": 0.0123}
    return " ".join(proof_sentences(report(proof=Proof(**{**values, **changes})), outcome))


def test_proof_of_everything() -> None:
    """With --verify all there are no others."""
    text = proof_text(distinct=30)
    assert "Compared 30 of 30 distinct prompts" in text
    assert text.endswith("Nothing was left uncompared.")


def test_proof_with_settled_ties() -> None:
    """A difference within the tie band is told, together with who decided."""
    text = proof_text(differing=1, random_differing=1, settled=2)
    assert "1 differs (within the tie band, where the reference's answer was taken)." in text
    assert "2 prompts lay within the tie band (0.00025) and got the reference's answer." in text
    assert "at most 21.6% of the others" in text


def test_proof_that_failed() -> None:
    """Beyond the tie band it is not drift."""
    text = proof_text(differing=2, outside_band=1, max_drift=float("inf"))
    assert "2 differ, 1 of them by more than drift can explain." in text
    assert "Largest drift not finite" in text


def test_no_proof() -> None:
    """None asked for, none needed, none possible: three different sentences."""
    none = proof_text(Outcome("packed", "none", "x"), compared=0, random=0)
    sequential = proof_text(Outcome("sequential", "sample", "x"), compared=0, random=0)
    nothing = proof_text(compared=0, random=0)
    assert "nothing is proven" in none
    assert "the reference's own" in sequential
    assert nothing == "There was nothing to compare."


@pytest.mark.parametrize(("share", "length"), [(0.0, 0), (0.001, 1), (0.5, 15), (1.0, 30)])
def test_bars(share: float, length: int) -> None:
    """A bar is in proportion, and visible for every share above zero."""
    assert bar(share, ascii_only=True) == "#" * length


def test_long_labels_are_cut_for_tables() -> None:
    """To 40 characters, with dots."""
    assert shorten("x" * 40) == "x" * 40
    assert shorten("x" * 41) == "x" * 37 + "..."
