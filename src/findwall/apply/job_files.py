"""Which files of a stack are the job's own, and which are Python's, a library's or ours."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import CodeType

OWN = str(Path(__file__).resolve().parents[1]) + os.sep


class JobFiles:
    """Which code is the job's own: no library, nothing that a compiler wrote, nothing of ours.

    A job that was installed (`findwall run -m package`) is its own package all the same."""

    def __init__(self, main_file: str) -> None:
        paths = sysconfig.get_paths()
        self._python = tuple({paths[key] + os.sep for key in ("stdlib", "platstdlib") if paths.get(key)})
        folder = str(Path(main_file).parent) + os.sep if main_file else ""
        self._installed = folder if folder and _is_installed(folder) else ""

    def of_the_job(self, stands: list[tuple[CodeType, int]]) -> list[tuple[CodeType, int]]:
        """Of a stack, innermost first: the job's frames and those of libraries that call it, outermost first.

        A library that calls the job's function in a loop holds the step, not the loops in that function."""
        own = [row for row, (code, _) in enumerate(stands) if self.is_own(code.co_filename)]
        if not own:
            return []
        between = stands[own[0] : own[-1] + 1]
        return [(code, at) for code, at in reversed(between) if not self.is_python(code.co_filename)]

    def is_own(self, file: str) -> bool:
        if self._installed and file.startswith(self._installed):
            return True
        return not self.is_python(file) and not _is_installed(file)

    def is_python(self, file: str) -> bool:
        """Python's own, a compiler's, or ours."""
        if file.startswith(("<", OWN)) or "torchinductor" in file:
            return True
        return file.startswith(self._python) and not _is_installed(file)


def _is_installed(path: str) -> bool:
    return "site-packages" in path or "dist-packages" in path
