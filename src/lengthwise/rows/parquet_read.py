"""Parquet through Arrow: row batches, only the wanted columns as Python values."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lengthwise.errors import InputError
from lengthwise.records import Window
from lengthwise.rows.payload import ArrowRecords
from lengthwise.rows.source import Source
from lengthwise.rows.streams import OpenInput


class ParquetSource(Source):
    """A Parquet file; one from a pipe is held in memory."""

    format = "parquet"

    def __init__(self, opened: OpenInput) -> None:
        self.name = opened.name
        self.path = opened.path
        if opened.gzipped:
            raise InputError(f"{self.name} is gzip around Parquet; unpack it first with gunzip.")
        try:
            if opened.regular:
                self._file = pq.ParquetFile(pa.OSFile(str(opened.path), "rb"))
            else:
                self._file = pq.ParquetFile(io.BytesIO(opened.stream.read()))
            self.schema = self._file.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None
        finally:
            opened.close()
        self.columns = tuple(self._file.schema_arrow.names)
        self.total_rows = self._file.metadata.num_rows
        twice = [name for name, count in Counter(self.columns).items() if count > 1]
        if twice:
            raise InputError(f"{self.name} has two columns called {twice[0]!r}; give each its own name.")

    @property
    def compression(self) -> str | None:
        """The codec of the first column's data, as Parquet spells it; None without any data."""
        metadata = self._file.metadata
        if not metadata.num_row_groups or not metadata.num_columns:
            return None
        return str(metadata.row_group(0).column(0).compression)

    def windows(self, size: int, columns: Sequence[str]) -> Iterator[Window]:
        self.check_columns(columns)
        first = 0
        for table in self._tables(size):
            payload = ArrowRecords(table, to_values)
            cells = {name: payload.column(name) for name in columns}
            numbers = range(first + 1, first + table.num_rows + 1)
            yield Window(first, cells, numbers, payload)
            first += table.num_rows

    def close(self) -> None:
        self._file.close(force=True)

    def _tables(self, size: int) -> Iterator[Any]:
        """Tables of exactly ``size`` rows but the last: batches of Arrow may end with a row group."""
        waiting: list[Any] = []
        count = 0
        for batch in self._batches(size):
            waiting.append(batch)
            count += batch.num_rows
            while count >= size:
                whole = pa.Table.from_batches(waiting, self.schema)
                yield whole.slice(0, size)
                waiting = whole.slice(size).to_batches()
                count -= size
        if count:
            yield pa.Table.from_batches(waiting, self.schema)

    def _batches(self, size: int) -> Iterator[Any]:
        try:
            yield from self._file.iter_batches(batch_size=size)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> InputError:
        said = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        return InputError(f"{self.name} is not a whole Parquet file ({said}); fetch or write it again.")


def to_values(column: Any) -> list[object]:
    """Python values of an Arrow column; times finer than Python's become ISO texts."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return [text and text.replace(" ", "T", 1) for text in column.cast(pa.string()).to_pylist()]
    if pa.types.is_time(kind) and kind.unit == "ns":
        return list(column.cast(pa.string()).to_pylist())
    if pa.types.is_duration(kind):
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.to_pylist())
