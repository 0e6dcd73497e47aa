"""Whose code a Python file is: the person's own, or a library's."""

from __future__ import annotations

import re
import sys

LIBRARY = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|lib/python\d[\d.]*|torch|torchvision|functorch)(?:/|$)|^<"
)
STDLIB = frozenset(sys.stdlib_module_names)
# A frame of Python as the profiler names it.
PROFILED_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")


def is_own(path: str) -> bool:
    """Whether it is the person's. The profiler cuts a library's path to what follows its folder."""
    first = path.split("/")[0].removesuffix(".py")
    return not (LIBRARY.search(path) or (not path.startswith("/") and first in STDLIB))
