"""The example tickets: made by a script that anybody can run again, and as messy as they claim to be."""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from lengthwise.task import load_task

EXAMPLES = Path(__file__).parents[1] / "examples"
LABELS = {"billing", "technical", "account"}
SCRIPTS = {
    "Japanese": r"[\u3040-\u30ff]",
    "Chinese": r"请|怎么|更新以后",
    "Arabic": r"[\u0600-\u06ff]",
    "German": r"\b(Rechnung|Anhängen|Grüße)\b",
    "French": r"\b(Bonjour|Cordialement)\b",
    "Spanish": r"\b(Buenos días|Buenas tardes|buenas tardes)\b",
    "Italian": r"\b(Buongiorno|Gentile|Salve)\b",
    "Portuguese": r"\b(Paguei|celular|fuso)\b",
}


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """The generator, loaded from its file without leaving a cache folder beside it."""
    spec = importlib.util.spec_from_file_location("make_tickets", EXAMPLES / "make_tickets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_tickets"] = module
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with (EXAMPLES / "tickets.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def word_counts(rows: list[dict[str, str]]) -> list[int]:
    return sorted(len(row["body"].split()) for row in rows)


def test_the_script_writes_the_committed_file_again(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running the script gives the committed file, byte for byte."""
    monkeypatch.setattr(sys, "argv", ["make_tickets.py", str(tmp_path / "again.csv")])
    maker.main()
    assert (tmp_path / "again.csv").read_bytes() == (EXAMPLES / "tickets.csv").read_bytes()


def test_another_seed_gives_other_tickets(maker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed matters, so the test above compares something."""
    first = maker.make_csv()
    monkeypatch.setattr(maker, "SEED", maker.SEED + 1)
    assert maker.make_csv() != first


def test_at_least_twenty_hand_written_tickets_for_each_label(maker: ModuleType) -> None:
    """The base is written by hand: 60 and more, no two alike, 20 and more for each label."""
    text = (EXAMPLES / "ticket_source" / "hand_written.txt").read_text(encoding="utf-8")
    tickets = maker.read_hand_written(text)
    counts = Counter(ticket.category for ticket in tickets)
    assert set(counts) == LABELS
    assert min(counts.values()) >= 20
    assert len({ticket.body for ticket in tickets}) == len(tickets) >= 60


def test_columns_ids_and_times(rows: list[dict[str, str]]) -> None:
    """240 rows with the six columns; ids keep leading zeros and, like the times, only grow."""
    assert list(rows[0]) == ["id", "created", "channel", "subject", "body", "category"]
    assert len(rows) == 240
    ids = [row["id"] for row in rows]
    assert all(re.fullmatch(r"0\d{5}|\d{6}", value) for value in ids)
    assert ids[0].startswith("0")
    assert ids == sorted(set(ids))
    assert [row["created"] for row in rows] == sorted({row["created"] for row in rows})


def test_every_row_has_one_of_the_labels_and_none_dominates(rows: list[dict[str, str]]) -> None:
    """The truth is one of the task's labels, each in a quarter of the rows or more."""
    counts = Counter(row["category"] for row in rows)
    assert set(counts) == LABELS
    assert min(counts.values()) >= 60


def test_lengths_are_long_tailed(word_counts: list[int]) -> None:
    """Median 40 to 60 words, the 95th percentile about 250, one of 1,500 and more, some of a single word."""
    assert 40 <= word_counts[120] <= 60
    assert 200 <= word_counts[228] <= 300
    assert word_counts[-1] >= 1500 > word_counts[-2]
    assert word_counts.count(1) >= 3


def test_the_longest_ticket_does_not_repeat_itself(rows: list[dict[str, str]]) -> None:
    """No line of the longest ticket stands in it twice, apart from empty ones."""
    longest = max((row["body"] for row in rows), key=len)
    lines = [line for line in longest.split("\n") if line]
    assert len(lines) > 80
    assert len(set(lines)) == len(lines)


def test_few_exact_duplicates(rows: list[dict[str, str]]) -> None:
    """Some tickets were sent twice, word for word; nearly all are unlike any other."""
    counts = Counter((row["subject"], row["body"]) for row in rows)
    resent = [body for (_, body), count in counts.items() if count > 1]
    assert 3 <= len(resent) <= 10
    assert all(body.strip() for body in resent)


def test_one_empty_and_one_blank_body(rows: list[dict[str, str]]) -> None:
    """One body is empty, one has blanks only and no subject either."""
    assert sum(row["body"] == "" for row in rows) == 1
    blank = [row for row in rows if row["body"] and not row["body"].strip()]
    assert [row["subject"] for row in blank] == [""]


@pytest.mark.parametrize(
    "piece",
    [
        "<p>",
        "&amp;",
        "<br>",
        "<|im_end|>",
        "{$500.00}",
        "Traceback (most recent call last):",
        "\n> ",
        "\r\n",
        '"Sure! ',
        "😅",
    ],
)
def test_bodies_hold_what_real_exports_hold(rows: list[dict[str, str]], piece: str) -> None:
    """HTML, control tokens, braces, traces, quoted mail, both line ends, quotes and emoji are there."""
    assert any(piece in row["body"] for row in rows)


@pytest.mark.parametrize("language", SCRIPTS)
def test_several_languages(rows: list[dict[str, str]], language: str) -> None:
    """At least two tickets in each of eight languages besides English."""
    assert sum(bool(re.search(SCRIPTS[language], row["body"])) for row in rows) >= 2


def test_the_text_na_and_capitals(rows: list[dict[str, str]]) -> None:
    """One body is the two letters NA; several are written in capitals only."""
    assert [row["subject"] for row in rows if row["body"] == "NA"] == ["NA"]
    assert sum(row["body"].isupper() and len(row["body"]) > 40 for row in rows) >= 3


def test_addresses_and_numbers_belong_to_nobody(rows: list[dict[str, str]]) -> None:
    """Mail addresses, hosts and IP addresses come from the ranges kept for examples."""
    text = "\n".join(row["subject"] + "\n" + row["body"] for row in rows)
    hosts = re.findall(r"[\w.]+@([\w.-]+)", text, flags=re.IGNORECASE)
    numbers = re.findall(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", text)
    assert hosts
    assert all(re.fullmatch(r"example\.(com|org|net)", host.rstrip("."), re.IGNORECASE) for host in hosts)
    assert numbers
    assert all(number.startswith(("192.0.2.", "198.51.100.", "203.0.113.")) for number in numbers)


def test_the_task_file_fits_the_tickets(rows: list[dict[str, str]]) -> None:
    """The task's labels are the truth's, its placeholders are columns, and it shows every key there is."""
    task = tomllib.loads((EXAMPLES / "task.toml").read_text(encoding="utf-8"))
    assert {label.value for label in load_task(EXAMPLES / "task.toml").labels} == LABELS
    known = {
        "name",
        "instructions",
        "template",
        "labels",
        "examples",
        "normalize",
        "calibrate",
        "style",
        "scoring",
    }
    assert set(task) == known
    assert {label["value"] for label in task["labels"]} == LABELS
    assert {example["label"] for example in task["examples"]} == LABELS
    assert set(re.findall(r"(?<!{)\{(\w+)\}", task["template"])) <= {"text", *rows[0]}
