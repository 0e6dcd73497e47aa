"""The answer is about what happened, not about how its file is written."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

import findwall
from captures import FIXTURES, SHARED
from disguise import Disguise, drop_flows, load, rename_noise, renumber, save, shift, shuffle, without_noise

HOUR = 3_600_000_000_000
DISGUISES: dict[str, Disguise] = {
    "shuffled": shuffle,
    "renumbered": renumber,
    "three hours later": shift(3 * HOUR + 17),
    "a fraction of a microsecond later": shift(137),
    "without arrows": drop_flows,
    "other template noise": rename_noise,
}
RECORDED = [
    *sorted(FIXTURES.glob("*.json.gz")),
    *sorted((FIXTURES / "jobs").glob("*.json.gz"), key=lambda path: path.stat().st_size)[:6],
]
BESIDE = [
    SHARED / "zoo" / "pointwise_chain.json.gz",
    SHARED / "zoo" / "gpt2_small_batch8.json.gz",
    SHARED / "traces" / "mi300x_compiled_triton.json.gz",
    SHARED / "traces" / "a100_alexnet_cuda_sync.json.gz",
    SHARED / "traces" / "mi210_no_cpu_events.json.gz",
]


def answer(path: Path) -> dict[str, Any]:
    """What must not change: the document without paths, and without numbers that name a stream."""
    document: dict[str, Any] = msgspec.to_builtins(findwall.read(path))
    del document["source"]["paths"]
    del document["quality"]["events"], document["quality"]["ignored"]  # these count arrows too
    for device in document["timeline"]["per_device"]:
        for stream in device["streams"]:
            del stream["stream"]
        device["streams"].sort(key=lambda stream: (-stream["busy_ms"], stream["events"]))
    for row, name in zip(
        document["kernels"], without_noise(k["name"] for k in document["kernels"]), strict=True
    ):
        row["name"] = name
    for row in document["budget"]:
        for shown in row["evidence"]:
            shown["text"] = shown["kernel"] = None  # may quote a kernel's name
            if shown["claim"] is not None:
                shown["claim"]["names"] = None
    return document


def differences(one: Any, other: Any, at: str = "") -> list[str]:
    """Where two documents differ; numbers may by a part in a million."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [found for key in keys for found in differences(one.get(key), other.get(key), f"{at}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for index, pair in pairs for found in differences(*pair, f"{at}[{index}]")]
    if (
        isinstance(one, float)
        and isinstance(other, float)
        and math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    ):
        return []
    return [] if one == other else [f"{at}: {one!r} -> {other!r}"]


def check(path: Path, disguises: dict[str, Disguise], folder: Path) -> list[str]:
    """How the answer differs under each of them."""
    plain, found = answer(path), []
    for name, disguise in disguises.items():
        other = load(path)  # faster than a copy
        disguise(other, random.Random(path.name))
        found += differences(plain, answer(save(other, folder / f"{len(found)}.renamed")), name)
    return found


def together(*disguises: Disguise) -> Disguise:
    """To read a trace is what takes the time: all at once, and one by one only to tell which it was."""

    def made(trace: dict[str, Any], chance: random.Random) -> None:
        for disguise in disguises:
            disguise(trace, chance)

    return made


# Alone: a trace that has no arrows does not show what another disguise does to them.
TOGETHER = {
    "all that keep arrows": together(*(one for one in DISGUISES.values() if one is not drop_flows)),
    "without arrows": drop_flows,
}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_the_answer_stays_the_same(path: Path, tmp_path: Path) -> None:
    if check(path, TOGETHER, tmp_path):
        assert check(path, DISGUISES, tmp_path) == []
        pytest.fail("\n".join(check(path, TOGETHER, tmp_path)))


@pytest.mark.parametrize("path", BESIDE, ids=lambda path: path.name.partition(".")[0])
def test_all_disguises_at_once(path: Path, shared: Path, tmp_path: Path) -> None:
    assert check(path, {"all": together(*DISGUISES.values())}, tmp_path) == []
