from __future__ import annotations

import gzip
import io
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lengthwise.errors import InputError, OptionError
from lengthwise.rows import open_sink, open_source
from tests.rows.labelling import COLUMNS, cells_of, label_file, pass_through

CSV = b"id,text\n1,hello\n"
LABELLED = b"id,text,label,probability,margin,status\n1,hello,billing,0.5,0.0,ok\n"


class Trickle(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._bytes: Iterator[int] = iter(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        for byte in self._bytes:
            buffer[0] = byte
            return 1
        return 0


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        ("a.csv", CSV, "csv"),
        ("a.CSV", CSV, "csv"),
        ("a.tsv", CSV, "tsv"),
        ("a.jsonl", b"{}", "jsonl"),
        ("a.ndjson", b"{}", "jsonl"),
        ("a.json", b"{}", "jsonl"),
        ("a.v2.csv.gz", gzip.compress(CSV), "csv"),
        ("a.jsonl.GZ", gzip.compress(b"{}"), "jsonl"),
        ("a.log", b'\n {"a":1}', "jsonl"),
    ],
)
def test_format_comes_from_the_name(tmp_path: Path, name: str, data: bytes, form: str) -> None:
    """Known endings in any case, .gz aside; an unknown ending is looked into when that leaves no doubt."""
    (tmp_path / name).write_bytes(data)
    with open_source(tmp_path / name) as source:
        assert source.format == form
        assert source.name == str(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (CSV, "csv"),
        (b'  \n\t{"a": 1}', "jsonl"),
        (b'\xef\xbb\xbf{"a": 1}', "jsonl"),
        ('{"a": 1}'.encode("utf-16"), "jsonl"),
        ("a,b\n".encode("utf-16"), "csv"),
        (gzip.compress(CSV), "csv"),
        (gzip.compress(b'{"a": 1}'), "jsonl"),
        (b"a", "csv"),
    ],
)
def test_format_of_a_pipe_comes_from_its_first_bytes(data: bytes, form: str) -> None:
    """Behind blanks and byte-order marks, in one go or byte by byte."""
    for stream in (io.BytesIO(data), Trickle(data)):
        with open_source("-", stdin=stream) as source:  # type: ignore[arg-type]
            assert source.format == form
            assert source.name == "stdin"
            assert source.bytes_total is None


def test_given_format_wins(tmp_path: Path) -> None:
    """--format is believed, not the name."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'{"text": "x"}\n')
    with open_source(path, format="jsonl") as source:
        assert source.columns == ("text",)


def test_unknown_format_name() -> None:
    """A format that does not exist gets a suggestion."""
    with pytest.raises(
        OptionError, match=r"no format 'json'; .* csv, tsv, jsonl, parquet; did you mean 'jsonl'"
    ):
        open_source("-", stdin=io.BytesIO(CSV), format="json")


def test_text_file_without_format_is_not_guessed(tmp_path: Path) -> None:
    """A list of texts must not lose its first line as a header."""
    path = tmp_path / "notes.txt"
    path.write_bytes(b"first\nsecond\n")
    with pytest.raises(InputError, match=r"notes.txt does not tell its format; say --format with one of csv"):
        open_source(path)


def test_missing_file_suggests_a_neighbour(tmp_path: Path) -> None:
    """A typing error in the name is recognised."""
    (tmp_path / "tickets.csv").write_bytes(CSV)
    with pytest.raises(InputError, match=r"there is no file .*tikets.csv; did you mean 'tickets.csv'\?"):
        open_source(tmp_path / "tikets.csv")
    with pytest.raises(InputError, match=r"there is no file .*x.csv; check the path\."):
        open_source(tmp_path / "nowhere" / "x.csv")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder is named as one."""
    with pytest.raises(InputError, match="is a folder; name the file in it"):
        open_source(tmp_path)


