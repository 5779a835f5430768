"""Write records with their answers, in the order they come, to a file or a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from lengthwise.errors import InputError, OptionError, OutputError
from lengthwise.records import Window
from lengthwise.rows.columns import AnswerColumn, answer_columns, refuse_clash
from lengthwise.rows.csv_read import CsvSource
from lengthwise.rows.csv_write import CsvAppend, CsvFresh, is_half
from lengthwise.rows.formats import FORMATS, KNOWN_ENDINGS, checked_format, format_of_name, has_gzip_name
from lengthwise.rows.jsonl_read import JsonlSource
from lengthwise.rows.jsonl_write import JsonlAppend, JsonlFresh
from lengthwise.rows.row_writer import Answers, RowWriter
from lengthwise.rows.source import Source
from lengthwise.rows.target import Target, open_target

__all__ = ["AnswerColumn", "Answers", "Sink", "answer_columns", "open_sink"]


class Sink:
    """The output of one run.

    Nothing stands under the output's name until ``commit``. As a context manager it aborts unless
    ``commit`` or ``keep_partial`` came first. ``rows_written`` counts the rows handed in.
    """

    def __init__(self, target: Target, writer: RowWriter, format: str) -> None:
        self.name = target.name
        self.format = format
        self.rows_written = 0
        self._target = target
        self._writer = writer
        self._begun = False
        self._done = False

    def write(self, window: Window, answers: Answers) -> None:
        """Add a window's records with one value a row for each answer column.

        Raises OutputError when it cannot be written (disk full, pipe closed) and InputError for a record
        that the output's format cannot hold.
        """
        data = self._writer.rows(window, answers) if self._begun else self._begin(window, answers)
        self._target.write(data)
        self.rows_written += len(window)

    def commit(self) -> None:
        """Finish the file and put it in place, atomically. Raises OutputError."""
        self._target.write(self._ending())
        self._target.commit()
        self._done = True

    def abort(self) -> None:
        """Remove what was written; what went to a stream is gone. Does nothing after ``commit``."""
        if not self._done:
            self._target.abort()
            self._done = True

    def keep_partial(self) -> Path | None:
        """Leave the rows so far, a whole file, as ``NAME.partial``; None for a stream or after the end."""
        if self._done:
            return None
        self._target.write(self._ending())
        path = self._target.keep()
        self._done = True
        return path

    def _begin(self, window: Window, answers: Answers) -> bytes:
        beginning = self._writer.begin()
        self._begun = True
        return beginning + self._writer.rows(window, answers)

    def _ending(self) -> bytes:
        beginning = b"" if self._begun else self._writer.begin()
        self._begun = True
        return beginning + self._writer.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def open_sink(
    path: str | Path,
    *,
    source: Source,
    answer_columns: Sequence[AnswerColumn],
    format: str | None = None,
    stdout: BinaryIO | None = None,
) -> Sink:
    """A sink for the source's records with answer columns behind them; ``-`` is stdout.

    The format is the given one, else what the name says, else for ``-`` the source's. Equal formats keep
    every record's bytes. Raises OutputError when nothing can be written there, OptionError for a format.
    """
    refuse_clash(source.columns, answer_columns, source.name)
    form = _find_format(path, source, format)
    gzipped = str(path) != "-" and has_gzip_name(Path(path))
    if gzipped and form == "parquet":
        raise OptionError(f"{path}: Parquet is packed inside; leave .gz away.")
    _refuse_same_file(path, source)
    writer = _writer(source, answer_columns, form)
    return Sink(open_target(path, stdout, gzipped=gzipped), writer, form)


def _find_format(path: str | Path, source: Source, wanted: str | None) -> str:
    if wanted is not None:
        return checked_format(wanted)
    form = source.format if str(path) == "-" else format_of_name(Path(path))
    if form not in FORMATS:
        raise OptionError(
            f"the name of {path} does not tell its format; end it in {KNOWN_ENDINGS} or say --output-format."
        )
    return form


def _refuse_same_file(path: str | Path, source: Source) -> None:
    if source.path is None or str(path) == "-":
        return
    try:
        same = Path(path).samefile(source.path)
    except OSError:
        return  # no such output yet, so another file
    if same and source.path.is_file():
        raise OutputError(f"{path} is the input itself; choose another output with -o.")


def _refuse_odd_names(source: Source) -> None:
    for name in source.columns:
        if any(letter == "\0" or is_half(letter) for letter in name):
            raise InputError(f"{source.name}: the key {name!r} cannot be a column's name; write .jsonl.")


def _writer(source: Source, answers: Sequence[AnswerColumn], form: str) -> RowWriter:
    if form != "jsonl":
        _refuse_odd_names(source)
    if form == "parquet":
        from lengthwise.rows.parquet_write import ParquetRows  # noqa: PLC0415 - loads pyarrow

        return ParquetRows(source, answers)
    if form == "jsonl":
        return (
            JsonlAppend(source, answers) if isinstance(source, JsonlSource) else JsonlFresh(source, answers)
        )
    if isinstance(source, CsvSource) and source.format == form:
        return CsvAppend(source, answers)
    return CsvFresh(source, answers, "\t" if form == "tsv" else ",")
