"""`.ncu-rep` through NVIDIA's own module, where it is installed; else the line that exports the report.

The module is proprietary and comes with Nsight Compute: it is used where Python finds it, never required.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from findwall.errors import InputError
from findwall.ncu.ncu_launches import Launch
from findwall.ncu.ncu_metrics import DEVICE, Figures, is_metric

MAGIC = b"NVR\0"
MODULE, LIBRARY = "ncu_report", "_ncu_report"
_PARTS = ("load_report", "IContext", "IRange", "IAction", "IMetric")
_DIMS = ("x", "y", "z")


def export_line(path: Path) -> str:
    quoted = shlex.quote(str(path))
    return f"ncu --import {quoted} --csv --page raw > {shlex.quote(str(path.with_suffix('.csv')))}"


def launches_of(path: Path) -> list[Launch]:
    """Every launch of a report, in its order."""
    module = nvidias_module()
    if module is None:
        raise InputError(
            f"{path} is a report of Nsight Compute, which only NVIDIA's own tools can open.",
            f"Type `{export_line(path)}` and read that file, or put Nsight Compute's extras/python folder on "
            "PYTHONPATH.",
        )
    try:
        found = list(_launches(module, module.load_report(str(path))))
    except Exception as error:  # code of NVIDIA, which does not say what it raises
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path} cannot be opened by {MODULE} ({reason}).", _instead(path)) from error
    if not found:  # what is no report loads without an error, and holds nothing
        raise InputError(f"{path} holds no kernels: it is empty, cut off or no report.", _instead(path))
    return found


def _instead(path: Path) -> str:
    return f"Try `{export_line(path)}`, and profile again if that fails too."


def nvidias_module() -> Any | None:
    """The module, if what bears its name really is it: nothing else of that name is even imported."""
    with _without_current_folder():
        try:
            spec = importlib.util.find_spec(MODULE)
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is None:
            return None
        if not any(Path(spec.origin).parent.glob(f"{LIBRARY}*")):
            return None
        try:
            module = importlib.import_module(MODULE)
        except Exception:  # noqa: BLE001 - built for another Python or machine: as good as not there
            return None
        return module if all(hasattr(module, part) for part in _PARTS) else None


@contextmanager
def _without_current_folder() -> Iterator[None]:
    """`python -m` looks for modules there first, and it may be the folder that a stranger's report is in."""
    before, here = sys.path[:], os.path.realpath(os.curdir)
    sys.path[:] = [one for one in before if os.path.realpath(one or os.curdir) != here]
    try:
        yield
    finally:
        sys.path[:] = before


def _launches(module: Any, context: Any) -> Iterator[Launch]:
    for number in range(context.num_ranges()):
        one = context.range_by_idx(number)
        for index in range(one.num_actions()):
            yield _launch(module, one.action_by_idx(index))


def _launch(module: Any, action: Any) -> Launch:
    figures = Figures()
    for name in action.metric_names():
        if is_metric(name):
            _add(figures, name, action.metric_by_name(name))
    base = getattr(module.IAction, "NameBase_DEMANGLED", None)
    name = action.name(base) if base is not None else action.name()
    return Launch(str(name), _dims(action, "grid"), _dims(action, "block"), figures)


def _add(figures: Figures, name: str, metric: Any) -> None:
    if metric is None or not metric.has_value():
        return
    value = None if name == DEVICE else metric.as_double()
    text = metric.as_string() if value is None else f"{value:.12g}"
    figures.add(name, str(metric.unit() or ""), str(text or ""))


def _dims(action: Any, what: str) -> tuple[int, int, int] | None:
    found = [action.metric_by_name(f"launch__{what}_dim_{side}") for side in _DIMS]
    if any(one is None for one in found):
        return None
    x, y, z = (int(one.as_uint64()) for one in found)
    return (x, y, z)
