"""``lengthwise explain``: one row's prompt, tokens and scores, without a model."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from lengthwise.backends.fake import FakeReference
from lengthwise.cli.explain import ExplainedLabel, Explanation, Piece
from lengthwise.cli.show_explanation import numbers, show_explanation, wrapped
from tests.cli.conftest import NOTE, FakeModel, Run, encoder

LABELS = ("--labels", "billing,technical,account")
TICKETS = 'id,text\n1,charged twice\n2,"the app\ncrashes"\n3,charged twice\n4,\n5,charged twice\n'


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """Five tickets, three of them alike, one empty."""
    path = tmp_path / "tickets.csv"
    path.write_text(TICKETS, encoding="utf-8")
    return path


def as_json(run: Run, *arguments: object) -> dict[str, Any]:
    """The JSON of ``explain`` with these arguments."""
    result = run("explain", *arguments, "--json")
    assert result.code == 0, result.err
    assert result.err == ""
    found: dict[str, Any] = json.loads(result.out)
    return found


def test_the_prompt_and_its_tokens(run: Run, tickets: Path) -> None:
    """The prompt is what its tokens decode to, special tokens included, and the head is what rows share."""
    first, second = (as_json(run, tickets, *LABELS, "--row", row) for row in (1, 2))
    ids = [token["id"] for token in first["tokens"]]
    assert first["prompt"] == encoder().decode(ids)
    assert "<|im_start|>user\nTicket: charged twice\nCategory:<|im_end|>" in first["prompt"]
    assert first["head"] == second["head"] > 20
    assert first["tokens"][: first["head"]] == second["tokens"][: first["head"]]
    assert "".join(token["text"] for token in first["tokens"]) == first["prompt"]


def test_where_the_row_is_and_what_is_like_it(run: Run, tickets: Path) -> None:
    """Row and line numbers, and the rows that are computed together with it."""
    first, second, third = (as_json(run, tickets, *LABELS, "--row", row) for row in (1, 2, 3))
    assert first["place"] == f"row 1 of {tickets} (line 2)"
    assert third["place"] == f"row 3 of {tickets} (line 5)"
    assert (first["same_text_rows"], second["same_text_rows"], third["same_text_rows"]) == (
        [3, 5],
        [],
        [1, 5],
    )


def test_the_scores_are_those_of_the_reference(run: Run, tickets: Path) -> None:
    """Sums as the reference gives them for the shown tokens; probabilities over the labels add up to one."""
    found = as_json(run, tickets, *LABELS)
    prompt = tuple(token["id"] for token in found["tokens"])
    scored = [tuple(t["id"] for t in label["tokens"][: label["scored"]]) for label in found["labels"]]
    sums = [label["sum"] for label in found["labels"]]
    best = max(found["labels"], key=lambda label: label["probability"])
    assert found["rule"] == "first-token"
    assert sums == pytest.approx(list(FakeReference().score(prompt, scored)))
    assert sum(label["probability"] for label in found["labels"]) == pytest.approx(1.0)
    assert found["label_mass"] == pytest.approx(sum(math.exp(value) for value in sums))
    assert found["answer"] == best["label"]
    ordered = sorted((label["log_probability"] for label in found["labels"]), reverse=True)
    assert found["margin"] == pytest.approx(ordered[0] - ordered[1])


def test_the_answer_is_the_one_classify_gives(run: Run, tickets: Path) -> None:
    """Explaining a row and classifying it say the same, to the digits that are written."""
    result = run("classify", tickets, *LABELS, "--output-format", "jsonl")
    record = json.loads(result.out.splitlines()[1])
    found = as_json(run, tickets, *LABELS, "--row", 2)
    assert (found["answer"], found["status"]) == (record["label"], record["status"])
    assert found["margin"] == pytest.approx(record["margin"], abs=1e-6)


def test_labels_that_begin_alike(run: Run, tickets: Path) -> None:
    """All tokens are scored, with the terminator behind each when one label begins another."""
    found = as_json(run, tickets, "--labels", "account,accounting")
    assert found["rule"] == "sequence"
    assert all(label["scored"] == len(label["tokens"]) for label in found["labels"])
    assert {label["tokens"][-1]["text"] for label in found["labels"]} == {"<|im_end|>"}
    assert found["terminator"]["text"] == "<|im_end|>"


def test_normalisation_and_prior_are_in_the_probabilities(run: Run, tickets: Path, tmp_path: Path) -> None:
    """The sums stay plain; the log-probabilities follow the task."""
    task = tmp_path / "task.toml"
    task.write_text(
        'labels = ["billing", "technical"]\nscoring = "sequence"\nnormalize = "mean"\ncalibrate = "prior"\n',
        encoding="utf-8",
    )
    found = as_json(run, tickets, "--task", task)
    sums = [label["sum"] for label in found["labels"]]
    gap = found["labels"][0]["log_probability"] - found["labels"][1]["log_probability"]
    assert (found["normalize"], found["calibrate"]) == ("mean", "prior")
    assert abs(gap - (sums[0] - sums[1])) > 1e-6
    assert found["label_mass"] == pytest.approx(sum(math.exp(value) for value in sums))


def test_an_empty_row(run: Run, tickets: Path) -> None:
    """No prompt and no scores, and both in JSON and in words."""
    found = as_json(run, tickets, *LABELS, "--row", 4)
    text = run("explain", tickets, *LABELS, "--row", 4).out
    assert (found["status"], found["prompt"], found["answer"], found["labels"][0]["sum"]) == (
        "empty",
        "",
        None,
        None,
    )
    assert "status empty" in text
    assert "There is no answer, so there are no scores." in text


def test_a_truncated_row(run: Run, model: FakeModel, tmp_path: Path) -> None:
    """The status says so, and the prompt is the one that is really asked."""
    model.length_limit = 90
    found = as_json(run, "--text-value", "word " * 500, *LABELS)
    assert found["status"].startswith("truncated")
    assert len(found["tokens"]) <= 90
    assert "[...]" in found["prompt"]


def test_a_text_without_a_file(run: Run, tickets: Path) -> None:
    """--text-value gives what a row with that text gives; control tokens in it stay characters."""
    given = as_json(run, "--text-value", "charged twice", *LABELS)
    row = as_json(run, tickets, *LABELS)
    trick = as_json(run, "--text-value", "a<|im_end|>b", *LABELS)
    ends = [token["id"] for token in given["tokens"] if token["text"] == "<|im_end|>"]
    assert given["place"] == "the given text"
    assert (given["tokens"], given["labels"]) == (row["tokens"], row["labels"])
    assert [token["id"] for token in trick["tokens"]].count(ends[0]) == len(ends)


def test_rows_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` reads a pipe, as classify does."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"text": "a"}\n{"text": "b"}\n')))
    assert as_json(run, "-", *LABELS, "--row", 2)["place"] == "row 2 of stdin (line 2)"


def test_the_engine_is_asked_for_the_reference(run: Run, model: FakeModel, tickets: Path) -> None:
    """Whatever the strategy of a run will be, the numbers are those of one-by-one execution."""
    run("explain", tickets, *LABELS, "--model", "some/model", "--max-length", "400", "--on-long", "skip")
    ((name, options),) = model.loaded
    assert (name, options.strategy, options.verify) == ("some/model", "sequential", "none")
    assert (options.max_length, options.on_long) == (400, "skip")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{tickets}", *LABELS, "--row", "6"), 3, "has 5 rows; there is no row 6"),
        (("{folder}/none.csv", *LABELS), 3, "there is no file"),
        (("{tickets}",), 2, "there are no labels"),
        (("{tickets}", *LABELS, "--text", "body"), 2, "no column 'body'"),
        (LABELS, 2, "either an input file or --text-value"),
        (("{tickets}", *LABELS, "--text-value", "x"), 2, "either an input file or --text-value"),
        (("--task", "{task}", "--text-value", "x"), 2, "needs the columns priority"),
        (("{tickets}", "--task", "{task}"), 2, "needs a column 'priority'"),
    ],
)
def test_faults(
    run: Run,
    model: FakeModel,
    tickets: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """One line, before a model is loaded."""
    task = tmp_path / "task.toml"
    task.write_text('labels = ["a", "b"]\ntemplate = "{priority} {text}"\n', encoding="utf-8")
    files = {"tickets": tickets, "folder": tmp_path, "task": task}
    result = run("explain", *(argument.format(**files) for argument in arguments))
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("lengthwise: error: ")
    assert said in result.err
    assert model.loaded == []


EXPLANATION = Explanation(
    place="row 17 of t.csv (line 18)",
    status="ok",
    same_text_rows=(3, 9),
    prompt="<s>A:\n[b] c\x1b\nD:",
    tokens=(Piece(1, "<s>"), Piece(5, "A:\n"), Piece(6, "[b]"), Piece(7, " c\x1b"), Piece(8, "\nD:")),
    head=2,
    rule="first-token",
    terminator=None,
    normalize="sum",
    calibrate="none",
    labels=(
        ExplainedLabel("yes", (Piece(11, "y"), Piece(12, "es")), 1, -0.5, -0.2, 0.82),
        ExplainedLabel("no", (Piece(13, "no"),), 1, -2.0, -1.7, 0.18),
    ),
    answer="yes",
    margin=1.5,
    tied=False,
    label_mass=0.74,
    setup={},
    notes=(NOTE,),
)


def drawn(explanation: Explanation) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    show_explanation(Console(file=stream), explanation)
    stream.flush()
    return raw.getvalue().decode("ascii")


def test_the_whole_page() -> None:
    """As it stands in a file: shared part in [[ ]], scored tokens in ( ), controls visible, ASCII only."""
    assert drawn(EXPLANATION) == (
        """\
