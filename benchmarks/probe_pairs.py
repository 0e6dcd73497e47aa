"""Predictions with curves and with probes, against fixes that were really made.

    python benchmarks/probe_pairs.py --out FILE [--jobs DIR | --pairs] [--kept FILE] [NAME ...]

DIR holds traces and a `truth.json` (default: `tests/fixtures/jobs`); with `--pairs` the fixes are those of
`fix_pairs.py`, made in interleaved processes. Run it on the GPU that the traces are of; with `--kept`, probes
that an earlier run wrote are read instead, which needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.fixes import Use
from findwall.fixes.predict import Prediction, predict
from findwall.fixes.what_if import outcomes_of
from findwall.model.probes import Probes
from findwall.probe.measuring import find_target, run_probes
from findwall.probe.probe_plan import plan
from fix_names import FIX_OF
from fixes import is_findwalls, measured_pairs, nearest, trace_name
from replay import facts_of

JOBS = Path(__file__).parents[1] / "tests" / "fixtures" / "jobs"


def predicted(facts: Facts, asked: str) -> Prediction | None:
    said = outcomes_of(facts, asked)
    uses = {name: one for name, one in said.items() if isinstance(one, Use)}
    return predict(facts, uses) if len(uses) == len(said) else None


def pairs(job: str, facts: Facts, probes: Probes, truth: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    with_probes = replace(facts, run=replace(facts.run, probes=probes))
    for name, fix in truth.get("fixes", {}).items():
        if not is_findwalls(job, name):
            continue
        curves, own = predicted(facts, FIX_OF[name]), predicted(with_probes, FIX_OF[name])
        if curves is None or own is None:
            continue
        measured = nearest(own.mid / 1e6, fix["step_ms"], fix.get("by_speedup_ms"))
        row = {
            "fix": FIX_OF[name],
            "now_ms": truth["step_ms"],
            "measured_ms": measured,
            "curves_ms": round(curves.mid / 1e6, 3),
            "probes_ms": round(own.mid / 1e6, 3),
            "basis": own.basis,
            "curves_error": round(curves.mid / 1e6 / measured - 1, 4),
            "probes_error": round(own.mid / 1e6 / measured - 1, 4),
        }
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=Path, default=JOBS)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--kept", type=Path)
    given = parser.parse_args()
    truth = json.loads((given.jobs / "truth.json").read_text())
    if given.pairs:
        truth = {trace_name(path): found for path, found in measured_pairs() if path.is_file()}
    kept = json.loads(given.kept.read_text())["jobs"] if given.kept else {}
    target = find_target("gpu", None) if not kept else None
    found: dict[str, Any] = {}
    for name in given.names or sorted(truth):
        path = given.jobs / f"{name}.json.gz"
        if not path.exists() or (kept and name not in kept):
            continue
        facts = facts_of(path, truth[name].get("step_ms"))
        wanted = plan(facts)
        if target is not None:
            probes = run_probes(target, wanted)
        else:
            probes = msgspec.convert(kept[name]["probes"], Probes)
        rows = pairs(name, facts, probes, truth[name])
        found[name] = {"seconds": probes.seconds, "pairs": rows, "probes": msgspec.to_builtins(probes)}
        print(f"{name}: {len(probes.ns)} of {len(wanted)} probes in {probes.seconds:.1f} s", flush=True)
        for why in sorted(set(probes.skipped.values())):
            print(f"  not run: {why}")
        for row in rows:
            print("  ", *(f"{key}={value}" for key, value in row.items()), flush=True)
        given.out.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "jobs": found}, indent=1))
    every = [row for one in found.values() for row in one["pairs"]]
    told = {"probed": [row for row in every if row["basis"] == "probed"], "all": every}
    for what, rows in told.items():
        for basis in ("curves", "probes"):
            errors = [abs(row[f"{basis}_error"]) for row in rows] or [0.0]
            mean = sum(errors) / len(errors)
            print(f"{what}, {basis}: mean error {mean:.3f}, worst {max(errors):.3f}, {len(rows)} pairs")


if __name__ == "__main__":
    main()
