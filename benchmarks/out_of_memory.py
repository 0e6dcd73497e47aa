"""What findwall does with jobs that run out of memory, for six reasons.

    python benchmarks/out_of_memory.py [--jobs a,b] [--within 240] [--out FILE] [--device cpu]

Each job of `oom_jobs` runs in fresh processes: plain, under `findwall run --memory`, mended as findwall says
(for `fragments` by the allocator's setting), and under `findwall run`. What there is no time for is told as
not measured. At the end stands what must hold, line by line. `--device cpu` tries all of this on a part of
the host's memory: there the cause is the limit of the process or a leak, nothing is in fragments, and
findwall takes of the same memory, so that another request may be the one that fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from findwall.agent.allocations.failure_claim import failure_claim
from findwall.examine.failed_memory import looked_into, rungs_of
from findwall.examine.memory_rows import of_snapshot
from findwall.memory.device_memory import device_memory
from findwall.memory.told_step import told_steps
from findwall.model.measurement import MEASUREMENT_FILE
from findwall.readers.run_folder import failed_rank, measurement_in
from findwall.units import GIB
from stamped import elsewhere, stamp

HERE = Path(__file__).resolve().parent
JOBS = HERE / "oom_jobs"
WANTED = {  # the cause, the phase in which it fails where that is one, and what helps first
    "forward": ("size", "forward", "smaller-batch"),
    "backward": ("size", "backward", "smaller-batch"),
    "first_update": ("size", "optimizer", "less-state"),
    "fragments": ("fragmentation", None, "expandable-segments"),
    "leak": ("growth", None, "keep-numbers"),
    "limit": ("limit", None, "raise-limit"),
}
MENDED_BY = {"forward": "smaller-batch", "backward": "smaller-batch", "first_update": "sgd-momentum"}
NEAR = 0.25  # of the true peak: of a step that nobody saw end
ON_HOST = [name for name in WANTED if name != "fragments"]
FINDWALL = [sys.executable, "-m", "findwall", "run"]
PEAK = "OOM_JOBS_PEAK"  # names the file that a job on a GPU writes its peak to
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
LIMIT_S = 60.0  # of one process
FEWEST_S = 8.0  # less is no time for another
AT_MOST_S = 1.0  # that findwall may take where a job ends
PRINTED = ("command", "stdout", "stderr", "findwall_says")
WAYS = ("plain", "memory", "mended", "without")  # what matters most comes first


def command(name: str, way: str) -> list[str]:
    job = str(JOBS / f"{name}.py")
    return {
        "plain": [sys.executable, job],
        "memory": [*FINDWALL, "--memory", "--out", "run", job],
        "mended": [sys.executable, job, "--mended"],
        "without": [*FINDWALL, "--out", "run", job],
    }[way]


def ran(argv: list[str], settings: dict[str, str], limit_s: float) -> dict[str, Any]:
    """One process in a folder of its own: how it left, what it wrote, how long it took, what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        began, is_late = time.monotonic(), False
        with subprocess.Popen(
            argv,
            cwd=folder,
            env={**elsewhere(), **settings, PEAK: str(Path(folder) / "peak")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                is_late = True
                os.killpg(process.pid, 9)
                out, err = process.communicate()
        seconds = time.monotonic() - began
        knows, peak = told(Path(folder) / "run"), Path(folder) / "peak"
        knows |= {"peak_gib": float(peak.read_text()) / GIB} if peak.is_file() else {}
    found = {
        "command": argv[1:],
        "code": process.returncode,
        "seconds": round(seconds, 2),
        "had_no_time": is_late,
        "stdout": out.decode(errors="replace"),
        "stderr": err.decode(errors="replace").splitlines(),
    }
    return found | knows


def told(run: Path) -> dict[str, Any]:
    """What findwall knows of the failure."""
    there = (run / "rank0" / MEASUREMENT_FILE).is_file()
    measured, rank = (measurement_in(run, 0), failed_rank(run, 0)) if there else (None, None)
    if measured is None or rank is None:
        return {}
    recorded = of_snapshot(rank)
    devices = device_memory(recorded) if recorded is not None else []
    oom = looked_into(rank, next(iter(devices), None))
    assert oom is not None
    steps = told_steps(oom, rank.failed_model) if rank.failed_model is not None else ()
    rungs = rungs_of(steps, next(iter(devices), None)) if steps else []
    helps = [one.id.split("/")[1] for one in failure_claim(oom).parts if one.id.startswith("memory-helps/")]
    held = {row.kind: round(row.gib, 3) for row in oom.kinds}
    return {
        "cause": oom.cause,
        "phase": oom.phase,
        "line": oom.line,
        "asked_gib": oom.asked_gib,
        "kinds_gib": held,
        "helps": helps,
        "took_s": (measured.cost.get("failure_ms") or 0.0) / 1e3 or None,
        "room_gib": oom.room_gib,
        "needs_gib": None if oom.needs_gib is None else [oom.needs_gib.low, oom.needs_gib.high],
        "lines": [f"{row.line} {row.gib:.3f} GiB {row.kind}" for row in oom.lines],
        "first": None if oom.rung is None else [oom.rung.fixes[0], oom.rung.fits, oom.rung.how],
        "rungs_gib": {one.fix: [one.low / GIB, one.mid / GIB, one.high / GIB] for one in rungs},
    }


def kind_of(line: str) -> str:
    """Up to the amount asked for, which is the same in each run; what is free is not."""
    return line.split(". GPU ")[0]


def against(plain: dict[str, Any], watched: dict[str, Any], on_device: bool) -> dict[str, Any]:
    """Whether findwall left the job as it is, and what it wrote."""
    own = [kind_of(line) for line in plain["stderr"]]
    rest = [kind_of(line) for line in watched["stderr"] if not line.startswith("findwall")]
    if not on_device:  # what fails, but not where
        own, rest = ([line.split(" you tried")[0] for line in one[-1:]] for one in (own, rest))
    return {
        "same_code": plain["code"] == watched["code"] != 0,
        "same_stdout": plain["stdout"] == watched["stdout"] or not on_device,
        "same_traceback": bool(own) and rest[: len(own)] == own,
        "added_s": round(watched["seconds"] - plain["seconds"], 2),
        "findwall_says": [line for line in watched["stderr"] if line.startswith("findwall")],
    }


def judged(rows: dict[str, dict[str, Any]], on_device: bool) -> list[tuple[str, list[bool | None]]]:
    """Each line of what must hold, with what was seen of it; None where nothing was."""
    same, causes, helps, times, mends = [], [], [], [], []
    lines, first, peaks = [], [], []
    for name in WANTED if on_device else ON_HOST:
        cause, phase, rung = WANTED[name]
        if not on_device and cause != "growth":
            cause, rung = "limit", "raise-host-limit"
        found = {way: one for way, one in rows.get(name, {}).items() if not one.get("had_no_time")}
        plain, mended = found.get("plain"), found.get("mended")
        for way in ("memory", "without"):
            one = found.get(way)
            if one is None or plain is None:
                same.append(None)
                continue
            one |= against(plain, one, on_device)
            same.append(one["same_code"] and one["same_stdout"] and one["same_traceback"])
            right = one.get("cause") == cause and (phase is None or one.get("phase") == phase)
            causes.append(right)
            helps.append(rung in one.get("helps", ()))
            times.append((one.get("took_s") or 9e9) <= AT_MOST_S)
            if cause in ("size", "limit"):
                first.append(bool(one.get("first")))
            if way == "memory" and on_device:
                lines.append(bool(one.get("lines")))
            if way == "memory" and name in MENDED_BY and mended is not None and "peak_gib" in mended:
                peaks.append(near(one.get("rungs_gib", {}).get(MENDED_BY[name]), mended["peak_gib"]))
        mends.append(None if mended is None else mended["code"] == 0)
    return [
        ("exit code, traceback and stdout are the plain job's", same),
        ("the cause is right", causes),
        ("what helps is named", helps),
        ("what is named runs", mends),
        (f"at most {AT_MOST_S:.0f} s where the job ends", times),
        ("a change that fits, or may, is named where the step is too large", first),
        ("lines that hold most are named with --memory", lines),
        (f"the mended job's peak is as predicted, within {NEAR:.0%} of the interval", peaks),
    ]


def near(predicted: list[float] | None, true: float) -> bool | None:
    if predicted is None:
        return None
    return (1 - NEAR) * predicted[0] <= true <= (1 + NEAR) * predicted[2]


def shown(rows: dict[str, dict[str, Any]]) -> None:
    print(f"\n{'job':13}{'way':9}{'code':>5}{'s':>7}{'added':>7}{'same':>6}  cause, phase, took s, helps")
    for name, found in rows.items():
        for way in [one for one in WAYS if one in found]:
            one = found[way]
            marks = "".join("-x"[one[key]] for key in one if key.startswith("same_"))
            keys = ("cause", "phase", "took_s", "helps")
            tells = " ".join(str(one.get(key, "")) for key in keys)
            added = one.get("added_s", "")
            said = f"{added:>7}{marks:>6}  {tells}"
            print(f"{name:13}{way:9}{one['code']:>5}{one['seconds']:>7.1f}{said}".rstrip())
    print(f"\n{'job':13}{'room':>8}  {'needs GiB':18}{'mended':>8}  predicted of it; first; lines")
    for name, found in rows.items():
        one, peak = found.get("memory", {}), found.get("mended", {}).get("peak_gib")
        needs = " to ".join(f"{value:.2f}" for value in one.get("needs_gib") or [])
        rung = [round(value, 2) for value in one.get("rungs_gib", {}).get(MENDED_BY.get(name, ""), [])]
        tells = f"{rung}; {(one.get('first') or ['-'])[:2]}; {one.get('lines', [])}"
        true = "-" if peak is None else f"{peak:.2f}"
        print(f"{name:13}{one.get('room_gib') or 0:>8.2f}  {needs:18}{true:>8}  {tells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs")
    parser.add_argument("--within", type=float, default=240.0, help="seconds for all of it")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = asked.jobs.split(",") if asked.jobs else WANTED if asked.device == "cuda" else ON_HOST
    until, rows = time.monotonic() + asked.within, {name: {} for name in names}
    whole = {**stamp(asked.device), "within_s": asked.within, "jobs": rows}
    for way in WAYS:
        for name, found in rows.items():
            left = until - time.monotonic()
            if left < FEWEST_S:
                continue
            settings = {"OOM_JOBS_DEVICE": asked.device}
            settings |= EXPANDABLE if way == "mended" and name == "fragments" else {}
            found[way] = ran(command(name, way), settings, min(LIMIT_S, left))
            print(f"{name} {way}: {found[way]['code']} in {found[way]['seconds']} s", flush=True)
            write(asked.out, whole)
    must = judged(rows, asked.device == "cuda")
    whole["must_hold"] = dict(must)
    write(asked.out, whole)
    shown(rows)
    print()
    for what, seen in must:
        held, known = sum(one is True for one in seen), sum(one is not None for one in seen)
        verdict = "unknown" if not known else "holds" if held == known else "DOES NOT HOLD"
        print(f"{verdict:14} {what}: {held} of {known}, {len(seen) - known} not measured")


def write(out: Path | None, whole: dict[str, Any]) -> None:
    """The figures; what was printed names places of this machine."""
    if out is None:
        return
    jobs = {
        name: {
            way: {key: value for key, value in one.items() if key not in PRINTED}
            for way, one in found.items()
        }
        for name, found in whole["jobs"].items()
    }
    out.write_text(json.dumps({**whole, "jobs": jobs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
