"""What a job writes, where it is asked for: whoever runs a job again and again says so before.

Seen are files that Python opens for writing, folders it makes, names it gives to files, what torch and
safetensors save, and what was there before and is read or deleted, in the process that is measured; what
other libraries write by themselves is not.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from findwall.agent.importhook import when_imported
from findwall.apply.registry import CANNOT, COMPARES, REGISTRY, Call
from findwall.model.arms import LOOK

BY = "job's writes"
MOST, MOST_READ = 50, 4096  # paths that are kept. Chosen by hand.
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CACHES = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME", "TORCH_HOME")
_HOME = (".cache", ".triton", ".nv", ".config")  # folders that libraries fill once
PARTS = ("__pycache__", "torchinductor_", "findwall-runs")  # wherever they are


class Writes:
    """Notes paths until the process ends: Python has no way to take this back."""

    def __init__(self, own: Path) -> None:
        self._found: dict[str, None] = {}
        self._deleted: dict[str, None] = {}
        self._read: set[str] = set()  # before it was written, if it was
        self._here = Path.cwd()
        self._outside = _outside(own, self._here)
        self.off = False

    @classmethod
    def of_environment(cls) -> Writes | None:
        """Where a look at the job asks for it; it names the folder that is its own."""
        folder = os.environ.get(LOOK)
        if not folder:
            return None
        writes = cls(Path(folder))
        sys.addaudithook(writes._heard)
        REGISTRY.hold(BY, "sys.addaudithook", None, past_end=CANNOT)
        when_imported("torch", lambda torch: writes._watch(torch, "save", 1), BY, COMPARES)
        when_imported("safetensors.torch", lambda module: writes._watch(module, "save_file", 1), BY, COMPARES)
        return writes

    @property
    def paths(self) -> list[str]:
        return list(self._found)

    @property
    def deleted(self) -> list[str]:
        """What the job did not write itself before."""
        return list(self._deleted)

    @property
    def read_back(self) -> list[str]:
        """What the job read as it was there, and then wrote: the next process reads that."""
        return [path for path in self._found if path in self._read]

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self.off or (event not in _EVENTS and event not in _DELETIONS):
            return
        with contextlib.suppress(Exception):  # it is called inside the job's own calls: fail open
            if event in _DELETIONS:
                self._note_deleted(args)
                return
            if event == "open" and not is_for_writing(args):
                self._note_read(args[0])
                return
            path = _EVENTS[event](args)
            if path is not None:
                self.note(path)

    def note(self, path: Any) -> None:
        text = self._counted(path)
        if text is not None and len(self._found) < MOST:
            self._found[text] = None

    def _note_read(self, path: Any) -> None:
        if len(self._read) >= MOST_READ or os.fsdecode(path).endswith((".py", ".pyc")):
            return
        text = self._counted(path)
        if text is not None and text not in self._found and Path(text).exists():
            self._read.add(text)

    def _note_deleted(self, args: tuple[Any, ...]) -> None:
        """A folder is told once: what is deleted in it has names that are relative to it."""
        path, within = args
        text = self._counted(path) if within in (None, -1) else None
        if text is None or not os.path.lexists(text) or len(self._deleted) >= MOST:
            return
        if not any(text == own or text.startswith(own + os.sep) for own in (*self._found, *self._deleted)):
            self._deleted[text] = None

    def _counted(self, path: Any) -> str | None:
        """The whole path, if it is one that counts."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        full = (
            self._here / os.fsdecode(path) if Path.cwd() == self._here else Path(os.fsdecode(path)).absolute()
        )
        text = os.path.normpath(full)
        if any(part in text for part in PARTS) or (text + os.sep).startswith(self._outside):
            return None
        return text

    def _watch(self, module: Any, name: str, position: int) -> None:
        """A function that writes past Python, to the path it is given here."""

        def noted(original: Call) -> Call:
            @functools.wraps(original)
            def saved(*args: Any, **kwargs: Any) -> Any:
                with contextlib.suppress(Exception):  # a look at a path of any class: fail open
                    given = [*args[position : position + 1], kwargs.get("f"), kwargs.get("filename")]
                    self.note(next((one for one in given if one is not None), None))
                return original(*args, **kwargs)

            return saved

        REGISTRY.wrap(BY, module, name, noted, past_trace=COMPARES)


def is_for_writing(opened: tuple[Any, ...]) -> bool:
    """By what Python tells of a file that is opened."""
    _, mode, flags = opened
    return any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & _FOR_WRITING)


def _made(args: tuple[Any, ...]) -> Any:
    return None if Path(os.fsdecode(args[0])).exists() else args[0]


_EVENTS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "open": lambda args: args[0],  # for writing
    "os.mkdir": _made,
    "os.rename": lambda args: args[1],
    "sqlite3.connect": lambda args: args[0] if args[0] != ":memory:" else None,
}
_DELETIONS = ("shutil.rmtree", "os.remove", "os.rmdir")


def caches() -> list[str]:
    """Folders that libraries fill, and read again."""
    given = [os.environ[name] for name in _CACHES if os.environ.get(name)]
    return given + [str(Path.home() / name) for name in _HOME]


def _outside(own: Path, here: Path) -> tuple[str, ...]:
    """Where writing does not count: what nobody keeps, caches, and what is findwall's. A job that runs in
    such a folder keeps what it writes there all the same."""
    temporary = {tempfile.gettempdir(), "/tmp", "/var/tmp"}
    places = [str(Path(one).absolute()) for one in (*temporary, *caches())]
    places = [one for one in places if here != Path(one) and not here.is_relative_to(one)]
    return tuple(one + os.sep for one in (*places, str(own.absolute()), "/dev", "/proc", "/sys"))
