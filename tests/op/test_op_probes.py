"""Ops that people ask about, as probes: which ones, what they run, and what their figures say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.cli.op import parse
from findwall.machine.hardware import table_ceilings
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL
from findwall.model.probes import Probes
from findwall.op.op_on_paper import Paper, on_paper
from findwall.op.op_probes import (
    PIECE,
    Probed,
    better_way,
    gains_nothing,
    is_contradicted,
    not_probed,
    plan,
    read,
    state_of,
)

SMALL = [
    "matmul 16x32x24 bf16",
    "matmul 16x31x24 bf16",
    "matmul 16x32x24 fp32",
    "matmul 16x32x24 tf32",
    "matmul 16x32x24 fp64",
    "conv 2x8x6x6x8x3x1 fp32",
    "conv 2x8x6x6x8x3x3 tf32",
    "attention 2x2x8x16 bf16",
    "attention 2x2x1x16x8 fp32",
    "pointwise 4x5x6 bf16",
    "pointwise 64 fp32 2",
    "pointwise 64 fp16 3",
    "norm 8x32 bf16",
    "norm 8x32 fp64",
    "optimizer 1000 fp32",
    "optimizer 1000 bf16",
]


def paper_of(words: str) -> Paper:
    op, shape, number_format, *reads = words.split()
    return on_paper(
        parse(op, shape, number_format, int(reads[0]) if reads else None), table_ceilings("NVIDIA H200")
    )


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize("words", SMALL)
def test_what_is_asked_can_be_run(words: str) -> None:
    """On the cores, with the numbers and sizes that were asked for."""
    torch = pytest.importorskip("torch")
    from findwall.probe.measuring import Target, run_probes

    ways = plan(paper_of(words))
    found = run_probes(Target(torch, on_gpu=False), list(ways.values()))
    assert not found.skipped
    probed = read(ways, found)
    assert probed.why_not == ""
    assert set(probed.seconds) == set(ways)
    assert min(probed.seconds.values()) > 0


@pytest.mark.parametrize(
    ("words", "kind", "shape"),
    [
        ("matmul 16x32x24 bf16", "bfloat16", (16, 24)),
        ("matmul 16x32x24 tf32", "float32", (16, 24)),
        ("conv 2x8x6x6x4x3x1 fp16", "float16", (2, 4, 6, 6)),
        ("attention 2x2x1x16x8 bf16", "bfloat16", (2, 2, 1, 16)),
        ("pointwise 4x5x6 bf16 3", "bfloat16", (4, 5, 6)),
        ("norm 8x32 fp64", "float64", (8, 32)),
    ],
)
def test_the_result_is_the_one_asked_for(words: str, kind: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    from findwall.probe.probe_ops import Maker

    result = Maker(torch, torch.device("cpu")).work(plan(paper_of(words))["asked"])()
    first = result[0] if isinstance(result, tuple) else result
    assert (first.dtype, tuple(first.shape)) == (getattr(torch, kind), shape)


@pytest.mark.parametrize(
    ("words", "ways"),
    [
        ("matmul 4096x4096x4096 bf16", {"asked": "as-is"}),
        ("matmul 4096x1023x4096 bf16", {"asked": "as-is", "padded": "as-is"}),
        ("matmul 4096x4096x4096 fp32", {"asked": "as-is", "fast": "tf32"}),
        ("matmul 4096x4096x4096 tf32", {"asked": "tf32"}),
        ("conv 32x64x56x56x64x3x3 bf16", {"asked": "as-is", "channels-last": "nhwc"}),
        ("conv 32x64x56x56x64x3x3 tf32", {"asked": "tf32", "channels-last": "tf32+nhwc"}),
        ("attention 8x16x2048x128 fp32", {"asked": "sdpa", "fast": "tf32+sdpa"}),
        ("norm 8192x4096 tf32", {"asked": "as-is"}),
        ("optimizer 1B tf32", {"asked": "fused"}),
    ],
)
def test_ways_that_could_be_faster_are_run_too(words: str, ways: dict[str, str]) -> None:
    assert {way: probe.variant for way, probe in plan(paper_of(words)).items()} == ways


def test_padded_sizes_are_run_beside_the_odd_ones() -> None:
    ways = plan(paper_of("matmul 8192x1023x4093 fp16"))
    assert ways["asked"].inputs.dims == [[8192, 1023], [1023, 4093]]
    assert ways["padded"].inputs.dims == [[8192, 1024], [1024, 4096]]


@given(st.integers(1, 10**10))
def test_every_parameter_is_updated(count: int) -> None:
    shapes = plan(paper_of(f"optimizer {count} fp32"))["asked"].inputs.dims[0]
    sizes = [one[0] for one in shapes if isinstance(one, list)]
    assert sum(sizes) == count
    assert max(sizes) <= PIECE


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("decode 8x7B bf16", "whole model"),
        ("matmul 64x64x64 fp8", "fp8 operands come with scales"),
        ("pointwise 64 int8", "int8 operands"),
        ("pointwise 64 fp32 4", "no single op reads 4 tensors"),
        ("conv 2x8x6x6x8x2x3 bf16", "same padding of an even filter"),
        ("pointwise 1e15 fp32", "no device holds its tensors"),
        ("matmul 400000x400000x400000 fp32", "one run takes"),
    ],
)
def test_what_is_no_single_op_is_not_run(words: str, why: str) -> None:
    assert why in not_probed(paper_of(words))


def test_what_the_device_refuses_is_told_in_its_first_words() -> None:
    ways = plan(paper_of("matmul 64x64x64 bf16"))
    found = Probes(
        "x", "1", "2", "today", skipped={ways["asked"].key: "CUDA out of memory. Tried to allocate 4 GiB."}
    )
    assert read(ways, found) == Probed(why_not="CUDA out of memory")


# -- what the figures say ----------------------------------------------------------------------------


@given(st.floats(0.01, 100))
def test_far_from_the_floor_contradicts_the_roof(ratio: float) -> None:
    paper = paper_of("matmul 4096x4096x4096 bf16")
    probed = Probed({"asked": ratio * paper.floor_s})
    assert is_contradicted(paper, probed) == (probed.here_s is not None and ratio > 1 / MAJORITY_SHARE)


@given(st.floats(0.5, 20), st.floats(0.05, 2), st.sampled_from(["padded", "fast"]))
def test_a_way_either_gains_or_does_not(ratio: float, then: float, way: str) -> None:
    """And where it is the paper's own advice, its cause stands or falls with that."""
    paper = paper_of("matmul 8192x1023x4093 bf16" if way == "padded" else "matmul 8192x4096x4096 fp32")
    here = ratio * paper.floor_s
    probed = Probed({"asked": here, way: then * here})  # type: ignore[dict-item]
    gains = probed.seconds[way] < NEARLY_ALL * here  # type: ignore[index]
    assert better_way(paper, probed) == (way if gains else None)
    assert gains_nothing(paper, probed) == (None if gains else way)
    assert is_contradicted(paper, probed) == (not gains)


def test_another_format_is_no_advice_for_an_op_at_the_memorys_roof() -> None:
    paper = paper_of("matmul 8x4096x4096 fp32")
    assert paper.cause == "memory-roof"
    near = Probed({"asked": 1.3 * paper.floor_s, "fast": paper.floor_s})
    slow = Probed({"asked": 5 * paper.floor_s, "fast": paper.floor_s})
    assert better_way(paper, near) is None
    assert better_way(paper, slow) == "fast"


def test_the_shortest_kernels_are_not_slow() -> None:
    paper = paper_of("pointwise 100 fp32")
    assert [state_of(paper, us * 1e-6) for us in (1, 3, 8, 40)] == ["near", "near", "short", "slow"]


def test_what_was_not_run_contradicts_nothing() -> None:
    paper = paper_of("matmul 8192x1023x4093 bf16")
    assert not is_contradicted(paper, Probed())
    assert better_way(paper, Probed()) is gains_nothing(paper, Probed()) is None
