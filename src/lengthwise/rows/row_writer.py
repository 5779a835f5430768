"""The contract of all writers of a format: windows in, bytes out; nothing here touches a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lengthwise.records import Window

Answers = Mapping[str, Sequence[str | float | None]]
"""Answer column name to one value a row."""


class RowWriter(Protocol):
    """Turns windows and their answers into the bytes of one file.

    Called in the order ``begin``, ``rows`` for each window, ``end``. Raises InputError for a record and
    OutputError for an answer that the format cannot hold.
    """

    def begin(self) -> bytes:
        """What stands in front of the first record."""
        ...

    def rows(self, window: Window, answers: Answers) -> bytes:
        """The window's records with their answers."""
        ...

    def end(self) -> bytes:
        """What stands behind the last record."""
        ...
