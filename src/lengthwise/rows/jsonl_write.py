"""JSONL out: answers as last members of untouched objects, or whole objects from another format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from lengthwise.errors import OutputError
from lengthwise.records import Window
from lengthwise.rows.columns import AnswerColumn, free_prefix
from lengthwise.rows.csv_write import number_text
from lengthwise.rows.jsonl_read import JsonlSource
from lengthwise.rows.payload import JsonRecords, records_of
from lengthwise.rows.row_writer import Answers
from lengthwise.rows.source import Source
from lengthwise.rows.values import json_text


class JsonlAppend:
    """Each line's own bytes up to its closing brace, then the answers, then the line's own rest."""

    def __init__(self, source: JsonlSource, answers: Sequence[AnswerColumn]) -> None:
        self._source = source
        self._answers = answers
        self._names = frozenset(answer.name for answer in answers)
        self._codec = source.encoding.codec
        self._brace = "}".encode(self._codec)
        self._ascii = not source.encoding.unicode

    def begin(self) -> bytes:
        return self._source.encoding.bom

    def rows(self, window: Window, answers: Answers) -> bytes:
        records = window.payload
        assert isinstance(records, JsonRecords)
        self._refuse_clash(window, records)
        added = answer_members(self._answers, answers, ascii_only=self._ascii)
        return b"".join(
            self._append(raw, f", {members}" if row else members)
            for raw, row, members in zip(records.raw, records.rows, added, strict=True)
        )

    def end(self) -> bytes:
        return b""

    def _append(self, raw: bytes, members: str) -> bytes:
        # only blanks follow the closing brace, so it is the last one also in encodings of several bytes
        brace = raw.rindex(self._brace)
        return raw[:brace] + members.encode(self._codec) + raw[brace:]

    def _refuse_clash(self, window: Window, records: JsonRecords) -> None:
        for line, row in zip(window.line_numbers, records.rows, strict=True):
            if not self._names.isdisjoint(row):
                key = next(key for key in row if key in self._names)
                raise OutputError(
                    f"{self._source.name}, line {line}: the record already has a key {key!r}; give the "
                    "answer columns a prefix, for example --prefix "
                    f"{free_prefix((*self._source.columns, *row))}."
                )


class JsonlFresh:
    """Records of any other format as UTF-8 JSONL; values as `values.json_ready` has them."""

    def __init__(self, source: Source, answers: Sequence[AnswerColumn]) -> None:
        self._source = source
        self._answers = answers
        self._keys = [json.dumps(name, ensure_ascii=False) + ": " for name in source.columns]

    def begin(self) -> bytes:
        return b""

    def rows(self, window: Window, answers: Answers) -> bytes:
        records = records_of(window)
        members = [
            [key + json_text(value) for value in records.column(name)]
            for key, name in zip(self._keys, self._source.columns, strict=True)
        ]
        added = answer_members(self._answers, answers, ascii_only=False)
        return "".join(f"{{{', '.join(row)}}}\n" for row in zip(*members, added, strict=True)).encode()

    def end(self) -> bytes:
        return b""


def answer_members(columns: Sequence[AnswerColumn], answers: Answers, *, ascii_only: bool) -> Iterator[str]:
    """For each row the answers as the members of a JSON object; null where there is none."""
    members = []
    for column in columns:
        key = json.dumps(column.name, ensure_ascii=ascii_only) + ": "
        values = answers[column.name]
        if column.kind == "number":
            members.append([key + number_text(value, "null") for value in values])
        else:
            members.append([key + json.dumps(value, ensure_ascii=ascii_only) for value in values])
    return map(", ".join, zip(*members, strict=True))
