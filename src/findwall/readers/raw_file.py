"""Bytes of a trace from whatever holds them: plain, gzip, zstd, a pipe. Recognised by content."""

from __future__ import annotations

import os
import select
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from findwall.errors import InputError
from findwall.readers.remote_paths import RemotePath, RemoteStream

GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_READ_BYTES = 1 << 18  # a read; chosen by hand
# Compressed, handed to zstd at a time: it does not bound its output, which may be 32,000 times as much.
_ZSTD_INPUT_BYTES = 1 << 12
_FIRST_BYTE_S, _NEXT_BYTE_S = 10.0, 60.0  # how long a pipe may stay silent; chosen by hand


class RawFile:
    """An open file whose text is read forward once. Says where it is and whether it ended whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self.cut_off = False
        self._remote: RemoteStream | None = None
        self.descriptor = -1
        if isinstance(path, RemotePath):
            self._remote = path.stream()
            self.size = self._remote.size
        else:
            self.descriptor, self.size = _open(path)
        self.is_pipe = self._remote is None and self.size is None
        self._pending = b""
        self.consumed = 0  # bytes of the file itself, for the progress bar
        self._heard = False
        try:
            head = self._raw(_READ_BYTES)
            self.is_plain = not head.startswith((GZIP_MAGIC, ZSTD_MAGIC))
            self._pending = head
            self._decoder = None if self.is_plain else _decoder_for(head, path)
        except BaseException:  # Ctrl-C as well: nobody else could close it
            self.close()
            raise
        self._ended = False

    @property
    def seekable(self) -> bool:
        """Plain text in a real file: blocks can be fetched by their place."""
        return self.is_plain and not self.is_pipe and self._remote is None

    def fetch(self, offset: int, length: int) -> bytes:
        """Bytes by place; fewer if the file is shorter."""
        parts = []
        while length > 0:
            part = os.pread(self.descriptor, length, offset)
            if not part:
                break
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def read(self) -> bytes:
        """The next piece of text; empty at the end."""
        if self._decoder is None:
            raw, self._pending = self._pending or self._raw(_READ_BYTES), b""
            return raw
        while not self._ended:
            text = self._next_text(self._decoder)
            if text:
                return text
        return b""

    def _next_text(self, decoder: _Decoder) -> bytes:
        raw = b""
        if decoder.hungry:
            raw, self._pending = self._pending or self._raw(_READ_BYTES), b""
            if not raw:
                self._ended = True
                if not decoder.finished:
                    self._spoilt("The compressed file is cut off")
                return b""
        try:
            return decoder.step(raw)
        except DamageError as damage:
            self._ended = True
            self._spoilt(f"The compressed file is damaged ({damage})")
            return damage.rescued

    def _spoilt(self, what: str) -> None:
        self.cut_off = True
        self.notes.append(f"{what}; what came before is used.")

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
        else:
            os.close(self.descriptor)

    def _raw(self, count: int) -> bytes:
        if self.is_pipe:
            self._wait()
        try:
            data = self._remote.read(count) if self._remote else os.read(self.descriptor, count)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}.") from error
        self.consumed += len(data)
        self._heard = self._heard or bool(data)
        return data

    def _wait(self) -> None:
        """A pipe nobody writes to must not hang the reader."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        limit = _NEXT_BYTE_S if self._heard else _FIRST_BYTE_S
        if not poll.poll(limit * 1000):
            raise InputError(
                f"Nothing came through the pipe {self.path} for {limit:.0f} s.", "Is its writer running?"
            )


class DamageError(Exception):
    """A compressed stream that does not go on; carries what could still be read."""

    def __init__(self, reason: str, rescued: bytes = b"") -> None:
        super().__init__(reason)
        self.rescued = rescued


class _Decoder(Protocol):
    finished: bool  # stands at the end of a whole stream
    hungry: bool  # has used up its input

    def step(self, raw: bytes) -> bytes: ...


class _Gzip:
    """Any number of gzip members, a bounded piece of text at a time."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._input = b""
        self.finished, self.hungry = False, True

    def step(self, raw: bytes) -> bytes:
        self._input += raw
        if self.finished:
            self._input = self._input.lstrip(b"\0")  # padding between or after members is allowed
            if not self._input:
                self.hungry = True
                return b""
            self._stream, self.finished = zlib.decompressobj(wbits=31), False
        before = self._stream.copy()
        try:
            text = self._stream.decompress(self._input, _READ_BYTES)
        except zlib.error as error:
            raise DamageError(str(error), self._rescue(before)) from error
        self.finished = self._stream.eof
        self._input = self._stream.unused_data if self.finished else self._stream.unconsumed_tail
        self.hungry = not self._input and len(text) < _READ_BYTES
        return text

    def _rescue(self, stream: zlib._Decompress) -> bytes:
        """The text before the damage, a few bytes of input at a time."""
        parts = []
        for place in range(0, len(self._input), 16):
            try:
                parts.append(stream.decompress(self._input[place : place + 16]))
            except zlib.error:
                break
        return b"".join(parts)


class _Zstd:
    """A zstd stream, through whichever decoder is installed."""

    def __init__(self, make: Callable[[], Any], error: type[Exception]) -> None:
        self._make, self._stream, self._error = make, make(), error
        self._input = b""
        self.finished, self.hungry = False, True

    def step(self, raw: bytes) -> bytes:
        self._input += raw
        if self.finished:
            self._stream, self.finished = self._make(), False
        piece, self._input = self._input[:_ZSTD_INPUT_BYTES], self._input[_ZSTD_INPUT_BYTES:]
        try:
            text: bytes = self._stream.decompress(piece)
        except self._error as error:
            raise DamageError(str(error)) from error
        self.finished = self._stream.eof
        if self.finished:
            self._input = self._stream.unused_data + self._input
        self.hungry = not self._input
        return text


def _decoder_for(head: bytes, path: Path) -> _Decoder:
    if head.startswith(GZIP_MAGIC):
        return _Gzip()
    try:
        import zstandard

        return _Zstd(lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)
    except ImportError:
        pass
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14

        return _Zstd(zstd.ZstdDecompressor, zstd.ZstdError)
    except ImportError as error:
        hint = "Install it (pip install findwall[zstd]) or decompress the file (zstd -d)."
        raise InputError(f"{path} is zstd-compressed and no decoder is installed.", hint) from error


def _open(path: Path) -> tuple[int, int | None]:
    """A descriptor and the size; None for a pipe."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to would wait forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", "Check the path.") from error
    except PermissionError as error:
        raise InputError(f"{path} cannot be read (no permission).", "Check its owner and mode.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be opened: {error}.") from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    if stat.S_ISFIFO(status.st_mode):
        os.set_blocking(descriptor, True)
        return descriptor, None
    os.close(descriptor)
    raise InputError(f"{path} is neither a file nor a pipe.", "Give a trace file or a folder of them.")