def test_a_file_below_a_file_and_an_impossible_name(tmp_path: Path) -> None:
    """Whatever else the system says about a path becomes one sentence."""
    (tmp_path / "a").write_bytes(CSV)
    with pytest.raises(InputError, match="cannot be opened"):
        open_source(tmp_path / "a" / "b.csv")
    with pytest.raises(InputError, match="cannot be opened"):
        open_source(tmp_path / "a\0b.csv")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing permission is said, also when tests run as root."""
    path = tmp_path / "a.csv"
    path.write_bytes(CSV)

    def refuse(self: Path, mode: str = "r") -> io.BytesIO:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="may not be read; check its permissions"):
        open_source(path)


def test_gzip_in_and_out(tmp_path: Path) -> None:
    """Gzip input is read, gzip output is a single member with the same bytes on every run."""
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(CSV))
    first = label_file(path, tmp_path / "out.csv.gz")
    assert gzip.decompress(first) == LABELLED
    assert first == label_file(path, tmp_path / "again.csv.gz")
    assert first[4:8] == b"\0\0\0\0"
    assert label_file(path, tmp_path / "plain.csv") == LABELLED


def test_gzip_is_seen_without_the_name(tmp_path: Path) -> None:
    """A packed file that lost its .gz is read all the same."""
    path = tmp_path / "in.csv"
    path.write_bytes(gzip.compress(CSV))
    with open_source(path) as source:
        assert source.columns == ("id", "text")


def test_a_name_that_promises_gzip(tmp_path: Path) -> None:
    """A plain file called .gz is an error with the mend."""
    path = tmp_path / "in.csv.gz"
    path.write_bytes(CSV)
    with pytest.raises(InputError, match=r"is not gzip although its name says so; rename it without \.gz"):
        open_source(path)


@pytest.mark.parametrize("cut", [5, 30, -4])
def test_damaged_gzip(tmp_path: Path, cut: int) -> None:
    """A download that stopped half-way is an error, whether in the header, the middle or the checksum."""
    path = tmp_path / "in.csv.gz"
    body = b"".join(b"%d,%d\n" % (i, i * i) for i in range(50_000))
    packed = gzip.compress(b"id,text\n" + body)
    path.write_bytes(packed[:cut] if cut > 0 else packed[:cut] + b"abcd")
    with pytest.raises(InputError, match="is damaged or incomplete gzip"), open_source(path) as source:
        list(source.windows(1000, ["id"]))


def test_empty_files(tmp_path: Path) -> None:
    """Nothing at all is an error in every text format, packed or not."""
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.csv.gz"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(InputError, match="is empty"):
            open_source(tmp_path / name)


def test_an_excel_workbook(tmp_path: Path) -> None:
    """A workbook is named instead of a byte that is not UTF-8."""
    for name in ("a.xlsx", "a.csv"):
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            file.writestr("sheet", "x")
        with pytest.raises(InputError, match="is a zip file or an Excel workbook; save it as CSV first"):
            open_source(tmp_path / name)


def test_unknown_encoding(tmp_path: Path) -> None:
    """Neither an unknown name nor a codec for something other than text is an encoding."""
    for name in ("utf-9", "hex", "a\0b"):
        with pytest.raises(OptionError, match=r"there is no text encoding .* usual ones are utf-8"):
            open_source("-", stdin=io.BytesIO(CSV), encoding=name)


def test_utf16_that_is_cut_off_names_the_line() -> None:
    """A broken pair in UTF-16 is found with its line."""
    data = "text\na\nb\n".encode("utf-16") + b"\x00\xd8"
    with pytest.raises(
        InputError, match="line 4: byte 0x00 is not utf-16-le text; name the file's own encoding"
    ):
        cells_of(data, "text")


def test_stdin_stays_open() -> None:
    """Closing the source does not close a stream that belongs to somebody else."""
    for data in (CSV, "a,b\n".encode("utf-16"), gzip.compress(CSV)):
        stdin = io.BytesIO(data)
        open_source("-", stdin=stdin).close()
        assert not stdin.closed


def test_the_process_own_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a stream given, ``-`` is sys.stdin's bytes."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CSV)))
    with open_source("-") as source:
        assert source.columns == ("id", "text")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a POSIX thing")
def test_named_pipe(tmp_path: Path) -> None:
    """A named pipe is read once from front to back, its format seen from the bytes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    feeder = threading.Thread(target=path.write_bytes, args=(CSV,))
    feeder.start()
    source = open_source(path)
    out = io.BytesIO()
    pass_through(source, open_sink("-", source=source, answer_columns=COLUMNS, stdout=out))
    feeder.join()
    assert out.getvalue() == LABELLED
