"""Open a file, a pipe or memory as a source of records, whatever its format."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from lengthwise.errors import InputError, OptionError
from lengthwise.rows.columns import choose_text_columns
from lengthwise.rows.csv_read import CsvSource
from lengthwise.rows.encodings import detect_encoding
from lengthwise.rows.formats import FORMATS, ZIP_MAGIC, checked_format, format_of_head, format_of_name
from lengthwise.rows.jsonl_read import JsonlSource
from lengthwise.rows.memory import MemorySource, memory_source
from lengthwise.rows.source import Source
from lengthwise.rows.streams import OpenInput, open_input

__all__ = ["MemorySource", "Source", "choose_text_columns", "memory_source", "open_source"]


def open_source(
    path: str | Path,
    *,
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    stdin: BinaryIO | None = None,
) -> Source:
    """The records of a file, or of stdin for ``-``.

    The format is the given one, else what the name says, else (pipes) what the first bytes show.
    ``encoding`` None means UTF-8 or what a byte-order mark says. Gzip is seen from the bytes. Raises
    InputError for anything that cannot be read and OptionError for an unusable option.
    """
    wanted = checked_format(format) if format is not None else None
    opened = open_input(path, stdin)
    try:
        form = wanted or _find_format(opened, encoding)
        _refuse_idle_options(form, encoding, delimiter)
        if form == "parquet":
            from lengthwise.rows.parquet_read import ParquetSource  # noqa: PLC0415 - loads pyarrow

            return ParquetSource(opened)
        if opened.head.startswith(ZIP_MAGIC):
            raise InputError(f"{opened.name} is a zip file or an Excel workbook; save it as CSV first.")
        found = detect_encoding(opened.head, encoding)
        if form == "jsonl":
            return JsonlSource(opened, found)
        return CsvSource(opened, form, found, delimiter)
    except BaseException:
        opened.close()
        raise


def _find_format(opened: OpenInput, encoding: str | None) -> str:
    named = format_of_name(opened.path) if opened.path is not None else None
    if named is not None:
        return named
    seen = format_of_head(opened.head, encoding)
    # A pipe has no name, so CSV is assumed; a file of texts called notes.txt must not lose its first
    # line as a header.
    if opened.regular and seen == "csv" and not opened.head.startswith(ZIP_MAGIC):
        known = ", ".join(FORMATS)
        raise InputError(
            f"the name of {opened.name} does not tell its format; say --format with one of {known}."
        )
    return seen


def _refuse_idle_options(form: str, encoding: str | None, delimiter: str | None) -> None:
    if delimiter is not None and form not in ("csv", "tsv"):
        raise OptionError(f"--delimiter is for CSV and TSV, but the input is {form}; leave it away.")
    if encoding is not None and form == "parquet":
        raise OptionError("--encoding is for text formats, but the input is parquet; leave it away.")
