from __future__ import annotations

import errno
import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lengthwise.errors import OptionError, OutputError
from lengthwise.rows import Sink, Source, open_sink, open_source
from lengthwise.rows.target import FileTarget
from tests.rows.labelling import COLUMNS, answers_for, label_file

CSV = b"id,text\n1,hello\n2,there\n"
FIRST = b"id,text,label,probability,margin,status\n1,hello,billing,0.5,0.0,ok\n"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """A CSV file of two rows."""
    path = tmp_path / "in.csv"
    path.write_bytes(CSV)
    with open_source(path) as opened:
        yield opened


def first_row_written(source: Source, out: Path | str, stdout: io.BytesIO | None = None) -> Sink:
    """A sink with the first of two rows in it."""
    sink = open_sink(out, source=source, answer_columns=COLUMNS, stdout=stdout)
    window = next(source.windows(1, ["text"]))
    try:
        sink.write(window, answers_for(window))
    except BaseException:
        sink.abort()
        raise
    return sink


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_under_the_name_until_commit(source: Source, tmp_path: Path) -> None:
    """Before commit the old file stands, after it the new one, and no other file is left."""
    out = tmp_path / "out.csv"
    out.write_bytes(b"old")
    sink = first_row_written(source, out)
    assert out.read_bytes() == b"old"
    sink.commit()
    assert out.read_bytes() == FIRST
    assert sink.rows_written == 1
    sink.abort()
    assert names_in(tmp_path) == ["in.csv", "out.csv"]


def test_an_exception_leaves_nothing(source: Source, tmp_path: Path) -> None:
    """A run that fails leaves the folder as it was."""
    with pytest.raises(KeyError), first_row_written(source, tmp_path / "out.csv"):
        raise KeyError
    assert names_in(tmp_path) == ["in.csv"]


def test_leaving_without_commit_leaves_nothing(source: Source, tmp_path: Path) -> None:
    """Only an explicit commit puts the output in place."""
    with first_row_written(source, tmp_path / "out.csv"):
        pass
    assert names_in(tmp_path) == ["in.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.jsonl", "out.parquet"])
def test_keep_partial_leaves_a_whole_file(source: Source, tmp_path: Path, name: str) -> None:
    """After Ctrl-C the rows done are readable in NAME.partial, and an old output still stands."""
    out = tmp_path / name
    out.write_bytes(b"old")
    with first_row_written(source, out) as sink:
        partial = sink.keep_partial()
    assert partial == tmp_path / f"{name}.partial"
    assert out.read_bytes() == b"old"
    assert names_in(tmp_path) == sorted(["in.csv", name, f"{name}.partial"])
    data = partial.read_bytes()
    if name == "out.csv":
        assert data == FIRST
    elif name == "out.csv.gz":
        assert gzip.decompress(data) == FIRST
    elif name == "out.jsonl":
        assert json.loads(data)["label"] == "billing"
    else:
        assert pq.read_table(partial).num_rows == 1


