"""Ops on paper: figures that can be checked by hand, and laws that hold for every op, size and GPU."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.errors import InputError
from findwall.machine.gpu_table import GPUS
from findwall.machine.hardware import table_ceilings
from findwall.model.machine import Ceilings
from findwall.op.op_on_paper import (
    FORMATS,
    LEAST_KERNEL_S,
    OPS,
    Paper,
    Question,
    on_paper,
    unit_of,
    work_of,
)

H200 = table_ceilings("NVIDIA H200")
# Round figures, so that times can be checked in the head: the ridge is at 100 FLOP/byte.
ROUND = Ceilings(
    device="round", source="table", flops=dict.fromkeys(FORMATS, 1e14) | {"fp32": 1e13}, bandwidth=1e12
)
SIZES: dict[str, tuple[int, ...]] = {
    "matmul": (512, 4096, 4096),
    "conv": (32, 64, 56, 56, 128, 3, 3),
    "attention": (8, 16, 2048, 128),
    "pointwise": (8192, 4096),
    "norm": (8192, 4096),
    "optimizer": (10**9,),
    "decode": (8, 7 * 10**9),
}


def paper(op: str, dims: tuple[int, ...], number_format: str = "bf16", ceilings: Ceilings = H200) -> Paper:
    return on_paper(Question(op, dims, number_format), ceilings)


def with_rows(question: Question, count: int) -> Question:
    grows = OPS[question.op].grows
    dims = list(question.dims) if grows is not None else [0]
    dims[grows or 0] = count
    return msgspec.structs.replace(question, dims=tuple(dims))


# -- figures by hand -------------------------------------------------------------------------------------


def test_a_large_matmul_on_an_h200_is_compute() -> None:
    found = paper("matmul", (4096, 4096, 4096))
    assert found.flops == 2 * 4096**3  # 137.4 GFLOP
    assert found.nbytes == 3 * 4096 * 4096 * 2
    # 0.8 of 989.4 TFLOP/s and 0.9 of 4.8 TB/s are achievable.
    assert found.achievable.ridge == pytest.approx(0.8 * 989.4 / (0.9 * 4.8))
    assert found.spec is not None and found.spec.ridge == pytest.approx(989.4 / 4.8)
    assert found.floor_s == pytest.approx(173.6e-6, rel=1e-3)
    assert found.spec.compute_s == pytest.approx(138.9e-6, rel=1e-3)
    assert (found.wall, found.cause) == ("compute", "at-the-roof")


def test_a_matmul_of_few_rows_reads_its_weights() -> None:
    found = paper("matmul", (8, 4096, 4096))
    assert found.nbytes == 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096)
    assert found.floor_s == pytest.approx(found.nbytes / 4.32e12)
    assert (found.wall, found.cause) == ("bandwidth", "memory-roof")


@pytest.mark.parametrize(
    ("op", "dims", "number_format", "flops", "nbytes"),
    [
        ("matmul", (2, 3, 5), "fp32", 2 * 30, 4 * (6 + 15 + 10)),
        ("matmul", (2, 3, 5), "fp8", 2 * 30, 6 + 15 + 2 * 10),  # the result has 16 bits
        ("matmul", (2, 3, 5), "int8", 2 * 30, 6 + 15 + 4 * 10),  # and 32 of integers
        ("conv", (2, 8, 10, 10, 16, 3, 3), "bf16", 2 * 3200 * 72, 2 * (1600 + 1152 + 3200)),
        ("conv", (1, 8, 10, 10, 16, 2, 2), "bf16", 2 * 1600 * 32, 2 * (800 + 512 + 1600)),  # same padding
        ("attention", (1, 2, 3, 4), "fp32", 4 * 2 * 9 * 4, 4 * (4 * 24 + 6)),
        ("attention", (1, 2, 3, 4, 5), "fp32", 4 * 2 * 15 * 4, 4 * (2 * 24 + 2 * 40 + 6)),
        ("pointwise", (3, 7), "bf16", 2 * 21, 2 * 2 * 21),
        ("norm", (3, 7), "bf16", 8 * 21, 2 * 2 * 21),
        ("optimizer", (100,), "fp32", 6000, 28 * 100),
        ("optimizer", (100,), "bf16", 6000, 14 * 100),
        ("decode", (8, 1000), "bf16", 16_000, 2000),
    ],
)
def test_work_by_hand(
    op: str, dims: tuple[int, ...], number_format: str, flops: float, nbytes: float
) -> None:
    work = work_of(Question(op, dims, number_format))
    assert (work.flops, work.nbytes) == (flops, nbytes)


def test_a_pointwise_op_reads_as_many_tensors_as_it_is_told() -> None:
    for reads in (1, 2, 5):
        work = work_of(Question("pointwise", (1000,), "fp32", reads))
        assert (work.read_bytes, work.write_bytes) == (reads * 4000, 4000)


def test_decoding_is_compute_from_the_ridge_on() -> None:
    """2 FLOPs a weight and row against 2 bytes a weight: as many rows as the ridge has FLOPs a byte."""
    found = paper("decode", (1, 7 * 10**9), ceilings=ROUND)
    assert [(region.first, region.wall) for region in found.regions] == [(1, "bandwidth"), (101, "compute")]


def test_vector_work_is_bound_by_the_vector_units() -> None:
    found = paper("norm", (8192, 4096), ceilings=ROUND)
    assert (found.math, found.achievable.ridge) == ("fp32", 10.0)
    assert paper("norm", (8192, 4096), "fp64", ROUND).math == "fp64"


def test_what_is_smaller_than_any_kernel_is_launch_bound() -> None:
    found = paper("pointwise", (1000,))
    assert (found.wall, found.cause) == ("overhead", "launch-bound")
    assert found.floor_s == LEAST_KERNEL_S == 2.5e-6
    assert [region.wall for region in found.regions] == ["overhead", "bandwidth"]


@pytest.mark.parametrize(
    ("op", "dims", "padded"),
    [
        ("matmul", (32768, 1023, 4093), (32768, 1024, 4096)),
        ("matmul", (8191, 768, 50257), (8191, 768, 50304)),  # the number of rows does not matter
        ("matmul", (4096, 4095, 1), (4096, 4096, 1)),
        ("matmul", (32768, 4096, 401), (32768, 4096, 408)),
        ("conv", (32, 63, 57, 57, 127, 3, 3), (32, 64, 57, 57, 128, 3, 3)),
    ],
)
def test_odd_sixteen_bit_shapes_are_misaligned(
    op: str, dims: tuple[int, ...], padded: tuple[int, ...]
) -> None:
    found = paper(op, dims)
    assert (found.wall, found.cause) == ("compute", "misaligned-shapes")
    assert found.aligned is not None and found.aligned.dims == padded
    aligned = on_paper(found.aligned, H200)
    assert aligned.aligned is None
    assert found.regions == aligned.regions
    assert paper(op, dims, "tf32").aligned is None


@pytest.mark.parametrize(
    ("op", "dims"),
    [("matmul", (4096, 4096, 1)), ("matmul", (1, 4096, 4096)), ("conv", (256, 3, 224, 224, 64, 7, 7))],
)
def test_vectors_and_colours_are_not_misaligned(op: str, dims: tuple[int, ...]) -> None:
    assert paper(op, dims).aligned is None


def test_fp32_products_that_tensor_cores_could_do_say_so() -> None:
    assert paper("matmul", (4096, 4096, 4096), "fp32").cause == "fast-path-off"
    assert paper("matmul", (4096, 4096, 4096), "tf32").cause == "at-the-roof"
    assert paper("matmul", (1, 4096, 4096), "fp32").cause == "memory-roof"
    rtx = table_ceilings("NVIDIA GeForce RTX 4090")  # its TF32 is hardly faster, its bf16 is
    asked = paper("matmul", (4096, 4096, 4096), "fp32", rtx)
    assert (asked.cause, asked.fast) == ("fast-path-off", "bf16")


def test_without_keys_attention_grows_on_both_sides() -> None:
    assert unit_of(Question("attention", (1, 1, 8, 64), "bf16")) == "tokens"
    assert unit_of(Question("attention", (1, 1, 8, 64, 4096), "bf16")) == "queries"
    few_keys = paper("attention", (8, 16, 1, 128, 8))
    assert few_keys.regions[-1].wall == "bandwidth"  # however many queries share eight keys


# -- laws ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(GPUS))
def test_every_op_and_format_on_every_gpu(name: str) -> None:
    """Finite, positive figures, or a refusal that names what is missing."""
    ceilings = table_ceilings(name)
    for op, dims in SIZES.items():
        for number_format in OPS[op].formats:
            try:
                found = paper(op, dims, number_format, ceilings)
            except InputError as error:
                assert number_format not in ceilings.flops and OPS[op].on_matrix_units
                assert number_format in error.message and name in error.message and error.hint
                continue
            here = found.achievable
            figures = [found.flops, found.nbytes, found.intensity, found.floor_s, here.memory_s]
            figures += [one for one in (here.compute_s, here.ridge) if one is not None]
            assert all(math.isfinite(one) and one > 0 for one in figures)
            assert found.spec is not None and found.spec.memory_s < here.memory_s
            assert found.floor_s >= max(here.compute_s or 0.0, here.memory_s, LEAST_KERNEL_S)
            assert found.regions[0].first == 1


def test_ceilings_without_a_bandwidth_are_refused() -> None:
    with pytest.raises(InputError, match="memory bandwidth of bare is unknown"):
        paper("pointwise", (8192,), ceilings=Ceilings(device="bare", flops={"fp32": 1e13}))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    op = draw(st.sampled_from(sorted(OPS)))
    fewest, most = OPS[op].ranks
    largest = 10**10 if op == "optimizer" else 10 ** (10 if op == "decode" else 5)
    count = draw(st.integers(fewest, min(most, 7)))
    sizes = draw(st.lists(st.integers(1, largest), min_size=count, max_size=count))
    return Question(op, tuple(sizes), draw(st.sampled_from(OPS[op].formats)), draw(st.integers(1, 4)))


GPU_NAMES = st.sampled_from(sorted(GPUS))


def answer(question: Question, gpu: str) -> Paper | None:
    try:
        return on_paper(question, table_ceilings(gpu))
    except InputError:
        return None


def bound_of(found: Paper) -> str:
    """The wall by the three times alone."""
    here = found.achievable
    if found.floor_s <= LEAST_KERNEL_S and found.work_s < LEAST_KERNEL_S:
        return "overhead"
    return "compute" if (here.compute_s or 0.0) > here.memory_s else "bandwidth"


@drawn(60)
@given(questions(), GPU_NAMES)
def test_the_wall_changes_where_it_is_said_to(question: Question, gpu: str) -> None:
    found = answer(question, gpu)
    if found is None:
        return
    question = found.aligned or question
    order = ["overhead", "bandwidth", "compute"]
    walls = [region.wall for region in found.regions]
    assert walls == [wall for wall in order if wall in walls]
    for before, region in zip((None, *found.regions), found.regions, strict=False):
        at = answer(with_rows(question, region.first), gpu)
        assert at is not None and bound_of(at) == region.wall
        if before is not None:
            below = answer(with_rows(question, region.first - 1), gpu)
            assert below is not None and bound_of(below) == before.wall
    asked = answer(question, gpu)
    grows = OPS[question.op].grows
    rows = math.prod(question.dims) if grows is None else question.dims[grows]
    last = [region for region in found.regions if region.first <= rows][-1]
    assert asked is not None and bound_of(asked) == last.wall


@drawn(60)
@given(questions(), GPU_NAMES, st.data())
def test_more_of_anything_never_lowers_the_floor(question: Question, gpu: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(question.dims) - 1))
    dims = list(question.dims)
    dims[at] += data.draw(st.integers(1, 1000))
    small, large = answer(question, gpu), answer(msgspec.structs.replace(question, dims=tuple(dims)), gpu)
    if small is None or large is None:
        return
    assert large.floor_s >= small.floor_s
    assert large.flops > small.flops and large.nbytes >= small.nbytes


@drawn(40)
@given(questions(), GPU_NAMES)
def test_the_wall_is_the_side_of_the_ridge(question: Question, gpu: str) -> None:
    found = answer(question, gpu)
    if found is None or found.achievable.ridge is None or found.cause == "misaligned-shapes":
        return
    if found.wall != "overhead" and not math.isclose(found.intensity, found.achievable.ridge):
        assert (found.wall == "compute") == (found.intensity > found.achievable.ridge)
