"""What no document may say: read off the document alone, apart from the product's own checks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]

NEAR = re.compile(r"([\d.]+|< 0\.1) % of (?:its|the memory) ceiling")
CALLS = re.compile(r": ([\d.,]+) calls?")
SAVES = re.compile(r"saves up to ([\d.]+) (us|ms|s)\b")
FEW_US = 10.0
OTHERS = {  # a maker's, or no, device: what nobody may be told there
    "amd": ("nvidia-smi", "NVLink", "cuDNN"),
    "nvidia": ("rocm-smi", "MIOpen"),
    "cpu": ("CUDA graph", "torch.cuda", "nvidia-smi", "rocm-smi", "backends.cudnn", "pin_memory"),
}


@dataclass(frozen=True)
class Known:
    """What whoever drew the job knows of it."""

    maker: str = "nvidia"  # or "amd", "cpu", "": nobody's
    cores: int | None = None
    replays: bool = False  # all launches are graph launches
    memory_told: bool = True  # the copies' names say pinned or pageable


def contradictions(document: Document, known: Known) -> list[str]:
    found = [*_figures(document), *_unknown_weighs(document), *_roofs(document), *_small(document)]
    found += [*_between(document), *_advice(document, known), *_promises(document)]
    return found


def impossible(document: Document) -> list[str]:
    """Figures that cannot be, and a verdict on nothing: whatever the job was, whoever tampered with it."""
    cause = document["wall"]["cause"]
    absent = [] if cause is None or cause in _rows(document) else [f"{cause} is not in the budget"]
    return _figures(document) + absent


def _rows(document: Document) -> dict[str, Document]:
    return {row["cause"]: row for row in document["budget"]}


def _figures(document: Document) -> list[str]:
    step, rows = document["step"]["ms"], document["budget"]
    found = []
    total = sum(row["ms"] for row in rows)
    if rows and abs(total - step) > 1e-3 * step:
        found.append(f"budget {total}, step {step}")
    for row in rows:
        if row["ms"] < 0 or not 0 <= (row["recoverable_ms"] or 0) <= 1.001 * row["ms"] + 1e-9:
            found.append(f"{row['cause']} {row['ms']} gives back {row['recoverable_ms']}")
    shares = {
        **{name: document["timeline"][name] for name in ("idle_share", "comm_hidden_share")},
        **{name: document["quality"][name] for name in ("modelled_share", "above_spec_share")},
        "mfu": document["mfu"]["mfu"],
    }
    found += [
        f"{name} {value}" for name, value in shares.items() if value is not None and not 0 <= value <= 1
    ]
    found += [f"phase {one['phase']} {one['ms']}" for one in document["phases"] if one["ms"] < 0]
    phases = sum(one["ms"] for one in document["phases"])
    if step is not None and phases > 1.0011 * step:
        found.append(f"phases {phases}, step {step}")
    return found + _times(document) + _kinds_and_elapsed(document)


def _times(document: Document) -> list[str]:
    """Nothing takes less than no time."""
    step, timeline = document["step"], document["timeline"]
    times = {f"step {name}": step[name] for name in step if name.endswith("ms")}
    times |= {name: timeline[name] for name in ("span_ms", "busy_ms", "comm_ms")}
    times |= {name: document["quality"][name] for name in ("start_up_ms", "cut_away_ms")}
    for row in document["budget"]:
        times |= {f"{row['cause']} {name}": row[name] for name in ("ms", "low_ms", "high_ms")}
    for row in document["kernels"]:
        times |= {
            f"{row['name']} {name}": row[name] for name in ("ms", "calls", "floor_ms", "flops", "bytes")
        }
    found = [
        f"{name} {value}" for name, value in times.items() if value is not None and not 0 <= value < 1e300
    ]
    if timeline["span_ms"] is not None and timeline["busy_ms"] > 1.0011 * timeline["span_ms"]:
        found.append(f"busy {timeline['busy_ms']} of {timeline['span_ms']}")
    return found


def _kinds_and_elapsed(document: Document) -> list[str]:
    kinds = [one["share_of_steps"] for one in document["kinds"]]
    elapsed = list((document["elapsed"] or {}).values())
    return [
        f"{name} {shares}"
        for name, shares in (("kinds", kinds), ("elapsed", elapsed))
        if any(not 0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-5
    ]


def _unknown_weighs(document: Document) -> list[str]:
    cause, rows = document["wall"]["cause"], _rows(document)
    if cause is None:
        return []
    if cause not in rows or rows[cause]["ms"] <= 0:
        return [f"{cause} is not in the budget"]
    unknown = rows.get("unknown", {"ms": 0.0})["ms"]
    if cause.endswith("roof"):
        return [f"{cause}, unknown {unknown}"] if unknown > 0.1001 * document["step"]["ms"] else []
    gain = rows[cause]["recoverable_ms"] or 0.0
    return [f"{cause} gives back {gain}, unknown {unknown}"] if unknown > 1.001 * gain else []


def _roofs(document: Document) -> list[str]:
    found = []
    for cause in ("at-the-roof", "memory-roof"):
        for shown in _rows(document).get(cause, {"evidence": []})["evidence"]:
            near = NEAR.search(shown["text"])
            if near and (near[1].startswith("<") or float(near[1]) < 39.5):
                found.append(f"{cause}: {shown['text']}")
    return found


def _small(document: Document) -> list[str]:
    rows = _rows(document)
    busy = next(one["value"] for one in document["questions"] if one["id"] == "busy")
    found = []
    if document["wall"]["cause"] == "launch-bound" and busy is not None and busy > 0.95:
        found.append(f"launch-bound, {busy:.0%} busy")
    for shown in rows.get("launch-bound", {"evidence": []})["evidence"]:
        calls = CALLS.search(shown["text"])
        if shown["kernel"] and calls:
            each = 1e3 * shown["ms"] / max(float(calls[1].replace(",", "")), 1e-9)
            if each > 1.1 * FEW_US:
                found.append(f"too small at {each} us: {shown['text']}")
    return found


def _between(document: Document) -> list[str]:
    if document["machine"]["ceilings"]["source"] == "unknown" or document["timeline"]["span_ms"] is None:
        return []
    if document["step"]["ms"] is None:
        return []
    rows, step = _rows(document), document["step"]
    least = 0.0499 * min(step["ms"], step["low_ms"] or step["ms"])
    return [
        f"between {cause}, a trifle"
        for _, cause in document["wall"]["between"] or []
        if max((rows.get(cause) or {"ms": 0})["ms"], (rows.get(cause) or {}).get("high_ms") or 0) < least
    ]


def _advice(document: Document, known: Known) -> list[str]:
    advised = {one["fixes"][0]: one["how"] for one in document["prescriptions"]}
    refused = {one["fixes"][0]: one["why"] for one in document["not_worth_it"]}
    texts = [*advised.values()]
    if document["wall"]["cause"] is not None:
        texts.append(document["wall"]["sentence"])
    found = [f"advised and refused: {name}" for name in advised.keys() & refused.keys()]
    for text in [*texts, *refused.values()]:
        if re.search(r"(?<![\d.,])0 times\b|Nothing of", text):
            found.append(f"on nothing: {text}")
        if not known.memory_told and re.search(r"come from p(?:inned|ageable)", text):
            found.append(f"memory nobody named: {text}")
    for text in texts:
        found += [f"{word} on {known.maker}: {text}" for word in OTHERS.get(known.maker, ()) if word in text]
        if known.replays and re.search(r"capture the step|torch\.cuda\.graph|reduce-overhead", text):
            found.append(f"captured twice: {text}")
        workers = re.search(r"num_workers=(\d+)", text)
        if workers and known.cores is not None and int(workers[1]) > known.cores:
            found.append(f"{workers[1]} workers, {known.cores} cores")
    if "raise-clocks" in refused:
        found.append("clocks called fine, and nobody read them")
    return found


def _promises(document: Document) -> list[str]:
    wall, step = document["wall"], document["step"]["ms"]
    promise = SAVES.search(wall["sentence"])
    found = []
    for one in document["prescriptions"]:
        low = one["step_ms"]["low"]
        if low is not None and not 0 < low <= 1.001 * step:
            found.append(f"{one['fixes']}: the step at best {low} of {step}")
        if low is not None and promise and one["moves"] == [wall["cause"]]:
            promised = float(promise[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[promise[2]]
            if step - low > 1.06 * promised + 2e-3:
                found.append(f"{one['fixes']} saves {step - low}, promised {promised}")
    return found
