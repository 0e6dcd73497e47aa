"""What findwall says of every recording, held against what it said before a change.

    python benchmarks/golden.py write            the documents of this commit, into benchmarks/golden/
    python benchmarks/golden.py diff [NAME ...]  what differs now, field by field; verdicts first
    python benchmarks/golden.py score            right, wrong and silent verdicts where the truth is known
    python benchmarks/golden.py changes          every difference with its reason, into golden/changes.tsv
    python benchmarks/golden.py same --to DIR    which documents differ by a byte from those of another tree:
                                                 moves and renames change none

A quarter of the recordings was drawn by lot before the first change (`"drawn": true` in recordings.json).
`diff` and `score` leave them out unless `--drawn` asks for them: they are looked at once, at the end.
Recordings that lie in `../shared` are skipped where that folder is absent.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks" / "golden"
LIST = HERE / "recordings.json"
SHARED = ROOT.parent / "shared"
TOLERANCE = 0.02  # of a figure: smaller differences are counted, not shown
SEED = 30
# Differ with the version, the machine's state or the place of a file, and say nothing of the analysis.
LEFT_OUT = ("source", "cost", "schema", "environment")
# Fields that say as data what a sentence beside them says: not shown where the old documents have none.
CLAIMS = re.compile(
    r"(?:^|\.)(?:claim|action|remarks|parameters|places|condition|saves_ms|advises|why_not)(?:\W|$)"
)

# Why a figure may differ by more than 2 % from what 68d77be said, by the field; the first that fits.
REASONS = (
    (r"^wall\.|^road.*(wall|cause)", "the verdict is what the step loses without each cause (law 9)"),
    (r"recoverable_ms$", "recoverable is a counterfactual, capped by what lies above the floor (law 9)"),
    (
        r"^budget\[(at-the-roof|memory-roof|slow-kernels|unfused|gather|launch|unknown)",
        "one value of near the roof",
    ),
    (r"^budget\[(straggler|exposed-collective)", "waiting is bounded by how late the last rank came"),
    (r"^(budget|phases)", "one owner by a ranked list of claims; first calls are cut out call by call"),
    (r"replay_error", "a full queue and turn-around count as waiting from 20 us on"),
    (
        r"^(prescriptions|road|what_if)",
        "fixes use the same Change; clocks are held down from half the roof on",
    ),
    (r"^not_worth_it", "a refusal is proven by the replay that predictions use"),
    (
        r"^(step|quality|questions|timeline)",
        "cold and whole steps by test; first calls are cut out call by call",
    ),
    (r"^counted", "near the roof has one value"),
    (r"", "words or order of evidence follow the figures"),
)


def _listed() -> Iterator[dict[str, Any]]:
    """Every recording of the tree and of ../shared, with its true step and accepted answers where known."""
    zoo = json.loads((SHARED / "zoo" / "truth.json").read_text())
    for name, truth in zoo.items():
        path, accepted = f"../shared/zoo/{name}.json.gz", truth["accepted_walls"]
        yield {"name": f"zoo-{name}", "path": path, "step_ms": truth["step_ms"], "accepted": accepted}
        yield {"name": f"zoo-{name}-trace-alone", "path": path, "accepted": accepted}
    jobs = json.loads((ROOT / "tests/fixtures/jobs/truth.json").read_text())
    for path in sorted((ROOT / "tests/fixtures/jobs").glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        row = {"path": f"tests/fixtures/jobs/{path.name}", "accepted": jobs[name].get("accepted_walls")}
        yield {"name": f"job-{name}", **row, "step_ms": jobs[name].get("step_ms")}
        yield {"name": f"job-{name}-trace-alone", **row}
    blind = json.loads((ROOT / "tests/fixtures/blind/truth.json").read_text())
    for path in sorted((ROOT / "tests/fixtures/blind").iterdir()):
        if path.is_dir():
            row = {"name": f"blind-{path.name}", "path": f"tests/fixtures/blind/{path.name}"}
            yield {**row, "accepted": [[None, blind[path.name]["cause"]]] if path.name in blind else None}
    aside = json.loads((ROOT / "benchmarks/kept_aside/traces/truth.json").read_text())
    for path in sorted((ROOT / "benchmarks/kept_aside/traces").glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        truth = aside.get(name) or {}
        row = {"path": f"benchmarks/kept_aside/traces/{path.name}", "accepted": truth.get("accepted_walls")}
        yield {"name": f"aside-{name}", **row, "step_ms": truth.get("step_ms")}
        yield {"name": f"aside-{name}-trace-alone", **row}
    for path in (*sorted((ROOT / "tests/fixtures/runs").iterdir()), ROOT / "tests/fixtures/resnet50_default"):
        yield {"name": f"run-{path.name}", "path": str(path.relative_to(ROOT))}
    for path in sorted((ROOT / "tests/fixtures").glob("*.json.gz")):
        yield {"name": f"small-{path.name.removesuffix('.json.gz')}", "path": str(path.relative_to(ROOT))}
    for folder in ("traces", "nsys", "ncu"):
        for path in sorted((SHARED / folder).iterdir()):
            if path.name != "README.md":
                stem = path.name.split(".")[0]
                yield {"name": f"{folder}-{stem}", "path": f"../shared/{folder}/{path.name}"}


def _recordings() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(LIST.read_text())
    return [row for row in rows if (ROOT / row["path"]).exists()]


def _draw() -> None:
    """The list, with a quarter of its files drawn by lot: a file's readings are drawn together."""
    rows = list(_listed())
    paths = sorted({row["path"] for row in rows})
    drawn = set(random.Random(SEED).sample(paths, len(paths) // 4))
    for row in rows:
        row["drawn"] = row["path"] in drawn
    HERE.mkdir(exist_ok=True)
    LIST.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def document(row: dict[str, Any]) -> dict[str, Any]:
    """What this commit says of a recording, as plain data."""
    import msgspec

    from findwall.errors import FindwallError
    from findwall.examine import examine
    from findwall.readers import open_run

    try:
        found = msgspec.to_builtins(examine(open_run([ROOT / row["path"]]), row.get("step_ms")))
    except FindwallError as error:
        return {"refused": str(error)}
    return {key: _rounded(value) for key, value in found.items() if key not in LEFT_OUT}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}") if value == value else None
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _exact(row: dict[str, Any]) -> bytes:
    """A document to the byte, but for where its file lies and what reading it cost."""
    import msgspec

    from findwall.errors import FindwallError
    from findwall.examine import examine
    from findwall.readers import open_run

    try:
        found = msgspec.to_builtins(examine(open_run([ROOT / row["path"]]), row.get("step_ms")))
    except FindwallError as error:
        return str(error).encode()
    return msgspec.json.encode({key: value for key, value in found.items() if key not in LEFT_OUT})


def digest(row: dict[str, Any]) -> str:
    return hashlib.sha256(_exact(row)).hexdigest()


def same(rows: list[dict[str, Any]], to: Path) -> int:
    """How many documents of this tree are not those of another, both made here and now."""
    names = ",".join(row["name"] for row in rows)
    # The other tree's documents of the same files, by this script: it may know nothing of digests itself.
    env = {**os.environ, "PYTHONPATH": str(to.resolve() / "src")}
    command = [sys.executable, __file__, "digests", names, "--drawn"]
    told = json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    mine = _digests(rows)
    other = [name for name in mine if mine[name] != told[name]]
    print(f"{len(mine) - len(other)} of {len(mine)} documents are the same to the byte")
    print("".join(f"  not: {name}\n" for name in other), end="")
    return len(other)


def _digests(rows: list[dict[str, Any]]) -> dict[str, str]:
    with get_context("spawn").Pool(2) as pool:
        return dict(zip([row["name"] for row in rows], pool.imap(digest, rows), strict=True))


def _documents(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with get_context("spawn").Pool(2) as pool:
        yield from zip(rows, pool.imap(document, rows), strict=True)


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"{row['name']}.json").read_text())
    return found


