"""Files that lie elsewhere: `s3://`, `gs://` and whatever else fsspec knows. They are read as streams.

fsspec and its backends are imported for such a path alone, and asked for what a person named alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from findwall.errors import InputError, first_line

_T = TypeVar("_T")
_MARK = "://"
_INSTALL = "Install it: pip install 'findwall[remote]'."


def place(text: str | os.PathLike[str]) -> Path:
    """The path that a person named, wherever it is."""
    named = os.fspath(text)
    return RemotePath(named) if _MARK in named and not os.path.lexists(named) else Path(named)


if TYPE_CHECKING:
    _Shape = Path
else:
    _Shape = object


class RemotePath(_Shape):
    """A path with what readers ask of one: no more of `Path` is there."""

    def __init__(self, url: str, folder: bool | None = None) -> None:
        self.url = url
        self._folder = folder  # None: not known yet

    def __fspath__(self) -> str:
        return self.url

    __str__ = __repr__ = __fspath__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __lt__(self, other: PurePath) -> bool:
        return self.url < str(other)

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return RemotePath(f"{self.url.rstrip('/')}/{os.fspath(name)}")

    @property
    def name(self) -> str:
        return self.url.rstrip("/").rpartition("/")[2]

    def is_dir(self) -> bool:
        if self._folder is None:
            self._folder = self._ask(lambda system, inner: bool(system.isdir(inner)))
        return self._folder

    def is_file(self) -> bool:
        return not self.is_dir()

    def iterdir(self) -> Generator[RemotePath, None, None]:
        rows = self._ask(lambda system, inner: system.ls(inner, detail=True))
        for row in rows:
            name = str(row["name"]).rstrip("/").rpartition("/")[2]
            if name and name != self.name:  # some list the folder in itself
                yield RemotePath(str(self / name), row["type"] == "directory")

    def head(self, count: int) -> bytes:
        """The first bytes, without a block of a few megabytes that opening it would fetch."""
        return self._ask(lambda system, inner: bytes(system.cat_file(inner, start=0, end=count)))

    def stream(self) -> RemoteStream:
        return RemoteStream(self)

    def mkdir(self, *_: object, **__: object) -> None:
        """Writing makes what is missing."""

    def write_bytes(self, data: Any) -> int:
        def write(_system: Any, _inner: str) -> int:
            import fsspec

            with fsspec.open(self.url, "wb") as file:
                return int(file.write(data))

        return self._ask(write)

    def _ask(self, question: Callable[[Any, str], _T]) -> _T:
        """Of the file system that the address names, in words that a person understands."""
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise InputError(f"{self} lies elsewhere, and fsspec is not installed.", _INSTALL) from error
        try:
            return question(*url_to_fs(self.url))
        except ImportError as error:
            raise InputError(f"{self} cannot be reached: {first_line(error)}.", _INSTALL) from error
        except FileNotFoundError as error:
            raise InputError(f"{self} does not exist.", "Check the path.") from error
        except Exception as error:  # each backend has errors of its own
            raise InputError(
                f"{self} cannot be reached ({type(error).__name__}: {first_line(error)}).",
                "Check the address, and that this machine may read there.",
            ) from error


class RemoteStream:
    """An open file elsewhere, read forward once."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._file = path._ask(lambda system, inner: system.open(inner, "rb", cache_type="readahead"))
        size = getattr(self._file, "size", None)
        self.size: int | None = size if isinstance(size, int) else None

    def read(self, count: int) -> bytes:
        return self._path._ask(lambda _system, _inner: bytes(self._file.read(count)))

    def close(self) -> None:
        self._file.close()
