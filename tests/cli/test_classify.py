"""``lengthwise classify`` from flags to files, exit codes and words, without a model."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lengthwise.cli.job import Interrupts, write_report
from lengthwise.report import RunReport, RunTotals
from tests.cli.conftest import NOTE, ContraryReference, FakeModel, Run

LABELS = ("--labels", "billing,technical,account")
TICKETS = "id,text,priority\n1,I was charged twice,high\n2,the app crashes,low\n3,NA,low\n"
ANSWERS = ["label", "probability", "margin", "status"]
TASK = """
labels = ["billing", "technical"]
template = "[{priority}] {text}\\nCategory:"
"""


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """Three tickets as CSV."""
    return write(tmp_path / "tickets.csv", TICKETS)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def many(folder: Path, rows: int) -> Path:
    """A CSV file of ``rows`` different tickets."""
    return write(folder / "many.csv", "text\n" + "".join(f"ticket number {i}\n" for i in range(rows)))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def give_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)


def one_line_error(err: str) -> str:
    """What follows ``lengthwise: error:``, which must be the last and a single line."""
    last = err.splitlines()[-1]
    assert err.count("lengthwise: error: ") == 1
    assert "Traceback" not in err
    return last.removeprefix("lengthwise: error: ")


# --- what comes out --------------------------------------------------------------------------------------


def test_csv_to_csv(run: Run, tickets: Path, tmp_path: Path) -> None:
    """Every row comes back in order, its own cells untouched, with the four answer columns behind them."""
    out = tmp_path / "labelled.csv"
    result = run("classify", tickets, *LABELS, "-o", out)
    rows = rows_of(out)
    assert result.code == 0
    assert [",".join(list(row.values())[:3]) for row in rows] == TICKETS.splitlines()[1:]
    assert list(rows[0]) == ["id", "text", "priority", *ANSWERS]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["label"] for row in rows} <= {"billing", "technical", "account"}
    assert result.out == ""


def test_stdout_carries_rows_only(run: Run, tickets: Path, tmp_path: Path) -> None:
    """Into a pipe the same bytes go to stdout as otherwise to a file; all words go to stderr."""
    out = tmp_path / "labelled.csv"
    run("classify", tickets, *LABELS, "-o", out)
    result = run("classify", tickets, *LABELS)
    assert result.code == 0
    assert result.out == out.read_text(encoding="utf-8")
    assert "3 rows in" in result.err


def test_jsonl_through_a_pipe(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` reads stdin; the format is seen from the bytes and kept on stdout."""
    give_stdin(monkeypatch, b'{"id": 1, "body": "charged twice"}\n{"id": 2, "body": "crash"}\n')
    result = run("classify", "-", "--text", "body", *LABELS)
    records = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 0
    assert [record["id"] for record in records] == [1, 2]
    assert list(records[0]) == ["id", "body", *ANSWERS]


def test_a_task_file_with_columns(run: Run, tickets: Path, tmp_path: Path) -> None:
    """The template's own columns reach the prompt: another priority, another answer's numbers."""
    task = write(tmp_path / "task.toml", TASK)
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    changed = write(tmp_path / "changed.csv", TICKETS.replace("high", "urgent"))
    assert run("classify", tickets, "--task", task, "-o", first).code == 0
    assert run("classify", changed, "--task", task, "-o", second).code == 0
    before, after = rows_of(first), rows_of(second)
    assert before[0]["probability"] != after[0]["probability"]
    assert before[1]["probability"] == after[1]["probability"]


def test_several_text_columns(run: Run, tickets: Path, tmp_path: Path) -> None:
    """``--text`` twice joins both columns, in the order given."""
    joined = write(tmp_path / "joined.csv", 'text\n"I was charged twice\nhigh"\n')
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    run("classify", tickets, *LABELS, "--text", "text", "--text", "priority", "-o", one)
    run("classify", joined, *LABELS, "-o", two)
    assert rows_of(one)[0]["probability"] == rows_of(two)[0]["probability"]


def test_probabilities_prefix_and_another_format(run: Run, tickets: Path) -> None:
    """One more column a label, new names for all new columns, CSV in and JSONL out."""
    result = run(
        "classify",
        tickets,
        *LABELS,
        "-o",
        "-",
        "--probabilities",
        "--prefix",
        "lw_",
        "--output-format",
        "jsonl",
    )
    record = json.loads(result.out.splitlines()[0])
    shares = [record[f"lw_probability_{label}"] for label in ("billing", "technical", "account")]
    assert list(record)[3:7] == [f"lw_{name}" for name in ANSWERS]
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)
    assert max(shares) == record["lw_probability"]


