from __future__ import annotations

import io

import pytest

from lengthwise.errors import OptionError, OutputError
from lengthwise.rows import AnswerColumn, answer_columns, choose_text_columns, open_sink, open_source


@pytest.mark.parametrize(
    ("columns", "requested", "chosen"),
    [
        (["anything"], [], ("anything",)),
        (["id", "Text", "team"], [], ("Text",)),
        (["id", " BODY "], [], (" BODY ",)),
        (["id", "subject", "body"], ["subject", "body"], ("subject", "body")),
        (["id", "Subject"], ["subject"], ("Subject",)),
        (["text", "Text"], ["Text"], ("Text",)),
        (["a", "b"], ["b", "b"], ("b",)),
        (["a", ""], [""], ("",)),
    ],
)
def test_columns_that_are_found(columns: list[str], requested: list[str], chosen: tuple[str, ...]) -> None:
    """Exact names first, then any case; without a request only what is obvious."""
    assert choose_text_columns(columns, requested) == chosen


@pytest.mark.parametrize(
    ("columns", "requested", "message"),
    [
        (["id", "text"], ["txt"], r"a.csv has no column 'txt'; it has: id, text; did you mean 'text'\?"),
        (["id", "text"], ["zzz"], r"a.csv has no column 'zzz'; it has: id, text\."),
        (["TEXT", "Text"], ["text"], "has the columns TEXT, Text; write --text exactly"),
        (["id", "note"], [], r"which column of a.csv holds the text\? Say --text NAME; found: id, note\."),
        (["text", "body"], [], r"found: text, body \(text, body could be it\)"),
        ([], [], "found: none"),
        (["a\nb", " c", ""], [], r"found: 'a\\nb', ' c', ''\."),
        ([f"c{number}" for number in range(99)], ["text"], r"c29 and 69 more\."),
    ],
)
def test_columns_that_are_not_obvious(columns: list[str], requested: list[str], message: str) -> None:
    """Everything else is an error that lists the columns found."""
    with pytest.raises(OptionError, match=message):
        choose_text_columns(columns, requested, "a.csv")


def test_answer_columns() -> None:
    """The four columns, and one a label when asked for, all with the prefix."""
    assert [column.name for column in answer_columns(["a", "b"])] == [
        "label",
        "probability",
        "margin",
        "status",
    ]
    assert answer_columns(["a, b"], prefix="x_", probabilities=True) == (
        AnswerColumn("x_label", "text"),
        AnswerColumn("x_probability", "number"),
        AnswerColumn("x_margin", "number"),
        AnswerColumn("x_status", "text"),
        AnswerColumn("x_probability_a, b", "number"),
    )


@pytest.mark.parametrize(
    ("header", "clash", "mend"),
    [(b"id,label", "label", "lw_"), (b"status,lw_label", "status", "lw2_")],
)
def test_answer_column_that_the_input_has(header: bytes, clash: str, mend: str) -> None:
    """A column of the input is never hidden by an answer; the error offers a prefix that is free."""
    source = open_source("-", stdin=io.BytesIO(header))
    with pytest.raises(OutputError, match=f"stdin already has a column '{clash}'.* --prefix {mend}"):
        open_sink("-", source=source, answer_columns=answer_columns(["a"]), stdout=io.BytesIO())
    open_sink("-", source=source, answer_columns=answer_columns(["a"], prefix=mend), stdout=io.BytesIO())
