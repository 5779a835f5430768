"""What a window carries from a reader to a writer: the whole records of its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from lengthwise.records import Window


class Records(Protocol):
    """Records of any format, one column at a time."""

    def column(self, name: str) -> Sequence[object]:
        """One value a record; None where it has none."""
        ...


@dataclass(frozen=True, slots=True)
class CsvRecords:
    """``raw`` are the records' bytes, line ends and all; ``rows`` their cells in the order of ``columns``."""

    raw: Sequence[bytes]
    rows: Sequence[Sequence[str]]
    columns: Sequence[str]

    def column(self, name: str) -> Sequence[object]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """``raw`` are the lines' bytes with their line ends, ``rows`` the parsed objects."""

    raw: Sequence[bytes]
    rows: Sequence[Mapping[str, object]]

    def column(self, name: str) -> Sequence[object]:
        return [row.get(name) for row in self.rows]


@dataclass(frozen=True, slots=True)
class ColumnRecords:
    """Values in memory, one sequence a column."""

    columns: Mapping[str, Sequence[object]]

    def column(self, name: str) -> Sequence[object]:
        return self.columns[name]


@dataclass(frozen=True, slots=True)
class ArrowRecords:
    """An Arrow table; ``to_values`` turns one of its columns into Python values."""

    table: Any
    to_values: Any

    def column(self, name: str) -> Sequence[object]:
        return cast(Sequence[object], self.to_values(self.table.column(name)))


def records_of(window: Window) -> Records:
    """The records that the window's reader put there."""
    return cast(Records, window.payload)
