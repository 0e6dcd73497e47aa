"""Files are written whole, small ones read with a bound, and programs found where a person keeps them.

Whoever is killed, or runs out of disk, leaves the old file or the new one. Nobody's link is followed to a
place that they chose, and nothing is run because it lies in the folder somebody is in.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

from findwall.errors import InputError

MOST_BYTES = 16 << 20  # of a small file: a measurement of a hundred thousand timed steps; chosen by hand
_MOST_LINKS = 40  # one behind the other, as the system counts them
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNFORESEEN_BYTES = 12


def write_atomically(path: Path, data: bytes, private: bool = False) -> None:
    """All of `data` or nothing new: nobody reads half a file. Devices and pipes are written as they are.

    `private`: for its owner only, as every new file is in a folder that is.
    """
    path = _followed(path)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    private = private or path.parent.stat().st_mode & 0o077 == 0
    # Nobody can have put a link where no name is known before: who could, would choose what is written over.
    draft = path.with_name(f".findwall-{os.urandom(_UNFORESEEN_BYTES).hex()}.tmp")
    descriptor = os.open(draft, _NEW, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException:  # also Ctrl-C: no draft stays behind, and it goes on
        draft.unlink(missing_ok=True)
        raise


def _followed(path: Path) -> Path:
    """Where a person's own links lead: a link stays a link. Somebody else's is no way to go."""
    for _ in range(_MOST_LINKS):
        path = path.parent.resolve() / path.name
        try:
            found = path.lstat()
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(found.st_mode):
            return path
        if found.st_uid not in (0, os.geteuid()):
            raise OSError(errno.ELOOP, "it is somebody else's link")
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def read_small(
    path: Path, most: int = MOST_BYTES, hint: str = "Give a folder that findwall run wrote."
) -> bytes:
    """The bytes of a plain file of at most so many: a pipe would wait for ever, a device never end, a huge
    one fill all. Raises FileNotFoundError, else InputError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}", "Check its owner and mode.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"cannot read {path}: it is not a plain file", hint)
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", hint) from error
    if len(content) > most:
        size = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
        raise InputError(f"cannot read {path}: it is longer than {size}", hint)
    return content


def search_path() -> str:
    """PATH without the current folder, which may be anybody's."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(one for one in folders if Path(one).is_absolute())


def program(name: str) -> str | None:
    """Where a program is; None: nowhere that a person keeps programs."""
    folders = search_path()
    return shutil.which(name, path=folders) if folders else None
