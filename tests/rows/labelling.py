"""What a run does with rows, without a model: read windows, make up answers, write them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from lengthwise.records import Window
from lengthwise.rows import Sink, Source, answer_columns, open_sink, open_source

COLUMNS = answer_columns(["billing", "technical"])
ADDED = [column.name for column in COLUMNS]


def answers_for(window: Window, label: str = "billing") -> dict[str, list[str | float | None]]:
    """The row number as the margin, so that a row in another place is noticed."""
    rows = range(window.first_row, window.first_row + len(window))
    return {
        "label": [label for _ in rows],
        "probability": [0.5 for _ in rows],
        "margin": [float(row) for row in rows],
        "status": ["ok" for _ in rows],
    }


def pass_through(source: Source, sink: Sink, size: int = 3, text: Sequence[str] = ()) -> list[Window]:
    """Write every window with made-up answers and commit; gives the windows."""
    windows = []
    with source, sink:
        for window in source.windows(size, text):
            sink.write(window, answers_for(window))
            windows.append(window)
        sink.commit()
    return windows


def label_file(path: Path, out: Path, size: int = 3, **options: str | None) -> bytes:
    """The output's bytes for an input file."""
    source = open_source(path, **options)
    pass_through(source, open_sink(out, source=source, answer_columns=COLUMNS), size)
    return out.read_bytes()


def label_bytes(data: bytes, size: int = 3, **options: str | None) -> bytes:
    """The same through stdin and stdout, in the input's format."""
    out = io.BytesIO()
    source = open_source("-", stdin=io.BytesIO(data), **options)
    pass_through(source, open_sink("-", source=source, answer_columns=COLUMNS, stdout=out), size)
    return out.getvalue()


def cells_of(data: bytes, column: str, size: int = 100, **options: str | None) -> list[object]:
    """All cells of a column."""
    with open_source("-", stdin=io.BytesIO(data), **options) as source:
        return [cell for window in source.windows(size, [column]) for cell in window.cells[column]]
