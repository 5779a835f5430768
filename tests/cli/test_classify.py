"""``lengthwise classify`` from flags to files, without a model."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ContraryReference, FakeModel, Run

LABELS = ("--labels", "billing,technical,account")
TICKETS = "id,text,priority\n1,I was charged twice,high\n2,the app crashes,low\n3,NA,low\n"


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """Three tickets as CSV."""
    path = tmp_path / "tickets.csv"
    path.write_text(TICKETS, encoding="utf-8")
    return path


def many(folder: Path, rows: int) -> Path:
    """A CSV file of ``rows`` different tickets."""
    path = folder / "many.csv"
    path.write_text("text\n" + "".join(f"ticket number {i}\n" for i in range(rows)), encoding="utf-8")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- what comes out --------------------------------------------------------------------------------------


def test_csv_to_csv(run: Run, tickets: Path, tmp_path: Path) -> None:
    """Every row comes back in order, its own cells untouched, with the four answer columns behind them."""
    out = tmp_path / "labelled.csv"
    result = run("classify", tickets, *LABELS, "-o", out)
    assert result.code == 0, result.err
    rows = rows_of(out)
    assert [(row["id"], row["text"], row["priority"]) for row in rows] == [
        ("1", "I was charged twice", "high"),
        ("2", "the app crashes", "low"),
        ("3", "NA", "low"),
    ]
    assert list(rows[0])[3:] == ["label", "probability", "margin", "status"]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["label"] for row in rows} <= {"billing", "technical", "account"}
