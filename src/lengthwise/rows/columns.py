"""Which columns hold the text, and which columns the answers get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lengthwise.errors import OptionError, OutputError
from lengthwise.rows.source import listed, no_column

TEXT_NAMES = (
    *(
        "text",
        "texts",
        "body",
        "content",
        "message",
        "ticket",
        "description",
        "comment",
        "complaint",
        "query",
    ),
    *("question", "review", "narrative", "feedback", "sentence", "utterance"),
)
"""Names, in any case, that show where the text is when only one column has such a name."""


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column that is added to the output; numbers are written with 6 decimals."""

    name: str
    kind: Literal["text", "number"]


def choose_text_columns(
    columns: Sequence[str], requested: Sequence[str], name: str = "the input"
) -> tuple[str, ...]:
    """The columns that hold the text, spelled as in the input.

    Requested names match exactly, or else in any case when only one column does. With none requested
    the only column, or the only one with a usual name, is taken. Raises OptionError otherwise.
    """
    if requested:
        return tuple(dict.fromkeys(_match(wanted, columns, name) for wanted in requested))
    if len(columns) == 1:
        return (columns[0],)
    usual = [column for column in columns if _folded(column) in TEXT_NAMES]
    if len(usual) == 1:
        return (usual[0],)
    several = f" ({listed(usual)} could be it)" if usual else ""
    raise OptionError(
        f"which column of {name} holds the text? Say --text NAME; found: {listed(columns)}{several}."
    )


def _match(wanted: str, columns: Sequence[str], name: str) -> str:
    if wanted in columns:
        return wanted
    alike = [column for column in columns if _folded(column) == _folded(wanted)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise OptionError(f"{name} has the columns {listed(alike)}; write --text exactly as one of them.")
    raise OptionError(no_column(wanted, columns, name))


def _folded(column: str) -> str:
    return column.strip().casefold()


def answer_columns(
    label_names: Sequence[str], prefix: str = "", probabilities: bool = False
) -> tuple[AnswerColumn, ...]:
    """label, probability, margin, status; with ``probabilities`` also one number a label."""
    fixed = (
        AnswerColumn(f"{prefix}label", "text"),
        AnswerColumn(f"{prefix}probability", "number"),
        AnswerColumn(f"{prefix}margin", "number"),
        AnswerColumn(f"{prefix}status", "text"),
    )
    names = label_names if probabilities else ()
    return fixed + tuple(AnswerColumn(f"{prefix}probability_{label}", "number") for label in names)


def refuse_clash(columns: Sequence[str], answers: Sequence[AnswerColumn], name: str) -> None:
    """Raises OutputError when an answer column is called like a column of the input."""
    taken = set(columns)
    for answer in answers:
        if answer.name in taken:
            raise OutputError(
                f"{name} already has a column {answer.name!r}; give the answer columns a prefix, for example "
                f"--prefix {free_prefix(columns)}."
            )


def free_prefix(columns: Sequence[str]) -> str:
    """``lw_``, or ``lw2_`` and so on when the input has columns that begin so."""
    number = 1
    while True:
        prefix = f"lw{number if number > 1 else ''}_"
        if not any(column.startswith(prefix) for column in columns):
            return prefix
        number += 1
