"""The base of all sources of records, and how records become windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from lengthwise.errors import OptionError, suggestion
from lengthwise.records import Window

WINDOW_BYTES = 64 << 20
"""A window of a text format ends here even when it has fewer rows than asked for: memory stays bounded."""

Value = TypeVar("Value")
Record = tuple[bytes, Value, int]
"""A record's bytes, its parsed value, and the 1-based line where it begins."""


class Source(ABC):
    """Records to be read once, in windows.

    name         for messages: the path as given, or "stdin"
    format       csv, tsv, jsonl, parquet or memory
    columns      the columns found; for JSONL the keys of the first lines
    path         the file, None for a pipe or memory
    kinds        column to text, bool, int or float, for writers that need a type
    schema       the Arrow schema of a Parquet source, else None
    total_rows   when it is known without reading
    bytes_total  size of the file as stored, when it is a file read from front to back
    """

    name: str
    format: str
    columns: tuple[str, ...] = ()
    path: Path | None = None
    schema: object = None
    total_rows: int | None = None
    bytes_total: int | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, as stored; runs ahead of the windows by a read buffer."""
        return 0

    @property
    def kinds(self) -> Mapping[str, str]:
        return dict.fromkeys(self.columns, "text")

    @abstractmethod
    def windows(self, size: int, columns: Sequence[str]) -> Iterator[Window]:
        """Consecutive windows of at most ``size`` rows, with cells for ``columns`` only.

        A source is read once: a second call goes on where the first stopped. Raises InputError at a
        record that cannot be read.
        """

    def close(self) -> None:  # noqa: B027 - memory has nothing to close
        """Close the input; nothing more can be read."""

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raises OptionError for a column that is not there."""
        for column in columns:
            if column not in self.columns:
                raise OptionError(no_column(column, self.columns, self.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def no_column(wanted: str, columns: Sequence[str], name: str) -> str:
    """One sentence that lists the columns found."""
    return f"{name} has no column {wanted!r}; it has: {listed(columns)}{suggestion(wanted, columns) or '.'}"


def listed(columns: Sequence[str], most: int = 30) -> str:
    """The columns on one line that people can read, whatever a file calls its columns."""
    shown = [name if name.isprintable() and name.strip() == name != "" else repr(name) for name in columns]
    shown = [name if len(name) <= 60 else name[:59] + "\u2026" for name in shown[:most]]
    more = f" and {len(columns) - most} more" if len(columns) > most else ""
    return (", ".join(shown) or "none") + more


def in_batches(records: Iterable[Record[Value]], size: int) -> Iterator[list[Record[Value]]]:
    """Runs of at most ``size`` records and about WINDOW_BYTES; closed early by one long record."""
    batch: list[Record[Value]] = []
    weight = 0
    for record in records:
        batch.append(record)
        weight += len(record[0])
        if len(batch) == size or weight >= WINDOW_BYTES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch
