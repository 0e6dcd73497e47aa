"""The zoo's clock, so that a job of this folder runs as a script too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_file = Path(__file__).resolve().parents[1] / "zoo" / "stepclock.py"
_spec = importlib.util.spec_from_file_location("zoo_stepclock", _file)
assert _spec is not None and _spec.loader is not None
_zoo = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_zoo)

Step, device_of, synchronize = _zoo.Step, _zoo.device_of, _zoo.synchronize
block_ms, arguments, main = _zoo.block_ms, _zoo.arguments, _zoo.main
