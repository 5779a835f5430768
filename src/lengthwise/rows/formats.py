"""Which format a file has: from its name, from its first bytes, or as the user says."""

from __future__ import annotations

from pathlib import Path

from lengthwise.errors import OptionError, suggestion
from lengthwise.rows.encodings import detect_encoding

FORMATS = ("csv", "tsv", "jsonl", "parquet")
ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
KNOWN_ENDINGS = ".csv, .tsv, .jsonl (each also with .gz) or .parquet"
PARQUET_MAGIC = b"PAR1"
GZIP_MAGIC = b"\x1f\x8b"
ZIP_MAGIC = b"PK\x03\x04"


def checked_format(name: str) -> str:
    """``name`` when it is a known format; otherwise an OptionError."""
    if name not in FORMATS:
        raise OptionError(
            f"there is no format {name!r}; it must be one of {', '.join(FORMATS)}{suggestion(name, FORMATS)}"
        )
    return name


def has_gzip_name(path: Path) -> bool:
    """Whether the name ends in ``.gz``."""
    return path.suffix.lower() == ".gz"


def format_of_name(path: Path) -> str | None:
    """The format that the file name says, ``.gz`` aside; None when it says none."""
    plain = path.with_suffix("") if has_gzip_name(path) else path
    return ENDINGS.get(plain.suffix.lower())


def format_of_head(head: bytes, encoding: str | None) -> str:
    """The format that a file's first bytes show; CSV when nothing speaks for another."""
    if head.startswith(PARQUET_MAGIC):
        return "parquet"
    found = detect_encoding(head, encoding)
    text = head[len(found.bom) :].decode(found.codec, errors="ignore").lstrip()
    return "jsonl" if text.startswith(("{", "[")) else "csv"