def test_keep_partial_before_the_first_window_and_after_the_end(source: Source, tmp_path: Path) -> None:
    """With nothing done the partial has a header only; a second call gives None."""
    sink = open_sink(tmp_path / "out.csv", source=source, answer_columns=COLUMNS)
    partial = sink.keep_partial()
    assert partial is not None
    assert partial.read_bytes() == b"id,text,label,probability,margin,status\n"
    assert sink.keep_partial() is None


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_ctrl_c_inside_a_write_tears_no_row(
    source: Source, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that was stopped half-way is done over before the partial is left."""

    class Torn:
        def __init__(self, file: io.BufferedWriter) -> None:
            self.file = file
            self.calls = 0

        def __getattr__(self, attribute: str) -> object:
            return getattr(self.file, attribute)

        def write(self, data: bytes) -> int:
            self.calls += 1
            if self.calls == 2:
                self.file.write(data[: len(data) // 2])
                raise KeyboardInterrupt
            return self.file.write(data)

    sink = first_row_written(source, tmp_path / name)
    inner = sink._target if isinstance(sink._target, FileTarget) else sink._target._target  # type: ignore[attr-defined]
    inner._file = Torn(inner._file)
    inner._file.calls = 1
    window = next(source.windows(1, ["text"]))
    with pytest.raises(KeyboardInterrupt):
        sink.write(window, answers_for(window))
    partial = sink.keep_partial()
    assert partial is not None
    data = partial.read_bytes()
    data = gzip.decompress(data) if name.endswith("gz") else data
    assert data == FIRST + b"2,there,billing,0.5,0.0,ok\n"


def test_missing_folder(source: Source, tmp_path: Path) -> None:
    """The folder to make is named."""
    with pytest.raises(OutputError, match=r"the folder of .*out.csv does not exist; make .*nowhere first"):
        open_sink(tmp_path / "nowhere" / "out.csv", source=source, answer_columns=COLUMNS)


def test_output_is_a_folder(source: Source, tmp_path: Path) -> None:
    """A folder is not replaced."""
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder; name the file to write in it"):
        open_sink(tmp_path / "dir.csv", source=source, answer_columns=COLUMNS)


def test_folder_that_may_not_be_written(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing permission is said before any work is done."""

    def refuse(self: Path, mode: str = "r") -> io.BytesIO:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        OutputError, match=r"out.csv cannot be written \(Permission denied\); write elsewhere"
    ):
        open_sink(tmp_path / "out.csv", source=source, answer_columns=COLUMNS)


def test_write_protected_output(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that its owner protected is not replaced behind his back."""
    (tmp_path / "out.csv").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match="is write-protected"):
        open_sink(tmp_path / "out.csv", source=source, answer_columns=COLUMNS)


def test_name_too_long(source: Source, tmp_path: Path) -> None:
    """Whatever the system says about the name becomes one sentence."""
    with (
        pytest.raises(OutputError, match="cannot be"),
        first_row_written(source, tmp_path / ("x" * 300 + ".csv")) as sink,
    ):
        sink.commit()
    assert names_in(tmp_path) == ["in.csv"]


def test_output_is_the_input(source: Source, tmp_path: Path) -> None:
    """The same file is recognised by another spelling, through symbolic and through hard links."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "soft.csv").symlink_to(tmp_path / "in.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "in.csv")
    for out in ("in.csv", "folder/../in.csv", "soft.csv", "hard.csv"):
        with pytest.raises(OutputError, match="is the input itself; choose another output"):
            open_sink(tmp_path / out, source=source, answer_columns=COLUMNS)
    assert (tmp_path / "in.csv").read_bytes() == CSV


