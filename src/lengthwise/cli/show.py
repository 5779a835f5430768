"""The report of a run, drawn for people: plain lines, no boxes, colours where the terminal has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.cli.common import Line, print_lines
from lengthwise.cli.progress import duration

if TYPE_CHECKING:
    from rich.console import Console

    from lengthwise.report import Ledger, RunReport
    from lengthwise.verify import Proof

BAR_WIDTH = 30
MOST_LABELS, MOST_MISMATCHES = 30, 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the command knows of a run beside the engine's report.

    ``strategy`` that ran in the end; ``verify`` as asked for; ``output`` where the rows are, in words;
    ``stopped`` why the run ended early, or None.
    """

    strategy: str
    verify: str | int
    output: str
    stopped: str | None = None


def show_report(console: Console, report: RunReport, outcome: Outcome) -> None:
    """Print the whole report."""
    ascii_only = not console.encoding.lower().startswith("utf")
    print_lines(console, report_lines(report, outcome, ascii_only=ascii_only))


def report_lines(report: RunReport, outcome: Outcome, *, ascii_only: bool = True) -> Iterator[Line]:
    """The report line by line."""
    yield from _head(report, outcome)
    yield from _ledger(report.totals.ledger)
    yield from _labels(report, ascii_only)
    yield from _statuses(report.totals.statuses)
    yield from _section("Proof", proof_sentences(report, outcome))
    yield from _mismatches(report.totals.mismatches)
    yield from _section("Notes", report.notes)
    yield from _section(
        "Warnings", [said for said in report.warnings() if said not in report.notes], "yellow"
    )


def _section(title: str, sentences: Sequence[str], style: str = "") -> Iterator[Line]:
    if sentences:
        yield _title(title)
    for sentence in sentences:
        yield [(f"  {sentence}", style)]


def _title(words: str, style: str = "bold") -> Line:
    return [(words, style)]


def _head(report: RunReport, outcome: Outcome) -> Iterator[Line]:
    seconds = report.seconds
    digits = 2 if seconds < 10 else 1
    time = f"{seconds:.{digits}f} s" if seconds < 90 else f"{duration(seconds)} ({seconds:,.0f} s)"
    if outcome.stopped:
        yield _title(outcome.stopped, "bold yellow")
    yield [
        (f"{report.totals.rows:,} rows in {time}", "bold"),
        f": {report.rows_per_second:,.1f} rows/s, {report.tokens_per_second:,.0f} tokens/s",
    ]
    yield f"  model      {machine_line(report.setup, outcome.strategy)}"
    yield f"  output     {outcome.output}"


def machine_line(setup: Mapping[str, Any], strategy: str) -> str:
    """``smollm2-135m, float32 on cpu, 2 threads, packed``."""
    threads = f"{setup['threads']} threads" if setup.get("threads") else ""
    known = [setup.get("model", "no model"), _on(setup), threads, strategy]
    return ", ".join(str(part) for part in known if part)


def _on(setup: Mapping[str, Any]) -> str:
    dtype, device = setup.get("dtype"), setup.get("device")
    return f"{dtype} on {device}" if dtype and device else str(dtype or "")


# --- tokens --------------------------------------------------------------------------------------------


def _ledger(ledger: Ledger) -> Iterator[Line]:
    if not ledger.raw:
        return
    alone = ledger.raw / ledger.computed if ledger.computed else 0.0
    yield _title("Tokens")
    yield _tokens("raw", ledger.raw, "every row on its own")
    yield _tokens("after dedupe", ledger.deduped, _saved(ledger.raw, ledger.deduped))
    yield _tokens("after sharing", ledger.shared, _saved(ledger.deduped, ledger.shared))
    yield _tokens("padding", ledger.padding, f"{_percent(ledger.padding, ledger.shared)} added")
    yield _tokens("computed", ledger.computed, f"{alone:,.1f} times fewer than raw" if alone > 1 else "")
    if ledger.reference:
        yield _tokens("for the proof", ledger.reference, "one by one, in addition")


def _tokens(name: str, count: int, remark: str) -> str:
    return f"  {name:<14}{count:>13,}   {remark}".rstrip()


def _saved(before: int, after: int) -> str:
    return f"{_percent(before - after, before)} {'saved' if after <= before else 'added'}".replace("-", "")


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


# --- answers -------------------------------------------------------------------------------------------