def test_gzip_in_and_out(run: Run, tmp_path: Path) -> None:
    """Packed input and output, told by the name."""
    source, out = tmp_path / "in.csv.gz", tmp_path / "out.csv.gz"
    source.write_bytes(gzip.compress(TICKETS.encode()))
    assert run("classify", source, *LABELS, "-o", out).code == 0
    assert len(gzip.decompress(out.read_bytes()).splitlines()) == 4


@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_windows_do_not_change_the_output(run: Run, tmp_path: Path, window: int) -> None:
    """However many rows are worked on at a time, the same rows come out."""
    source = many(tmp_path, 7)
    expected = run("classify", source, *LABELS)
    assert run("classify", source, *LABELS, "--window", window).out == expected.out


def test_rows_without_an_answer_do_not_fail_the_run(run: Run, tmp_path: Path) -> None:
    """Exit code 0; the row has a status and no label, and the report counts it."""
    source = write(tmp_path / "in.csv", "id,text\n1,hello\n2,\n")
    result = run("classify", source, *LABELS)
    assert result.code == 0
    assert result.out.splitlines()[2] == "2,,,,,empty"
    assert "another status than ok" in result.err


def test_header_only(run: Run, model: FakeModel, tmp_path: Path) -> None:
    """No rows: the output has a header, a warning is said, the report is written, no model is loaded."""
    source, out, report = write(tmp_path / "in.csv", "id,text\n"), tmp_path / "out.csv", tmp_path / "r.json"
    result = run("classify", source, *LABELS, "-o", out, "--report", report)
    assert result.code == 0
    assert out.read_text(encoding="utf-8") == "id,text,label,probability,margin,status\n"
    assert "lengthwise: warning: " in result.err
    assert "has no rows" in result.err
    assert json.loads(report.read_text(encoding="utf-8"))["rows"] == 0
    assert model.loaded == []


