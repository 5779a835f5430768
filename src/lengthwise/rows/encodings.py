"""Text encodings: which one a file has, and its lines as bytes and as text."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass

from lengthwise.errors import InputError, OptionError

# UTF-32 stands before UTF-16 because its little-endian mark begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WITHOUT_MARK = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
WIDE = ("utf-16", "utf-32")


@dataclass(frozen=True, slots=True)
class Encoding:
    """A codec that neither writes nor expects a byte-order mark, and the mark the file begins with."""

    codec: str = "utf-8"
    bom: bytes = b""

    @property
    def wide(self) -> bool:
        """Whether a line end is more than one byte."""
        return self.codec.startswith(WIDE)

    @property
    def unicode(self) -> bool:
        """Whether every character can be written."""
        return self.codec.startswith("utf") or self.codec == "gb18030"


def detect_encoding(head: bytes, wanted: str | None) -> Encoding:
    """What ``wanted`` names, else what the byte-order mark says, else UTF-8.

    A mark of the wanted encoding's family is recognised too. Raises OptionError for an unknown name.
    """
    name = _codec_name(wanted) if wanted is not None else None
    family = "-".join(name.split("-")[:2]) if name is not None else "utf"
    for bom, codec in MARKS:
        if head.startswith(bom) and codec.startswith(family):
            return Encoding(codec, bom)
    return Encoding(WITHOUT_MARK.get(name, name) if name is not None else "utf-8")


def _codec_name(wanted: str) -> str:
    try:
        "".encode(wanted)  # refuses codecs that are no text encodings, such as hex
        return codecs.lookup(wanted).name
    except (LookupError, ValueError):
        raise OptionError(
            f"there is no text encoding {wanted!r}; usual ones are utf-8, utf-16, latin-1, cp1252, gb18030 "
            "and shift_jis."
        ) from None


def read_lines(
    stream: io.BufferedReader, encoding: Encoding, name: str, *, split_cr: bool
) -> Iterator[tuple[bytes, str]]:
    r"""Each line of the stream as its bytes, line end and all, and as text.

    Lines end with ``\n`` or ``\r\n`` and with ``split_cr`` at a lone ``\r`` too. Raises InputError with
    the line number at the first byte that the encoding does not have.
    """
    stream.read(len(encoding.bom))
    if encoding.wide:
        return _wide_lines(stream, encoding.codec, name, split_cr)
    return _byte_lines(stream, encoding.codec, name, split_cr)


def _byte_lines(
    stream: io.BufferedReader, codec: str, name: str, split_cr: bool
) -> Iterator[tuple[bytes, str]]:
    """Bytes are kept as read and never encoded again, so that they come out the same in any encoding."""
    number = 0
    for line in stream:
        lone_cr = split_cr and line.find(b"\r", 0, -2) >= 0
        for raw in line.splitlines(keepends=True) if lone_cr else (line,):
            number += 1
            try:
                text = raw.decode(codec)
            except UnicodeDecodeError as error:
                raise _not_decodable(name, number, codec, error) from None
            yield raw, text


def _wide_lines(
    stream: io.BufferedReader, codec: str, name: str, split_cr: bool
) -> Iterator[tuple[bytes, str]]:
    number = 0
    try:
        with io.TextIOWrapper(stream, encoding=codec, newline="" if split_cr else "\n") as lines:
            for text in lines:
                number += 1
                yield text.encode(codec), text
    except UnicodeDecodeError as error:
        number += error.object[: error.start].decode(codec, errors="replace").count("\n") + 1
        raise _not_decodable(name, number, codec, error) from None


def _not_decodable(name: str, line: int, codec: str, error: UnicodeDecodeError) -> InputError:
    byte = f"byte 0x{error.object[error.start]:02X}"
    if codec == "utf-8":
        mend = "if the file has another encoding name it, for example --encoding latin-1"
        return InputError(f"{name}, line {line}: {byte} is not UTF-8 text; {mend}.")
    return InputError(
        f"{name}, line {line}: {byte} is not {codec} text; name the file's own encoding with --encoding."
    )