def _labels(report: RunReport, ascii_only: bool) -> Iterator[Line]:
    counts = sorted(report.label_counts.items(), key=lambda item: -item[1])
    answered = report.totals.answered
    if not answered:
        return
    shown = [(shorten(label), count) for label, count in counts[:MOST_LABELS]]
    width = max(len(label) for label, _ in shown)
    yield _title("Labels")
    for label, count in shown:
        share = count / answered
        line = f"{label:<{width}}  {count:>9,}  {share:>6.1%}  {bar(share, ascii_only)}"
        yield f"  {line.rstrip()}"
    if len(counts) > len(shown):
        rest = sum(count for _, count in counts[MOST_LABELS:])
        yield f"  and {len(counts) - len(shown)} more labels with {rest:,} rows"
    mass = report.mean_mass
    if mass is not None:
        yield f"  The labels hold {mass:.1%} of the model's probability on average, at least " + (
            f"{report.totals.mass_least:.1%}."
        )
    if report.totals.ties:
        yield f"  {report.totals.ties:,} exact ties, decided by the order of the labels."


def bar(share: float, ascii_only: bool) -> str:
    """A bar of at most 30 characters, at least one for a share above zero."""
    length = round(share * BAR_WIDTH) or (share > 0)
    return ("#" if ascii_only else "█") * int(length)


def shorten(label: str, most: int = 40) -> str:
    """A long label cut for a table."""
    return label if len(label) <= most else label[: most - 3] + "..."


def _statuses(statuses: Mapping[str, int]) -> Iterator[Line]:
    others = {status: count for status, count in statuses.items() if status != "ok" and count}
    if others:
        yield _title("Rows with another status than ok")
    for status, count in sorted(others.items(), key=lambda item: -item[1]):
        yield f"  {count:>9,}  {status}"


# --- proof ---------------------------------------------------------------------------------------------


def proof_sentences(report: RunReport, outcome: Outcome) -> list[str]:
    """What was compared, what came out and what it allows to conclude, in plain sentences."""
    proof = report.totals.proof
    if outcome.strategy == "sequential":
        return ["Every row was run one by one: the answers are the reference's own, with nothing to compare."]
    if outcome.verify == "none":
        return ["Nothing was compared (--verify none), so nothing is proven about these answers."]
    if not proof.compared:
        return ["There was nothing to compare."]
    dtype = str(report.setup.get("dtype", "float32"))
    return [_compared(proof), _numbers(proof, dtype), _conclusion(proof)]


def _compared(proof: Proof) -> str:
    differ = "none differs" if not proof.differing else f"{proof.differing:,} differ"
    if proof.differing == 1:
        differ = "1 differs"
    inside = proof.differing - proof.outside_band
    if proof.outside_band:
        differ += f", {proof.outside_band:,} of them by more than drift can explain"
    elif inside:
        differ += " (within the tie band, where the reference's answer was taken)"
    return (
        f"Compared {proof.compared:,} of {proof.distinct:,} distinct prompts with one-by-one execution: "
        f"{differ}."
    )


def _numbers(proof: Proof, dtype: str) -> str:
    from lengthwise.verify import tie_band  # noqa: PLC0415 - brings numpy

    band = tie_band(proof.max_drift, dtype)
    settled = {0: "no prompt lies", 1: "1 prompt lay"}.get(proof.settled, f"{proof.settled:,} prompts lay")
    return (
        f"Largest drift {number(proof.max_drift)}, smallest margin {number(proof.min_margin)} (in nats); "
        f"{settled} within the tie band ({number(band)})"
        + (" and got the reference's answer." if proof.settled else ".")
    )


def _conclusion(proof: Proof) -> str:
    if proof.compared >= proof.distinct:
        return "Nothing was left uncompared."
    if proof.bound is None:
        return "The compared prompts were not chosen at random, so they say nothing about the others."
    return f"So with 95% confidence at most {proof.bound:.1%} of the others differ."


def number(value: float) -> str:
    """Two digits, as drifts and margins deserve; ``not finite`` in words."""
    return f"{value:.2g}" if abs(value) < float("inf") else "not finite"


def _mismatches(mismatches: list[dict[str, Any]]) -> Iterator[Line]:
    if mismatches:
        yield _title("Rows that differ from the reference", "bold red")
    for found in mismatches[:MOST_MISMATCHES]:
        yield [(f"  {_mismatch(found)}", "red")]
    if len(mismatches) > MOST_MISMATCHES:
        yield f"  and {len(mismatches) - MOST_MISMATCHES:,} more prompts (all are in the --report file)"


def _mismatch(found: Mapping[str, Any]) -> str:
    numbers = found["rows"]
    rows = ", ".join(f"{row:,}" for row in numbers[:5]) + (" ..." if len(numbers) > 5 else "")
    rows = f"row{'s' if len(numbers) > 1 else ''} {rows} (line {found['lines'][0]:,})"
    drift, margin = (number(float("inf") if found[k] is None else found[k]) for k in ("drift", "margin"))
    return f"{rows}: {found['fast']} instead of {found['reference']}, drift {drift}, margin {margin}"
