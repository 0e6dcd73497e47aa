"""Files are written whole: whoever is killed, or runs out of disk, leaves the old file or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, private: bool = False) -> None:
    """All of `data` or nothing new: nobody reads half a file. Devices and pipes are written as they are.

    `private`: for its owner only, as every new file is in a folder that is.
    """
    path = path.resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    private = private or path.parent.stat().st_mode & 0o077 == 0
    draft = path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")
    try:
        if private:
            draft.touch(mode=0o600)
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