row 17 of t.csv (line 18), status ok
The same text also stands in rows 3, 9; it is computed once.

Prompt (5 tokens; the first 2, in [[ ]], are shared by all rows)
[[<s>A:
]][b] c\\x1b
D:

Tokens ('text':number)
[[ '<s>':1 'A:\\n':5 ]]
'[b]':6 ' c\\x1b':7 '\\nD:':8

Labels, scored by their first token, in ( )
  yes  ('y':11) 'es':12
  no   ('no':13)

Scores of the reference, one by one (normalize sum, calibrate none)
    label   log p of tokens   log p of label   probability
  > yes             -0.5000          -0.2000        82.00%  #########################
    no              -2.0000          -1.7000        18.00%  #####
Answer: yes, margin 1.5000 nats
The labels hold 74.00% of the model's probability.

Notes
  a note of the engine
"""
    )


def test_the_shared_part_is_coloured_too() -> None:
    """On a terminal the head has a colour besides its brackets."""
    stream = io.StringIO()
    show_explanation(Console(file=stream, force_terminal=True, color_system="standard"), EXPLANATION)
    assert "\x1b[36m[[<s>A:\x1b[0m\n\x1b[36m]]\x1b[0m[b] c\\x1b\nD:\n" in stream.getvalue()


def test_in_an_ascii_locale(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt in another script comes out escaped instead of ending in an error."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    result = run("explain", "--text-value", "账单 🙂", *LABELS)
    sys.stdout.flush()
    assert (result.code, result.err) == (0, "")
    assert b"Ticket: \\u8d26\\u5355 \\U0001f642" in raw.getvalue().replace(b"]]", b"")


def test_lines_of_tokens() -> None:
    """Words stay whole, and lines stay about 100 characters long."""
    lines = wrapped(["word"] * 50)
    assert " ".join(lines).split() == ["word"] * 50
    assert max(len(line) for line in lines) <= 100
    assert wrapped([]) == [""]
    assert wrapped(["x" * 300, "y"]) == ["x" * 300, "y"]


def test_long_lists_of_rows() -> None:
    """Ten are listed, the rest is counted."""
    assert numbers((3, 1900)) == "3, 1,900"
    assert numbers(range(1, 13)) == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more"
