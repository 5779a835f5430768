"""Texts in memory as a source: lists, arrays, Series, generators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice

import numpy as np

from lengthwise.errors import InputError
from lengthwise.records import Window
from lengthwise.rows.payload import ColumnRecords
from lengthwise.rows.source import Source

MISSING_TYPES = ("NAType", "NaTType")
"""Missing values of pandas, by name because pandas need not be installed."""


class MemorySource(Source):
    """One column called "text"; line numbers count the items from 1."""

    name = "the texts"
    format = "memory"
    columns = ("text",)

    def __init__(self, texts: Iterable[object], total_rows: int | None) -> None:
        self.total_rows = total_rows
        self._texts = iter(texts)

    def windows(self, size: int, columns: Sequence[str]) -> Iterator[Window]:
        self.check_columns(columns)
        first = 0
        while batch := [None if is_missing(text) else text for text in islice(self._texts, size)]:
            cells = {name: batch for name in columns}
            yield Window(
                first, cells, range(first + 1, first + len(batch) + 1), ColumnRecords({"text": batch})
            )
            first += len(batch)


def memory_source(texts: Iterable[object]) -> MemorySource:
    """A source of the given texts; None, NaN and the missing values of pandas become None.

    Raises InputError for a single text, a mapping, a table or anything that is not a collection.
    """
    wrong = None
    if isinstance(texts, str | bytes):
        wrong = "one text; put it in a list"
    elif isinstance(texts, Mapping):
        wrong = "a mapping; give a list of its texts"
    elif getattr(texts, "ndim", 1) != 1:
        wrong = f"a table or array of {getattr(texts, 'ndim', 2)} dimensions; give one column of it"
    elif not isinstance(texts, Iterable):
        wrong = f"a single {type(texts).__name__}; put it in a list"
    if wrong:
        raise InputError(f"the texts must be a list or another collection, not {wrong}.")
    return MemorySource(texts, len(texts) if isinstance(texts, Sized) else None)


def is_missing(value: object) -> bool:
    """Whether the value stands for "nothing there"; texts such as "nan" do not."""
    if value is None or type(value).__name__ in MISSING_TYPES:
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))
