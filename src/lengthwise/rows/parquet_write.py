"""Parquet out: the source's table with answer columns, or a table made from another format.

From CSV and TSV all columns are strings. From JSONL a column is bool, int64 or double when the first
lines agree on that, otherwise a string: texts as they are, anything else as JSON text.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lengthwise.errors import InputError
from lengthwise.records import Window
from lengthwise.rows.columns import AnswerColumn
from lengthwise.rows.csv_write import refuse_unknown_keys, unwritable
from lengthwise.rows.jsonl_read import EXACT_IN_DOUBLE, INT64
from lengthwise.rows.parquet_read import ParquetSource
from lengthwise.rows.payload import ArrowRecords, JsonRecords, records_of
from lengthwise.rows.row_writer import Answers
from lengthwise.rows.source import Source
from lengthwise.rows.values import cell_text, rounded

TYPES = {"text": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
CODECS = {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}
DEFAULT_CODEC = "SNAPPY"


class ParquetRows:
    """One row group a window; schema metadata and codec are those of a Parquet source."""

    def __init__(self, source: Source, answers: Sequence[AnswerColumn]) -> None:
        self._source = source
        self._answers = answers
        self._buffer = Drain()
        self._writer: Any = None
        fields = [
            pa.field(answer.name, TYPES["text" if answer.kind == "text" else "float"]) for answer in answers
        ]
        schema: Any
        if isinstance(source, ParquetSource):
            schema, codec = source.schema, source.compression or DEFAULT_CODEC
        else:
            schema = pa.schema([pa.field(name, TYPES[source.kinds[name]]) for name in source.columns])
            codec = DEFAULT_CODEC
        self._schema = pa.schema([*schema, *fields], metadata=schema.metadata)
        self._codec = usable_codec(codec)

    def begin(self) -> bytes:
        self._writer = pq.ParquetWriter(self._buffer, self._schema, compression=self._codec)
        return self._buffer.drain()

    def rows(self, window: Window, answers: Answers) -> bytes:
        arrays = self._record_arrays(window)
        for answer in self._answers:
            values = answers[answer.name]
            if answer.kind == "number":
                arrays.append(pa.array([rounded(value) for value in values], TYPES["float"]))
            else:
                arrays.append(pa.array(values, TYPES["text"]))
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        return self._buffer.drain()

    def end(self) -> bytes:
        self._writer.close()
        return self._buffer.drain()

    def _record_arrays(self, window: Window) -> list[Any]:
        records = records_of(window)
        if isinstance(records, ArrowRecords):
            return list(records.table.columns)
        if isinstance(records, JsonRecords):
            refuse_unknown_keys(self._source, window, records, "the Parquet schema")
        return [self._array(window, name, records.column(name)) for name in self._source.columns]

    def _array(self, window: Window, name: str, values: Sequence[object]) -> Any:
        kind = self._source.kinds[name]
        if kind != "text":
            self._refuse_misfits(window, name, kind, values)
            return pa.array(values, TYPES[kind])
        texts = [value if value is None else cell_text(value) for value in values]
        try:
            return pa.array(texts, TYPES["text"])
        except UnicodeEncodeError:
            raise unwritable(self._source.name, window, [text or "" for text in texts]) from None

    def _refuse_misfits(self, window: Window, name: str, kind: str, values: Sequence[object]) -> None:
        for line, value in zip(window.line_numbers, values, strict=True):
            if value is not None and not fits(value, kind):
                raise InputError(
                    f"{self._source.name}, line {line}: {name!r} is {cell_text(value)[:40]!r}, but it is "
                    f"{kind} in all of the first lines and so in the schema; write .jsonl or .csv instead."
                )


def fits(value: object, kind: str) -> bool:
    """Whether a JSON value can stand in a column of the kind."""
    if isinstance(value, bool) or kind == "bool":
        return isinstance(value, bool) and kind == "bool"
    if kind == "int":
        return isinstance(value, int) and value in INT64
    return isinstance(value, float) or (isinstance(value, int) and value in EXACT_IN_DOUBLE)


def usable_codec(name: str) -> str:
    """The source's codec as Arrow's writer spells it, or the default where this Arrow cannot write it."""
    codec = CODECS.get(name, name.lower())
    usable = codec == "none" or (name != "LZO" and pa.Codec.is_available(codec))
    return codec if usable else DEFAULT_CODEC.lower()


class Drain(io.RawIOBase):
    """A file that only holds what was written since the last look, so that Arrow never meets a full disk."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def tell(self) -> int:
        return self._position

    def drain(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data