def write(rows: list[dict[str, Any]]) -> None:
    for row, found in _documents(rows):
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items()]
        (HERE / f"{row['name']}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _verdict(found: dict[str, Any]) -> str:
    wall = found.get("wall") or {}
    return f"{wall.get('wall')}/{wall.get('cause')}" if not found.get("refused") else "refused"


# -- the difference ---------------------------------------------------------------------------------------


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path; rows that have a name are addressed by it and not by their place."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flat(one, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _flat(one, f"{at}[{_name(one) or place}]")
    else:
        yield at, value


def _name(row: Any) -> str:
    if not isinstance(row, dict):
        return ""
    fixes = row.get("fixes")
    named = next((row[key] for key in ("cause", "id", "phase", "kind") if isinstance(row.get(key), str)), "")
    return "+".join(fixes) if isinstance(fixes, list) else named


def _differs(old: Any, new: Any) -> bool:
    if isinstance(old, int | float) and isinstance(new, int | float) and not isinstance(old, bool):
        return abs(old - new) > TOLERANCE * max(abs(old), abs(new))
    return bool(old != new)


def diff(rows: list[dict[str, Any]], words: bool, table: bool) -> int:
    """Verdicts that changed, then fields by recording. The number of recordings with a difference."""
    changed = 0
    for row, found in _documents(rows):
        old, new = dict(_flat(_kept(row))), dict(_flat(found))
        keys = [key for key in dict.fromkeys((*old, *new)) if _differs(old.get(key), new.get(key))]
        keys = [key for key in keys if key in old or not CLAIMS.search(key)]
        if not words:
            keys = [key for key in keys if not isinstance(old.get(key, new.get(key)), str) or _decides(key)]
        if not table:
            keys = [key for key in keys if not key.startswith("kernels[")]
        if not keys:
            continue
        changed += 1
        before, after = _verdict(_kept(row)), _verdict(found)
        print(f"== {row['name']}: {before}" + (f"  ->  {after}   VERDICT" if before != after else ""))
        for key in keys:
            print(f"   {key}: {old.get(key)} -> {new.get(key)}")
    print(f"{changed} of {len(rows)} recordings differ (figures by more than {TOLERANCE:.0%})")
    return changed


def changes(rows: list[dict[str, Any]]) -> None:
    """Every difference in a figure or a verdict, with its reason."""
    lines = ["recording\tfield\tbefore\tnow\treason"]
    for row, found in _documents(rows):
        old, new = dict(_flat(_kept(row))), dict(_flat(found))
        for key in dict.fromkeys((*old, *new)):
            before, now = old.get(key), new.get(key)
            text = isinstance(before if before is not None else now, str)
            if key.startswith("kernels[") or CLAIMS.search(key) or (text and not _decides(key)):
                continue
            if _differs(before, now):
                why = next(reason for pattern, reason in REASONS if re.search(pattern, key))
                lines.append(f"{row['name']}\t{key}\t{before}\t{now}\t{why}")
    (HERE / "changes.tsv").write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 1} differences in {HERE / 'changes.tsv'}")


