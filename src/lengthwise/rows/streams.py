"""Bytes from a file or a pipe, unpacked when they are gzip; every failure names the input."""

from __future__ import annotations

import gzip
import io
import stat
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from lengthwise.errors import InputError, suggestion
from lengthwise.rows.formats import GZIP_MAGIC, has_gzip_name

CHUNK = 1 << 18
HEAD_LIMIT = 1 << 20
BLANKS = b" \t\r\n\0"


@dataclass(slots=True)
class OpenInput:
    """An input that was opened and looked into.

    ``stream`` gives all bytes, unpacked; ``head`` is what it begins with; ``path`` is None for stdin;
    ``regular`` says that the file can be opened again. ``size`` is in bytes as stored, None for pipes.
    """

    name: str
    path: Path | None
    regular: bool
    size: int | None
    head: bytes
    stream: io.BufferedReader
    stored: BinaryIO
    gzipped: bool = False

    @property
    def position(self) -> int:
        """Bytes read so far, as stored; 0 for pipes."""
        return self.stored.tell() if self.regular and not self.stored.closed else 0

    def close(self) -> None:
        self.stream.close()
        if self.path is not None:
            self.stored.close()


class Replayed(io.RawIOBase):
    """A stream with the bytes already taken put back in front; failures become InputError."""

    def __init__(self, head: bytes, stream: BinaryIO, name: str) -> None:
        super().__init__()
        self._head = head
        self._read = _guarded_read(stream, name)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
        else:
            data = self._read(size)
        buffer[: len(data)] = data
        return len(data)


def open_input(path: str | Path, stdin: BinaryIO | None) -> OpenInput:
    """Open a file, or stdin for ``-``. Raises InputError for anything that cannot be read."""
    if str(path) == "-":
        return _look_into(stdin or sys.stdin.buffer, "stdin", None, regular=False, size=None)
    path = Path(path)
    name = str(path)
    try:
        if path.is_dir():
            raise InputError(f"{name} is a folder; name the file in it that holds the records.")
        stored = path.open("rb")
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"there is no file {name}{_similar(path) or '; check the path.'}") from None
    except PermissionError:
        raise InputError(f"{name} may not be read; check its permissions.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be opened ({_reason(error)}); check the path.") from None
    try:
        regular = stat.S_ISREG(status.st_mode)
        return _look_into(stored, name, path, regular=regular, size=status.st_size if regular else None)
    except BaseException:
        stored.close()
        raise


def _look_into(
    stored: BinaryIO, name: str, path: Path | None, *, regular: bool, size: int | None
) -> OpenInput:
    head, stream = _peek(stored, name)
    gzipped = head.startswith(GZIP_MAGIC)
    if gzipped:
        # the outer stream replays the head, so the unpacked one is looked into the same way
        head, stream = _peek(cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb")), name)
    elif head and path is not None and has_gzip_name(path):
        raise InputError(f"{name} is not gzip although its name says so; rename it without .gz.")
    return OpenInput(name, path, regular, size, head, stream, stored, gzipped)


def _peek(stream: BinaryIO, name: str) -> tuple[bytes, io.BufferedReader]:
    """Enough first bytes to tell formats apart, and the stream with them back in front."""
    read = _guarded_read(stream, name)
    head = b""
    while (len(head) < 4 or not head.strip(BLANKS)) and len(head) < HEAD_LIMIT:
        more = read(CHUNK)
        if not more:
            break
        head += more
    return head, io.BufferedReader(Replayed(head, stream, name), CHUNK)


def _guarded_read(stream: BinaryIO, name: str) -> Callable[[int], bytes]:
    # read1 gives what a pipe holds now; read would wait for a whole chunk
    read = cast(Callable[[int], bytes], getattr(stream, "read1", stream.read))

    def guarded(size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(
                f"{name} is damaged or incomplete gzip ({_reason(error)}); fetch or pack it again."
            ) from None
        except OSError as error:
            raise InputError(f"{name} cannot be read ({_reason(error)}); check the disk or pipe.") from None

    return guarded


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).rstrip(".") or type(error).__name__


def _similar(path: Path) -> str:
    try:
        return suggestion(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return ""