def test_a_link_stays_a_link(source: Source, tmp_path: Path) -> None:
    """Output through a link replaces the file it points to."""
    (tmp_path / "real.csv").write_bytes(b"old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    first_row_written(source, tmp_path / "link.csv").commit()
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == FIRST


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_permissions_of_a_replaced_file_stay(source: Source, tmp_path: Path) -> None:
    """A private file stays private; a new one gets what the umask gives."""
    (tmp_path / "out.csv").write_bytes(b"old")
    (tmp_path / "out.csv").chmod(0o600)
    first_row_written(source, tmp_path / "out.csv").commit()
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == 0o600
    (tmp_path / "plain").write_bytes(b"")
    label_file(tmp_path / "in.csv", tmp_path / "new.csv")
    assert (tmp_path / "new.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_disk_full_while_writing(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is named with what was written, and nothing half-made stays."""

    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    sink = first_row_written(source, tmp_path / "out.csv")
    sink._target._file.close()  # type: ignore[attr-defined]
    sink._target._file = Full()  # type: ignore[attr-defined]
    window = next(source.windows(1, ["text"]))
    with (
        pytest.raises(OutputError, match=r"the disk of .*out.csv is full after 67 bytes, no output was made"),
        sink,
    ):
        sink.write(window, answers_for(window))
    assert names_in(tmp_path) == ["in.csv"]


def test_disk_full_at_commit(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system only notices when the file is synced counts as not written."""

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="is full"), first_row_written(source, tmp_path / "out.csv") as sink:
        sink.commit()
    assert names_in(tmp_path) == ["in.csv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_a_device_that_is_full(source: Source, tmp_path: Path, name: str) -> None:
    """A device is written, never replaced, and its failure is said."""
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(OutputError, match="is full; what came before is there"):
        first_row_written(source, tmp_path / name)
    assert Path("/dev/full").is_char_device()


def test_output_that_cannot_be_replaced(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the old output is open elsewhere (Windows) the finished work is kept and its place said."""
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if target.name == "out.csv":
            raise PermissionError(errno.EACCES, "Access is denied")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with (
        pytest.raises(
            OutputError, match=r"cannot be replaced \(Access is denied\); all of it is in .*partial instead"
        ),
        first_row_written(source, tmp_path / "out.csv") as sink,
    ):
        sink.commit()
    assert (tmp_path / "out.csv.partial").read_bytes() == FIRST
    assert names_in(tmp_path) == ["in.csv", "out.csv.partial"]


def test_stdout_gets_every_window_at_once(source: Source) -> None:
    """A pipe sees rows as soon as they are answered, and stdout stays open."""
    out = io.BytesIO()
    sink = first_row_written(source, "-", out)
    assert out.getvalue() == FIRST
    sink.commit()
    assert not out.closed
    assert out.getvalue() == FIRST


def test_stdout_is_only_written_with_the_first_row(source: Source) -> None:
    """A run that fails before its first row puts no header into the pipe."""
    out = io.BytesIO()
    with open_sink("-", source=source, answer_columns=COLUMNS, stdout=out):
        pass
    assert out.getvalue() == b""


def test_the_process_own_stdout(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a stream given, ``-`` is sys.stdout's bytes."""
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer))
    first_row_written(source, "-").commit()
    assert buffer.getvalue() == FIRST


def test_a_reader_that_went_away(source: Source) -> None:
    """``| head`` closes the pipe: one sentence, with the cause for whoever wants to be silent about it."""
    reader, writer = os.pipe()
    os.close(reader)
    with (
        os.fdopen(writer, "wb", buffering=0) as out,
        pytest.raises(OutputError, match="stopped reading") as caught,
    ):
        first_row_written(source, "-", out)  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, BrokenPipeError)


def test_keep_partial_of_a_stream(source: Source) -> None:
    """What went into a pipe is there already, so there is no file to name."""
    assert first_row_written(source, "-", io.BytesIO()).keep_partial() is None


@pytest.mark.parametrize("name", ["out.txt", "out", "out.gz", "out.xlsx"])
def test_output_format_must_be_told(source: Source, tmp_path: Path, name: str) -> None:
    """A name that says no format is an error that lists the endings."""
    with pytest.raises(OptionError, match=r"does not tell its format; end it in \.csv, \.tsv, \.jsonl"):
        open_sink(tmp_path / name, source=source, answer_columns=COLUMNS)


def test_output_format_can_be_told(source: Source, tmp_path: Path) -> None:
    """The given format wins over the name, also for stdout."""
    out = io.BytesIO()
    sink = open_sink("-", source=source, answer_columns=COLUMNS, format="jsonl", stdout=out)
    window = next(source.windows(1, ["text"]))
    sink.write(window, answers_for(window))
    assert json.loads(out.getvalue())["text"] == "hello"
    assert sink.format == "jsonl"


def test_packed_parquet_is_refused(source: Source, tmp_path: Path) -> None:
    """Parquet packs its own columns."""
    with pytest.raises(OptionError, match=r"leave \.gz away"):
        open_sink(tmp_path / "out.parquet.gz", source=source, answer_columns=COLUMNS)
