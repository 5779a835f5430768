"""JSONL: one object a line, parsed strictly, with every line's bytes kept. Blank lines are left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from lengthwise.errors import InputError
from lengthwise.records import Window
from lengthwise.rows.encodings import Encoding, read_lines
from lengthwise.rows.payload import JsonRecords
from lengthwise.rows.source import Record, Source, in_batches
from lengthwise.rows.streams import OpenInput

PEEK_LINES = 100
PEEK_BYTES = 8 << 20
MEND = "write one JSON object on each line"
INT64 = range(-(1 << 63), 1 << 63)
EXACT_IN_DOUBLE = range(-(1 << 53), (1 << 53) + 1)
Object = dict[str, object]


class JsonlSource(Source):
    """A JSONL file or pipe. ``columns`` are the keys of the first 100 objects; later ones may have others."""

    format = "jsonl"

    def __init__(self, opened: OpenInput, encoding: Encoding) -> None:
        self.name = opened.name
        self.path = opened.path
        self.encoding = encoding
        self.bytes_total = opened.size
        self._opened = opened
        self._decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
        records = self._parse(read_lines(opened.stream, encoding, self.name, split_cr=False))
        peeked = _take(records)
        if not peeked:
            raise InputError(f"{self.name} is empty; {MEND}.")
        self.columns = tuple(dict.fromkeys(key for _, row, _ in peeked for key in row))
        self._kinds = {name: _kind(row.get(name) for _, row, _ in peeked) for name in self.columns}
        self._records = chain(peeked, records)

    @property
    def bytes_read(self) -> int:
        return self._opened.position

    @property
    def kinds(self) -> Mapping[str, str]:
        """From the first 100 objects, nulls aside: bool, int, float (also mixed with int), else text."""
        return self._kinds

    def windows(self, size: int, columns: Sequence[str]) -> Iterator[Window]:
        self.check_columns(columns)
        first = 0
        for batch in in_batches(self._records, size):
            raw, rows, numbers = zip(*batch, strict=True)
            payload = JsonRecords(raw, rows)
            cells = {name: payload.column(name) for name in columns}
            yield Window(first, cells, numbers, payload)
            first += len(batch)

    def close(self) -> None:
        self._opened.close()

    def _parse(self, lines: Iterator[tuple[bytes, str]]) -> Iterator[Record[Object]]:
        for number, (raw, text) in enumerate(lines, start=1):
            if text and not text.isspace():
                yield raw, self._object(text, number), number

    def _object(self, text: str, line: int) -> Object:
        try:
            value = self._decode(text.rstrip())
        except json.JSONDecodeError as error:
            place = f"{self.name}, line {line}, column {error.pos + 1}"
            raise InputError(f"{place}: this is not JSON ({error.msg}); {self._mend(text)}.") from None
        except (ValueError, RecursionError) as error:
            said = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{self.name}, line {line}: this is not usable JSON ({said}); {MEND}.") from None
        if not isinstance(value, dict):
            column = len(text) - len(text.lstrip()) + 1
            place = f"{self.name}, line {line}, column {column}"
            found = {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a single value")
            raise InputError(f"{place}: this is {found}, not an object; {self._mend(text)}.")
        return value

    @staticmethod
    def _mend(text: str) -> str:
        if text.lstrip().startswith("["):
            return f"{MEND}, for example with: jq -c '.[]' FILE"
        if text.strip() == "{":
            return f"{MEND}, for example with: jq -c . FILE"
        return MEND


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number, null would be")


def _take(records: Iterator[Record[Object]]) -> list[Record[Object]]:
    """The first records, at most PEEK_LINES of them and about PEEK_BYTES."""
    taken: list[Record[Object]] = []
    weight = 0
    for record in records:
        taken.append(record)
        weight += len(record[0])
        if len(taken) == PEEK_LINES or weight >= PEEK_BYTES:
            break
    return taken


def _kind(values: Iterable[object]) -> str:
    there = [value for value in values if value is not None]
    types = {type(value) for value in there}
    if types == {bool}:
        return "bool"
    if types == {int}:
        return "int" if all(value in INT64 for value in there) else "text"
    if (
        types
        and types <= {int, float}
        and all(value in EXACT_IN_DOUBLE for value in there if type(value) is int)
    ):
        return "float"
    return "text"
