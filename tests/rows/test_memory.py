from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lengthwise.errors import InputError
from lengthwise.rows import memory_source, open_sink
from tests.rows.labelling import COLUMNS, pass_through


def texts_of(texts: object, size: int = 2) -> list[object]:
    windows = list(memory_source(texts).windows(size, ["text"]))  # type: ignore[arg-type]
    assert all(len(window) <= size for window in windows)
    return [cell for window in windows for cell in window.cells["text"]]


@pytest.mark.parametrize(
    "texts",
    [
        ["a", None, "nan"],
        ("a", float("nan"), "nan"),
        np.array(["a", None, "nan"], dtype=object),
        np.array(["a", np.float32("nan"), "nan"], dtype=object),
        pd.Series(["a", None, "nan"], index=[7, 3, 3]),
        pd.Series(["a", pd.NA, "nan"], dtype="string"),
        pd.Series(["a", pd.NaT, "nan"], dtype=object),
        (text for text in ["a", None, "nan"]),
    ],
)
def test_collections_of_texts(texts: object) -> None:
    """Every usual collection gives its items in order; what is missing is None, the word nan is a text."""
    assert texts_of(texts) == ["a", None, "nan"]


def test_numpy_texts_and_other_values() -> None:
    """NumPy's strings are texts; other values are handed on as they are."""
    assert texts_of(np.array(["a", "b", "c"])) == ["a", "b", "c"]
    assert texts_of([1, True, b"x", ["y"]]) == [1, True, b"x", ["y"]]
    assert texts_of([]) == []


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "not one text; put it in a list"),
        (b"bytes", "not one text; put it in a list"),
        ({"a": "b"}, "not a mapping; give a list of its texts"),
        (pd.DataFrame({"text": ["a"]}), "not a table or array of 2 dimensions; give one column of it"),
        (np.array([["a"]]), "not a table or array of 2 dimensions"),
        (5, "not a single int; put it in a list"),
        (None, "not a single NoneType"),
    ],
)
def test_what_is_no_collection_of_texts(texts: object, message: str) -> None:
    """Mistakes that would silently classify letters, keys or column names are errors."""
    with pytest.raises(InputError, match=message):
        memory_source(texts)  # type: ignore[arg-type]


def test_rows_are_counted_when_that_costs_nothing() -> None:
    """A list has a length, a generator has not."""
    assert memory_source(["a", "b"]).total_rows == 2
    assert memory_source(text for text in "ab").total_rows is None


def test_windows_of_a_generator_are_lazy() -> None:
    """A generator is read window by window, and items are numbered from 1."""
    taken = []
    source = memory_source(taken.append(i) or str(i) for i in range(10))
    window = next(source.windows(3, ["text"]))
    assert taken == [0, 1, 2]
    assert list(window.line_numbers) == [1, 2, 3]


def test_memory_can_be_written(tmp_path: Path) -> None:
    """Texts in memory go to a file like those of any other source."""
    source = memory_source(["a", None])
    pass_through(source, open_sink(tmp_path / "o.jsonl", source=source, answer_columns=COLUMNS))
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [(row["text"], row["margin"]) for row in rows] == [("a", 0.0), (None, 1.0)]
