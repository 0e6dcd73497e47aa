"""Make a long trace out of real ones: copies in a row whose ids, times, shapes and names all differ.

A file of identical copies would flatter any reader that interns text; here every copy has its own
kernel, range and autograd names, its own shapes and its own ids, and stands after the one before in
time. Only the library's own operators (aten::) keep their names, as they would in any one job.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
_ID_ARGS = ("External id", "external id", "correlation", "Ev Idx", "Sequence number", "Record function id")
_NAMED = ("cpu_op", "kernel", "user_annotation", "python_function")
_FIXED_NAME = re.compile(r"aten::|ProfilerStep#|Optimizer|enumerate|nccl|Mem(cpy|set)")
_GAP_NS = 1_000_000
_DIM_LIMIT = 8  # dims above this change from copy to copy


class Template:
    """One real trace, its events turned into format strings with holes for what differs."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path) as file:
            document = json.load(file, parse_float=Decimal)
        self.header = {key: value for key, value in document.items() if key != "traceEvents"}
        events = [event for event in document["traceEvents"] if event.get("ph") in ("X", "s", "f", "i")]
        events = [
            event for event in events if event.get("cat") != "Trace" and isinstance(event.get("pid"), int)
        ]
        self.labels = [event for event in document["traceEvents"] if event.get("ph") == "M"]
        times = [_ns(event["ts"]) for event in events]
        ends = [time + _ns(event.get("dur", 0)) for time, event in zip(times, events, strict=True)]
        self.origin, self.span = min(times), max(ends) - min(times) + _GAP_NS
        self.ids = 1 + max(_largest_id(event) for event in events)
        self.forms, self.holes = zip(*map(_form, events), strict=True)
        self.times = [time - self.origin for time in times]

    def copy(self, number: int, start: int, id_offset: int) -> Iterator[str]:
        """The events of one copy, as the profiler would write them."""
        offsets = {"id": id_offset, "dim": 8 * number, "copy": number}
        for form, holes, time in zip(self.forms, self.holes, self.times, strict=True):
            ts = start + time
            written = f"{ts // 1000}.{ts % 1000:03d}"
            yield form % tuple(written if kind == "time" else value + offsets[kind] for kind, value in holes)


def _ns(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def _largest_id(event: dict[str, Any]) -> int:
    args = event.get("args", {})
    found = [args[name] for name in _ID_ARGS if isinstance(args.get(name), int)]
    return max([0, int(event.get("id", 0)), *found])


def _form(event: dict[str, Any]) -> tuple[str, list[tuple[str, int]]]:
    """The text of an event with `%s` where copies differ, and what belongs there, in order."""
    holes: list[tuple[str, int]] = []
    members = [_member(name, value, event, holes) for name, value in event.items() if name != "args"]
    args = [_argument(name, value, holes) for name, value in event.get("args", {}).items()]
    text = "  {\n    " + ", ".join(members)
    if args:
        text += ',\n    "args": {\n      ' + ", ".join(args) + "\n    }"
    return text + "\n  }", holes


def _member(name: str, value: Any, event: dict[str, Any], holes: list[tuple[str, int]]) -> str:
    if name in ("ts", "id"):
        holes.append(("time", 0) if name == "ts" else ("id", int(value)))
        return f'"{name}": %s'
    if name == "name" and value.startswith("ProfilerStep#"):
        holes.append(("copy", 0))
        return '"name": "ProfilerStep#%s' + value.partition("#")[2] + '"'
    if name == "name" and event.get("cat") in _NAMED and not _FIXED_NAME.search(value):
        holes.append(("copy", 0))
        return f'"name": {_text(value)[:-1]}_c%s"'
    return f'"{name}": {_text(value)}'


def _argument(name: str, value: Any, holes: list[tuple[str, int]]) -> str:
    if name in _ID_ARGS and isinstance(value, int):
        holes.append(("id", value))
        return f'"{name}": %s'
    if name == "Input Dims":
        return f'"{name}": {_dims(value, holes)}'
    return f'"{_escaped(name)}": {_text(value)}'


def _dims(value: Any, holes: list[tuple[str, int]]) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_dims(item, holes) for item in value) + "]"
    if isinstance(value, int) and value > _DIM_LIMIT:
        holes.append(("dim", value))
        return "%s"
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    return _escaped(json.dumps(value, default=lambda number: float(number)))


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def real_traces() -> list[Path]:
    """Real recordings: those beside the project if they are there, else the project's own fixtures."""
    names = ("gpt2_small_batch8", "gpt2_naive_attention", "llama_1b", "rl_policy_infer")
    beside = [SHARED / "zoo" / f"{name}.json.gz" for name in names]
    found = [path for path in beside if path.exists()]
    return found or sorted((ROOT / "tests" / "fixtures").glob("*.json.gz"))


def write_trace(path: Path, at_least: int, templates: list[Template]) -> int:
    """Write copies until there are enough events; returns how many."""
    with path.open("w") as file:
        _write_header(file, templates[0].header)
        written = _write_labels(file, templates[0].labels)
        start, ids, number = 1_000_000_000_000_000, 0, 0
        while written < at_least:
            template = templates[number % len(templates)]
            for text in template.copy(number, start, ids):
                file.write(",\n" + text)
            written += len(template.forms)
            start, ids, number = start + template.span, ids + template.ids, number + 1
        file.write('\n  ],\n  "traceName": "made.json"\n}\n')
    return written


def _write_header(file: TextIO, header: dict[str, Any]) -> None:
    header = {**header, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}
    header.pop("traceName", None)
    file.write(json.dumps(header, default=float)[:-1] + ',\n  "traceEvents": [\n')


def _write_labels(file: TextIO, labels: list[dict[str, Any]]) -> int:
    file.write(",\n".join("  " + json.dumps(label, default=float) for label in labels))
    return len(labels)