# --- checked before the model is loaded --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{tickets}",), 2, "no labels; give --labels billing,technical,account"),
        (("{tickets}", *LABELS, "--task", "{task}"), 2, "--labels and --task are both given"),
        (("{tickets}", "--labels", "one"), 2, "only one label"),
        (("{tickets}", "--labels", "a,b,a"), 2, "'a'"),
        (("{tickets}", "--task", "{folder}/none.toml"), 2, "there is no task file"),
        (("{tickets}", "--task", "{unknown_column}"), 2, "needs a column 'prio'"),
        (("{tickets}", "--task", "{unknown_column}"), 2, "did you mean 'priority'?"),
        (("{tickets}", "--task", "{without_text}", "--text", "text"), 2, "no {text}"),
        (("{tickets}", *LABELS, "--text", "txt"), 2, "no column 'txt'; it has: id, text, priority"),
        (("{folder}/none.csv", *LABELS), 3, "there is no file"),
        (("{folder}", *LABELS), 3, "is a folder"),
        (("{empty}", *LABELS), 3, "is empty"),
        (("{broken}", *LABELS), 3, "line 3"),
        (("{tickets}", *LABELS, "-o", "{tickets}"), 3, "is also the input"),
        (("{tickets}", *LABELS, "-o", "{folder}"), 3, "is a folder"),
        (("{tickets}", *LABELS, "-o", "{folder}/no/out.csv"), 3, "there is no folder"),
        (("{tickets}", *LABELS, "-o", "{folder}/out.xyz"), 2, "does not tell its format"),
        (("{tickets}", "--task", "{task}", "-o", "{task}"), 3, "is also the task file"),
        (("{labelled}", *LABELS), 3, "already has a column 'label'"),
        (("{tickets}", *LABELS, "--report", "{folder}/no/r.json"), 3, "there is no folder"),
        (("{tickets}", *LABELS, "--report", "{folder}"), 3, "is a folder"),
        (("{tickets}", *LABELS, "--report", "{tickets}"), 3, "is also the input"),
        (("{tickets}", *LABELS, "-o", "{folder}/r", "--report", "{folder}/r"), 3, "is also the output"),
        (("{tickets}", *LABELS, "--report", "-"), 3, "mix the report with the rows"),
        (("{tickets}", *LABELS, "--strategy", "fast"), 2, "packed, bucketed, sequential"),
        (("{tickets}", *LABELS, "--window", "0"), 2, "at least 1"),
        (("{tickets}", *LABELS, "--verify", "some"), 2, "sample, all, none"),
        (("{tickets}", *LABELS, "--format", "xml"), 2, "csv, tsv, jsonl, parquet"),
        (("{tickets}", *LABELS, "--delimiter", "ab"), 2, "one character"),
    ],
)
def test_a_fault_is_said_in_one_line_before_the_model_is_loaded(
    run: Run, model: FakeModel, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """Exit code and sentence for everything that can be seen without a model; nothing is left behind."""
    files = {
        "tickets": write(tmp_path / "tickets.csv", TICKETS),
        "task": write(tmp_path / "task.toml", TASK),
        "unknown_column": write(tmp_path / "unknown.toml", TASK.replace("priority", "prio")),
        "without_text": write(tmp_path / "without.toml", 'labels = ["a", "b"]\ntemplate = "{priority}:"'),
        "empty": write(tmp_path / "empty.csv", ""),
        "broken": write(tmp_path / "broken.csv", 'id,text\n1,a\n2,"b\n'),
        "labelled": write(tmp_path / "labelled.csv", "text,label\na,b\n"),
    }
    before = names_in(tmp_path)
    result = run("classify", *(a.format(folder=tmp_path, **files) if "{" in a else a for a in arguments))
    assert (result.code, result.out) == (code, "")
    assert said in one_line_error(result.err)
    assert model.loaded == []
    assert names_in(tmp_path) == before


def test_a_terminal_is_not_flooded(run: Run, tickets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without -o and with a terminal behind stdout the user is asked for a place; -o - means it."""
    give_terminal(monkeypatch)
    refused = run("classify", tickets, *LABELS)
    shown = run("classify", tickets, *LABELS, "-o", "-")
    assert (refused.code, refused.out) == (2, "")
    assert "-o labelled.csv" in refused.err
    assert (shown.code, len(shown.out.splitlines())) == (0, 4)


def test_parquet_is_not_for_a_terminal(run: Run, tickets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that no terminal can show are refused."""
    give_terminal(monkeypatch)
    result = run("classify", tickets, *LABELS, "-o", "-", "--output-format", "parquet")
    assert (result.code, result.out) == (3, "")
    assert "not for the eye" in result.err


def test_all_options_reach_the_engine(run: Run, model: FakeModel, tickets: Path) -> None:
    """Every flag for the engine arrives as the option of that name."""
    flags = {
        "strategy": "sequential",
        "batch-size": 3,
        "max-batch-tokens": 200,
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "window": 2,
        "max-length": 500,
        "on-long": "skip",
        "verify": 7,
        "on-mismatch": "warn",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    assert run("classify", tickets, *LABELS, "--model", "some/model", *words).code == 0
    ((name, options),) = model.loaded
    assert name == "some/model"
    assert {flag: getattr(options, flag.replace("-", "_")) for flag in flags} == flags


# --- what is said ----------------------------------------------------------------------------------------


def test_nothing_is_coloured_into_a_pipe(run: Run, tickets: Path) -> None:
    """No escape sequences on stderr or stdout when neither is a terminal."""
    result = run("classify", tickets, *LABELS)
    assert "\x1b" not in result.err + result.out


def test_quiet_says_nothing_at_all(run: Run, tickets: Path) -> None:
    """--quiet: no progress, no notes, no report."""
    result = run("classify", tickets, *LABELS, "--quiet")
    assert (result.code, result.err) == (0, "")


def test_quiet_still_warns(run: Run, model: FakeModel, tickets: Path) -> None:
    """What the report would warn of is said as a warning."""
    model.notes = (NOTE,)
    result = run("classify", tickets, *LABELS, "-q")
    assert result.err == f"lengthwise: warning: {NOTE}\n"


def test_verbose_says_more(run: Run, tickets: Path, tmp_path: Path) -> None:
    """--verbose names formats and the text columns."""
    result = run("classify", tickets, *LABELS, "-v", "-o", tmp_path / "out.tsv")
    assert "tickets.csv is csv, its text in: text" in result.err
    assert "out.tsv is tsv" in result.err


def test_the_report_file(run: Run, model: FakeModel, tickets: Path, tmp_path: Path) -> None:
    """--report: strict JSON with the run's files, counts, ledger, proof and set-up."""
    model.notes = (NOTE,)
    out, path = tmp_path / "out.csv", tmp_path / "report.json"
    assert run("classify", tickets, *LABELS, "-o", out, "--report", path).code == 0

    def refuse(name: str) -> object:
        raise AssertionError(f"{name} is no JSON")

    report = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert {key: report[key] for key in ("input", "output", "stopped", "rows", "statuses")} == {
        "input": str(tickets),
        "output": str(out),
        "stopped": None,
        "rows": 3,
        "statuses": {"ok": 3},
    }
    assert sum(report["labels"].values()) == 3
    assert report["ledger"]["raw"] > report["ledger"]["computed"] > 0
    assert report["proof"]["passed"] is True
    assert report["setup"]["task"]["labels"][0]["value"] == "billing"
    assert report["warnings"] == [NOTE]


@pytest.mark.parametrize(("path", "written"), [("账单", "账单"), ("half\udce9", "half\\udce9")])
def test_the_report_is_valid_utf8_whatever_stands_in_it(tmp_path: Path, path: str, written: str) -> None:
    """Other scripts stand as they are; half a surrogate pair, as file names have it, becomes its escape."""
    report = tmp_path / "report.json"
    write_report(report, RunReport(RunTotals(), (), 0.0, {}, (path,)), path, "-", None)
    text = report.read_bytes().decode("utf-8")
    assert f'"input": "{written}"' in text
    assert json.loads(text)["input"] == path


# --- the proof -------------------------------------------------------------------------------------------


def test_a_failed_verification_leaves_no_output(
    run: Run, model: FakeModel, tickets: Path, tmp_path: Path
) -> None:
    """Exit code 4; the differing rows are listed, the report is written, an older output stays as it was."""
    model.reference = ContraryReference()
    out, report = write(tmp_path / "out.csv", "older"), tmp_path / "report.json"
    result = run("classify", tickets, *LABELS, "-o", out, "--report", report)
    proof = json.loads(report.read_text(encoding="utf-8"))["proof"]
    assert result.code == 4
    assert "Rows that differ from the reference" in result.err
    assert "--on-mismatch warn" in one_line_error(result.err)
    assert out.read_text(encoding="utf-8") == "older"
    assert proof["passed"] is False
    assert len(proof["mismatches"]) == proof["outside_tie_band"] > 0
    assert names_in(tmp_path) == ["out.csv", "report.json", "tickets.csv"]


def test_on_mismatch_warn_goes_on(run: Run, model: FakeModel, tickets: Path, tmp_path: Path) -> None:
    """The output is there and the difference is said, also when quiet."""
    model.reference = ContraryReference()
    out = tmp_path / "out.csv"
    result = run("classify", tickets, *LABELS, "-o", out, "--on-mismatch", "warn", "-q")
    assert result.code == 0
    assert len(rows_of(out)) == 3
    assert "compared prompts differ from the reference" in result.err


def test_sequential_is_its_own_proof(run: Run, tickets: Path) -> None:
    """The strategy that runs every row on the reference says so, and needs no backend."""
    result = run("classify", tickets, *LABELS, "--strategy", "sequential")
    assert result.code == 0
    assert "the answers are the reference's own" in result.err


def test_verify_none_is_said_plainly(run: Run, tickets: Path) -> None:
    """Nothing compared, nothing proven."""
    result = run("classify", tickets, *LABELS, "--verify", "none")
    assert "nothing is proven" in result.err


# --- stopping --------------------------------------------------------------------------------------------


def interrupt_in(pack: int) -> object:
    """Raises KeyboardInterrupt before the given pack, as Ctrl-C does."""

    def before_work(number: int) -> None:
        if number == pack:
            raise KeyboardInterrupt

    return before_work


def test_ctrl_c_keeps_the_finished_windows(run: Run, model: FakeModel, tmp_path: Path) -> None:
    """Exit code 130; the rows of the first window are in OUT.partial, whole, and that is said."""
    model.before_work = interrupt_in(1)
    source, out, report = many(tmp_path, 6), tmp_path / "out.csv", tmp_path / "report.json"
    result = run("classify", source, *LABELS, "-o", out, "--window", "2", "--report", report)
    partial = tmp_path / "out.csv.partial"
    assert result.code == 130
    assert not out.exists()
    assert [row["text"] for row in rows_of(partial)] == ["ticket number 0", "ticket number 1"]
    assert f"2 finished rows are in {partial}" in one_line_error(result.err)
    assert json.loads(report.read_text(encoding="utf-8"))["stopped"] == "Stopped by the user."


def test_ctrl_c_in_a_pipe(run: Run, model: FakeModel, tmp_path: Path) -> None:
    """What went to stdout stays there, whole windows only."""
    model.before_work = interrupt_in(2)
    result = run("classify", many(tmp_path, 6), *LABELS, "--window", "2", "-q")
    assert result.code == 130
    assert len(result.out.splitlines()) == 1 + 4
    assert "4 finished rows went to stdout" in one_line_error(result.err)


def test_ctrl_c_in_the_first_window(run: Run, model: FakeModel, tickets: Path, tmp_path: Path) -> None:
    """Nothing done: nothing is left behind."""
    model.before_work = interrupt_in(0)
    result = run("classify", tickets, *LABELS, "-o", tmp_path / "out.csv")
    assert result.code == 130
    assert "no row was finished" in one_line_error(result.err)
    assert names_in(tmp_path) == ["tickets.csv"]


def test_ctrl_c_while_the_model_loads(
    run: Run, monkeypatch: pytest.MonkeyPatch, tickets: Path, tmp_path: Path
) -> None:
    """Before the first row the run just stops."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lengthwise.prepare.load_engine", interrupted)
    result = run("classify", tickets, *LABELS, "-o", tmp_path / "out.csv")
    assert (result.code, one_line_error(result.err)) == (130, "stopped by the user.")
    assert names_in(tmp_path) == ["tickets.csv"]


@pytest.fixture
def usual_ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a terminal; a shell ignores it for what it starts in the background, tests included."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals to one's own process differ there")
def test_a_real_ctrl_c_waits_for_a_window_that_is_being_written(usual_ctrl_c: None) -> None:
    """The first signal inside the held block comes out behind it, and the next one would end the process."""
    steps = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the order of steps is the point
            with interrupts.held():
                os.kill(os.getpid(), signal.SIGINT)
                steps.append("written")
            steps.append("not reached")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert steps == ["written"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(sys.platform == "win32", reason="signals to one's own process differ there")
def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """Under nohup nothing is changed."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_broken_record_later_on_keeps_what_is_done(run: Run, tmp_path: Path) -> None:
    """Exit code 3 with the line; the windows before it are kept in OUT.partial."""
    source = write(tmp_path / "in.jsonl", '{"text": "a"}\n' * 120 + '{"text": oops}\n')
    out = tmp_path / "out.jsonl"
    result = run("classify", source, *LABELS, "-o", out, "--window", "50")
    assert result.code == 3
    assert "line 121" in one_line_error(result.err)
    assert f"100 finished rows are in {out}.partial" in result.err
    assert not out.exists()


def test_a_bug_in_the_middle_keeps_what_is_done(run: Run, model: FakeModel, tmp_path: Path) -> None:
    """Exit code 1 and one line that says it is our bug; the finished rows are kept."""

    def broken(number: int) -> None:
        if number == 1:
            raise RuntimeError("the backend\nfell over")

    model.before_work = broken
    out = tmp_path / "out.csv"
    result = run("classify", many(tmp_path, 4), *LABELS, "-o", out, "--window", "2")
    assert result.code == 1
    assert "a bug in lengthwise (RuntimeError: the backend fell over)" in one_line_error(result.err)
    assert len(rows_of(tmp_path / "out.csv.partial")) == 2


class FullTarget(io.BytesIO):
    """A stream behind which the disk is full or nobody reads."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def write(self, data: object) -> int:
        raise self._error


def test_nobody_reads_stdout(run: Run, tickets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with other Unix tools: no words, exit code 141."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(FullTarget(BrokenPipeError())))
    result = run("classify", tickets, *LABELS, "-q")
    assert (result.code, result.err) == (141, "")


def test_a_full_disk(run: Run, tickets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3 and one line."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(FullTarget(OSError(28, "No space left on device"))))
    result = run("classify", tickets, *LABELS, "-q")
    assert result.code == 3
    assert "stdout is full" in one_line_error(result.err)