def _decides(key: str) -> bool:
    return key in ("wall.wall", "wall.cause", "wall.next.cause", "step.source", "wall.why_not")


def score(rows: list[dict[str, Any]]) -> None:
    """Verdicts against the truth where that is known."""
    counts = {"right": 0, "wrong": 0, "none": 0}
    for row, found in _documents([row for row in rows if row.get("accepted")]):
        wall = found.get("wall") or {}
        cause = wall.get("cause")
        kind = (
            "none" if cause is None else "right" if cause in [one[1] for one in row["accepted"]] else "wrong"
        )
        counts[kind] += 1
        if kind != "right":
            print(f"{kind:6} {row['name']}: {_verdict(found)}, accepted {row['accepted']}")
    print(", ".join(f"{kind} {count}" for kind, count in counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("draw", "write", "diff", "score", "changes", "same", "digests"))
    parser.add_argument("names", nargs="*", help="recordings, or parts of their names; all by default")
    parser.add_argument("--drawn", action="store_true", help="with the quarter that is looked at once")
    parser.add_argument("--to", type=Path, help="same: another checkout")
    parser.add_argument("--words", action="store_true", help="sentences too")
    parser.add_argument("--table", action="store_true", help="rows of the kernel table too")
    asked = parser.parse_args()
    if asked.what == "draw":
        _draw()
        return 0
    rows = [row for row in _recordings() if asked.drawn or asked.what == "write" or not row["drawn"]]
    if asked.names:
        parts = [part for name in asked.names for part in name.split(",")]
        rows = [row for row in rows if row["name"] in parts or any(part in row["name"] for part in parts)]
    if asked.what == "write":
        write(rows)
    elif asked.what == "score":
        score(rows)
    elif asked.what == "changes":
        changes(rows)
    elif asked.what == "digests":
        print(json.dumps(_digests(rows)))
    elif asked.what == "same":
        return 1 if same(rows, asked.to) else 0
    else:
        return 1 if diff(rows, asked.words, asked.table) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
