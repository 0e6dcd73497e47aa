"""Whether work that nobody needs is found, with its line, and nothing else is called that.

    python benchmarks/unneeded.py [--device cpu|cuda] [--out FILE] [--only NAME ...]

Each job of `unneeded_jobs.py` runs once under `findwall run`, then plain and with its edit: the losses must
be the same, and the step that is said is held against the one that the edit gives.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
JOBS = HERE / "unneeded_jobs.py"
FIXES = {
    "teacher_in_graph": "no-unused-gradients",
    "frozen_backbone": "no-unused-gradients",
    "careless_gan": "no-unused-gradients",
    "unused_head": "no-unread-results",
    "statistics_unread": "no-unread-results",
    "forward_again_for_metric": "reuse-results",
    "loss_again": "reuse-results",
    "backward_of_each_loss": "one-backward",
    "mask_in_every_step": "compute-once",
    "prompt_in_every_step": "compute-once",
    "adjacency_in_every_step": "compute-once",
    "weights_cast_in_every_step": "compute-once",
    "evaluation_in_every_step": "evaluate-less-often",
    "scores_of_all_tokens": "fewer-rows",
    "layer_for_each_edge": "fewer-rows",
    "plain_training": "",
    "plain_distillation": "",
}
OURS = {one for one in FIXES.values() if one}
STEPS = {"cpu": 2000, "cuda": 2000}


def measured(command: list[str]) -> tuple[str, float]:
    """The losses and the step of a job that runs without findwall."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = re.search(r"LOSSES (\S+) STEP_MS (\S+)", done.stdout)
    assert found is not None, done.stdout
    return found[1], float(found[2])


def looked_at(name: str, device: str) -> dict[str, Any]:
    job = [str(JOBS), name, "--device", device]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "document.json"
        command = [sys.executable, "-m", "findwall", "run", "--stop", "--until", "lines"]
        command += ["--out", f"{folder}/run", "--json", str(out), *job, "--steps", str(STEPS[device])]
        subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        document = json.loads(out.read_text()) if out.exists() else {}
        record = json.loads((Path(folder) / "run/rank0/measurement.json").read_text())
    return {"document": document, "observed": record["observed"]}


def lines_of(name: str) -> list[int]:
    """The lines that are marked inside a job, those of a call that spans several included."""
    text = JOBS.read_text().splitlines()
    first = next(at for at, line in enumerate(text) if line.startswith(f"def {name}("))
    end = next((at for at in range(first + 1, len(text)) if re.match(r"\S", text[at])), len(text))
    return [at + 1 for at in range(first, end) if "# needless" in text[at]]


def row(name: str, device: str) -> dict[str, Any]:
    seen = looked_at(name, device)
    document = seen["document"]
    step = (document.get("step") or {}).get("ms")
    said = {one["fixes"][0]: one for one in document.get("prescriptions") or [] if len(one["fixes"]) == 1}
    claimed = {fix: said[fix] for fix in said if fix in OURS}
    command = [sys.executable, str(JOBS), name, "--device", device, "--steps", "200"]
    losses, plain = measured(command)
    result: dict[str, Any] = {
        "wall": (document.get("wall") or {}).get("cause"),
        "claimed": {fix: one["how"] for fix, one in claimed.items()},
        "observed": seen["observed"],
        "step_ms": step,
        "plain_ms": plain,
    }
    wanted = FIXES[name]
    if wanted:
        edited, after = measured([*command, "--edited"])
        mid = (claimed.get(wanted, {}).get("step_ms") or {}).get("mid")
        how = claimed.get(wanted, {}).get("how", "")
        result |= {
            "same_losses": losses == edited,
            "edited_ms": after,
            "predicted_share": mid / step if mid and step else None,
            "measured_share": after / plain,
            "found": wanted in claimed,
            "line": any(f"unneeded_jobs.py:{line}" in how for line in lines_of(name)),
        }
    result["false"] = sorted(set(claimed) - {wanted})
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    rows = {}
    for name in asked.only or FIXES:
        found = rows[name] = row(name, asked.device)
        shares = [f"{found.get(key) or 0:.2f}" for key in ("predicted_share", "measured_share")]
        marks = " ".join(
            f"{key}={found.get(key)}" for key in ("found", "line", "same_losses", "wall", "false")
        )
        print(
            f"{name:28} {marks} said {shares[0]} got {shares[1]} {found['observed']['why_not']}", flush=True
        )
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
