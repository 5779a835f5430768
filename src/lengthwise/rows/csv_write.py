"""CSV and TSV out: answers behind untouched records, or whole records of another format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from lengthwise.errors import InputError, OutputError
from lengthwise.records import Window
from lengthwise.rows.columns import AnswerColumn
from lengthwise.rows.csv_read import CsvSource
from lengthwise.rows.encodings import Encoding
from lengthwise.rows.payload import CsvRecords, JsonRecords, records_of
from lengthwise.rows.row_writer import Answers
from lengthwise.rows.source import Source
from lengthwise.rows.values import cell_text, rounded


class CsvAppend:
    """Each record's own bytes, then the answers, then the record's own line end."""

    def __init__(self, source: CsvSource, answers: Sequence[AnswerColumn]) -> None:
        self._source = source
        self._answers = answers
        self._quote = quoter(source.delimiter)
        self._ends = tuple(end.encode(source.encoding.codec) for end in ("\r\n", "\n", "\r"))

    def begin(self) -> bytes:
        names = self._source.delimiter.join(self._quote(answer.name) for answer in self._answers)
        return self._source.encoding.bom + self._append(self._source.header, names)

    def rows(self, window: Window, answers: Answers) -> bytes:
        assert isinstance(window.payload, CsvRecords)
        cells = answer_texts(self._answers, answers, self._quote)
        rows = map(self._source.delimiter.join, zip(*cells, strict=True))
        return b"".join(map(self._append, window.payload.raw, rows))

    def end(self) -> bytes:
        return b""

    def _append(self, raw: bytes, cells: str) -> bytes:
        end = next((end for end in self._ends if raw.endswith(end)), b"")
        added = encode_answers(self._source.delimiter + cells, self._source.encoding)
        return raw[: len(raw) - len(end)] + added + end


class CsvFresh:
    """Records of any other format as UTF-8 CSV or TSV, one line feed each; values as `cell_text` has them."""

    def __init__(self, source: Source, answers: Sequence[AnswerColumn], delimiter: str) -> None:
        self._source = source
        self._answers = answers
        self._delimiter = delimiter
        self._quote = quoter(delimiter)

    def begin(self) -> bytes:
        names = (*self._source.columns, *(answer.name for answer in self._answers))
        return (self._delimiter.join(map(self._quote, names)) + "\n").encode()

    def rows(self, window: Window, answers: Answers) -> bytes:
        records = records_of(window)
        if isinstance(records, JsonRecords):
            refuse_unknown_keys(self._source, window, records, "a CSV header")
        cells: list[Iterable[str]] = [
            [self._quote(cell_text(value)) for value in records.column(name)] for name in self._source.columns
        ]
        cells += answer_texts(self._answers, answers, self._quote)
        lines = [self._delimiter.join(row) for row in zip(*cells, strict=True)]
        text = "".join(f"{line}\n" for line in lines)
        try:
            if "\0" in text:
                raise unwritable(self._source.name, window, lines)
            return text.encode()
        except UnicodeEncodeError:
            raise unwritable(self._source.name, window, lines) from None

    def end(self) -> bytes:
        return b""


def quoter(delimiter: str) -> Callable[[str], str]:
    """A function that puts a cell in quotes where CSV needs them."""
    needs_quotes = re.compile(f'["\r\n{re.escape(delimiter)}]').search

    def quote(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if needs_quotes(text) else text

    return quote


def answer_texts(
    columns: Sequence[AnswerColumn], answers: Answers, quote: Callable[[str], str]
) -> list[Iterable[str]]:
    """The answers as CSV cells, column by column; empty where there is none."""
    return [
        [number_text(value, "") for value in answers[column.name]]
        if column.kind == "number"
        else ["" if value is None else quote(str(value)) for value in answers[column.name]]
        for column in columns
    ]


def number_text(value: str | float | None, missing: str) -> str:
    """The number with at most 6 decimals, or ``missing``."""
    number = rounded(value)
    return missing if number is None else repr(number)


def encode_answers(text: str, encoding: Encoding) -> bytes:
    """Raises OutputError when the input's encoding has no such character."""
    try:
        return text.encode(encoding.codec)
    except UnicodeEncodeError as error:
        raise OutputError(
            f"the answer {text[error.start : error.end]!r} cannot be written in {encoding.codec}, the "
            "encoding of the input; convert the input to UTF-8 or write .jsonl or .parquet."
        ) from None


def refuse_unknown_keys(source: Source, window: Window, records: JsonRecords, place: str) -> None:
    """Raises InputError for a key that none of the first lines has: the columns are settled by then."""
    known = frozenset(source.columns)
    for line, row in zip(window.line_numbers, records.rows, strict=True):
        if not row.keys() <= known:
            key = next(key for key in row if key not in known)
            raise InputError(
                f"{source.name}, line {line}: the key {key!r} is in none of the first lines, so {place} has "
                "no column for it; write .jsonl instead."
            )


def unwritable(name: str, window: Window, texts: Iterable[str]) -> InputError:
    """The error for the first text with a character that JSON can write and files of text cannot."""
    lines = zip(window.line_numbers, texts, strict=True)
    line = next(line for line, text in lines if any(letter == "\0" or is_half(letter) for letter in text))
    return InputError(
        f"{name}, line {line}: a text holds a NUL or half a character (a lone surrogate); mend the record or "
        "write .jsonl."
    )


def is_half(letter: str) -> bool:
    """Whether this is a lone surrogate."""
    return "\ud800" <= letter <= "\udfff"
