"""CSV and TSV: parsed by the csv module, with every record's bytes kept.

Blank lines belong to no record and are left out. Everything else of the input is kept as it is.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from lengthwise.errors import InputError, OptionError
from lengthwise.records import Window
from lengthwise.rows.encodings import Encoding, read_lines
from lengthwise.rows.payload import CsvRecords
from lengthwise.rows.source import Record, Source, in_batches
from lengthwise.rows.streams import OpenInput

DELIMITERS = (",", "\t", ";", "|")
NAMES = {"\t": "a tab", ",": "a comma", ";": "a semicolon", "|": "a bar", " ": "a space"}
SPELLINGS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
FIELD_LIMIT = 1 << 28
"""Longest cell in characters. Without it one quote that is never closed would read a huge file whole."""


class CsvSource(Source):
    """A CSV or TSV file or pipe. ``header`` is the header line as bytes; ``delimiter`` as given or found."""

    def __init__(self, opened: OpenInput, form: str, encoding: Encoding, delimiter: str | None) -> None:
        self.name = opened.name
        self.format = form
        self.path = opened.path
        self.encoding = encoding
        self.bytes_total = opened.size
        self._opened = opened
        self._taken: list[bytes] = []
        csv.field_size_limit(max(csv.field_size_limit(), FIELD_LIMIT))
        lines = read_lines(opened.stream, encoding, self.name, split_cr=True)
        self.delimiter, self._lines = _settle_delimiter(lines, form, delimiter)
        self._reader = csv.reader(self._texts(), delimiter=self.delimiter, strict=True)
        self._parsed = self._parse()
        self.header, self.columns = self._read_header()

    @property
    def bytes_read(self) -> int:
        return self._opened.position

    def windows(self, size: int, columns: Sequence[str]) -> Iterator[Window]:
        self.check_columns(columns)
        first = 0
        for batch in in_batches(self._records(), size):
            raw, rows, numbers = zip(*batch, strict=True)
            payload = CsvRecords(raw, rows, self.columns)
            cells = {name: payload.column(name) for name in columns}
            yield Window(first, cells, numbers, payload)
            first += len(batch)

    def close(self) -> None:
        self._opened.close()

    def _texts(self) -> Iterator[str]:
        """The lines' text for the csv module; their bytes are noted until a record is complete."""
        for raw, text in self._lines:
            if "\0" in text:
                raise InputError(
                    f"{self.name}, line {self._reader.line_num + 1}: there is a NUL byte; remove it or, if "
                    "the file is UTF-16, say so with --encoding utf-16."
                )
            self._taken.append(raw)
            yield text

    def _parse(self) -> Iterator[Record[list[str]]]:
        """Bytes, cells and first line of each record, the header included."""
        while True:
            begins = self._reader.line_num + 1
            self._taken.clear()
            try:
                fields = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise self._broken(begins, error) from None
            if fields:
                yield b"".join(self._taken), fields, begins

    def _read_header(self) -> tuple[bytes, tuple[str, ...]]:
        for header, columns, line in self._parsed:
            twice = [name for name, count in Counter(columns).items() if count > 1]
            if twice:
                which = f"two columns called {twice[0]!r}" if twice[0] else "two columns without a name"
                raise InputError(f"{self.name}, line {line}: the header has {which}; give each its own name.")
            return header, tuple(columns)
        raise InputError(f"{self.name} is empty; it needs a header line with the names of the columns.")

    def _records(self) -> Iterator[Record[list[str]]]:
        width = len(self.columns)
        for record in self._parsed:
            fields = record[1]
            if len(fields) == width:
                yield record
            elif len(fields) > 1 or fields[0].strip():
                raise self._ragged(record[2], len(fields))

    def _ragged(self, line: int, found: int) -> InputError:
        sign = NAMES.get(self.delimiter, repr(self.delimiter))
        columns = "1 column" if found == 1 else f"{found} columns"
        return InputError(
            f"{self.name}, line {line}: {columns} where the header has {len(self.columns)}; put cells that "
            f"hold {sign} in double quotes, or name the separator with --delimiter if it is not {sign}."
        )

    def _broken(self, begins: int, error: csv.Error) -> InputError:
        noticed = self._reader.line_num
        where = f"noticed at line {noticed}: " if noticed > begins else ""
        return InputError(
            f"{self.name}, line {begins}: the quoting of the record that begins here is broken "
            f"({where}{error}); "
            'close every quoted cell and write a quote inside one as "".'
        )


def _settle_delimiter(
    lines: Iterator[tuple[bytes, str]], form: str, given: str | None
) -> tuple[str, Iterator[tuple[bytes, str]]]:
    """The delimiter, and the lines with those that were looked at back in front."""
    if given is not None:
        return _checked_delimiter(given), lines
    if form == "tsv":
        return "\t", lines
    seen: list[tuple[bytes, str]] = []

    def again() -> Iterator[str]:
        for _, text in tuple(seen):
            yield text
        for line in lines:
            seen.append(line)
            yield line[1]

    found = max(DELIMITERS, key=lambda delimiter: _fit(again(), delimiter))
    return found, chain(seen, lines)


def _fit(lines: Iterable[str], delimiter: str) -> tuple[bool, bool, int]:
    """How well a delimiter suits.

    Whether it cuts no quoted name apart, whether the first record is as wide as the header, that width.
    """
    records = (fields for fields in csv.reader(lines, delimiter=delimiter, strict=True) if fields)
    header: list[str] = []
    agrees = False
    try:
        header = next(records, [])
        agrees = len(header) > 1 and len(next(records, header)) == len(header)
    except csv.Error:
        pass  # the real reader says where
    return not any('"' in name for name in header), agrees, len(header)


def _checked_delimiter(given: str) -> str:
    delimiter = SPELLINGS.get(given.lower(), given)
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise OptionError(f"the delimiter is {given!r}; it must be one character or the word tab.")
    return delimiter
