"""Where output goes: a file that appears whole or not at all, or a stream."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
import zlib
from pathlib import Path
from typing import BinaryIO, Protocol

from lengthwise.errors import OutputError

FULL = (errno.ENOSPC, errno.EDQUOT) if hasattr(errno, "EDQUOT") else (errno.ENOSPC,)
GZIP_WINDOW = 31
"""zlib's code for a gzip header; it writes no time, so equal content gives equal bytes."""


class Target(Protocol):
    """Takes bytes; every failure is an OutputError that says what is where."""

    name: str

    def write(self, data: bytes) -> None: ...

    def commit(self) -> None:
        """Everything is written: make it last."""
        ...

    def abort(self) -> None:
        """Leave nothing behind. Never raises."""
        ...

    def keep(self) -> Path | None:
        """Leave what was written as ``NAME.partial`` and return that path; None for a stream."""
        ...


class FileTarget:
    """Bytes go to a hidden file beside the target, which takes the target's place at ``commit``."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._written = 0
        self._pending = b""
        try:
            # a link keeps pointing at the file that is replaced
            self._path = path.resolve()
            self._refuse_unusable()
            self._temporary = self._path.with_name(f".lengthwise-{secrets.token_hex(6)}.tmp")
            self._file = self._temporary.open("xb")
        except OSError as error:
            raise self._failure(error) from None

    def _refuse_unusable(self) -> None:
        if self._path.is_dir():
            raise OutputError(f"{self.name} is a folder; name the file to write in it.")
        folder = self._path.parent
        if not folder.is_dir():
            raise OutputError(f"the folder of {self.name} does not exist; make {folder} first.")
        if self._path.exists() and not os.access(self._path, os.W_OK):
            raise OutputError(f"{self.name} is write-protected; write elsewhere with -o or change that.")

    def write(self, data: bytes) -> None:
        try:
            if self._pending:
                # Ctrl-C stopped a write half-way: do it over, so that no row is torn
                self._file.seek(self._written)
                self._file.truncate()
                data = self._pending + data
            self._pending = data
            self._file.write(data)
        except OSError as error:
            raise self._failure(error) from None
        self._written += len(data)
        self._pending = b""

    def commit(self) -> None:
        self._finish()
        try:
            self._move(self._path)
        except OSError as error:
            # on Windows a file that is open elsewhere cannot be replaced; the work must not be lost
            reason = error.strerror or str(error)
            raise OutputError(
                f"{self.name} cannot be replaced ({reason}); all of it is in {self._park()} instead."
            ) from None

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def keep(self) -> Path:
        self._finish()
        return self._park()

    def _finish(self) -> None:
        self.write(b"")
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise self._failure(error) from None

    def _park(self) -> Path:
        partial = self._path.with_name(self._path.name + ".partial")
        try:
            self._move(partial)
        except OSError as error:
            raise self._failure(error) from None
        return partial

    def _move(self, place: Path) -> None:
        with contextlib.suppress(OSError):
            self._temporary.chmod(self._path.stat().st_mode & 0o7777)
        self._temporary.replace(place)
        _sync_folder(place.parent)

    def _failure(self, error: OSError) -> OutputError:
        if error.errno in FULL:
            return OutputError(
                f"the disk of {self.name} is full after {self._written:,} bytes, no output was made; "
                "free some space or write elsewhere with -o."
            )
        reason = error.strerror or str(error)
        return OutputError(f"{self.name} cannot be written ({reason}); write elsewhere with -o.")


class StreamTarget:
    """Bytes go straight to stdout, a pipe or a device, window by window."""

    def __init__(self, stream: BinaryIO, name: str, *, owned: bool) -> None:
        self.name = name
        self._stream = stream
        self._owned = owned

    def write(self, data: bytes) -> None:
        try:
            self._stream.write(data)
            self._stream.flush()
        except BrokenPipeError as error:
            raise OutputError(
                f"whoever reads {self.name} stopped reading; the rest was not written."
            ) from error
        except OSError as error:
            what = "is full" if error.errno in FULL else f"cannot be written ({error.strerror or error})"
            raise OutputError(
                f"{self.name} {what}; what came before is there, for the rest write to a file with -o."
            ) from error

    def commit(self) -> None:
        self.write(b"")
        self.abort()

    def abort(self) -> None:
        if self._owned:
            with contextlib.suppress(OSError):
                self._stream.close()

    def keep(self) -> None:
        self.abort()


class GzipTarget:
    """Packs what goes to another target as one gzip member."""

    def __init__(self, target: Target, *, streaming: bool) -> None:
        self.name = target.name
        self._target = target
        self._flush_mode = zlib.Z_SYNC_FLUSH if streaming else zlib.Z_NO_FLUSH
        self._packer = zlib.compressobj(6, zlib.DEFLATED, GZIP_WINDOW)

    def write(self, data: bytes) -> None:
        packed = self._packer.compress(data)
        if self._flush_mode != zlib.Z_NO_FLUSH:
            packed += self._packer.flush(self._flush_mode)
        self._target.write(packed)

    def commit(self) -> None:
        self._target.write(self._packer.flush())
        self._target.commit()

    def abort(self) -> None:
        self._target.abort()

    def keep(self) -> Path | None:
        self._target.write(self._packer.flush())
        return self._target.keep()


def open_target(path: str | Path, stdout: BinaryIO | None, *, gzipped: bool) -> Target:
    """Stdout for ``-``; a stream for what exists and is no regular file (``/dev/stdout``); else a file."""
    target: Target
    streaming = True
    if str(path) == "-":
        target = StreamTarget(stdout or sys.stdout.buffer, "stdout", owned=False)
    elif _is_device(Path(path)):
        target = _open_device(Path(path))
    else:
        target = FileTarget(Path(path))
        streaming = False
    return GzipTarget(target, streaming=streaming) if gzipped else target


def _is_device(path: Path) -> bool:
    # replacing /dev/null or a named pipe by a file would do harm
    try:
        return path.exists() and not path.is_file() and not path.is_dir()
    except OSError:
        return False


def _open_device(path: Path) -> StreamTarget:
    try:
        return StreamTarget(path.open("wb"), str(path), owned=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror}); write elsewhere with -o.") from None


def _sync_folder(folder: Path) -> None:
    """Make the rename last through a power cut, where the system allows it (Windows does not)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
