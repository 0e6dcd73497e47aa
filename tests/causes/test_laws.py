"""Laws of the verdict: a roof means near the roof, and the unknown weighs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import drawn
from findwall.causes.compute import at_the_roof, slow_kernels
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.machine.hardware import table_ceilings
from findwall.model.catalogue import NEAR, ROOFS, SMALL_PART, WORTH_IT
from findwall.model.events import Kind
from findwall.model.machine import Ceilings
from findwall.work.work_facts import TOO_SMALL_NS
from sketch import DRAWN_KERNELS, H200, KERNELS, Drawn, facts_of, hosts_own, sketch
from speaking import in_words

# One kernel of each class that is held against the memory, of an amount of work to be drawn.
PASSES = {
    "norm": KERNELS["w"],
    "softmax": DRAWN_KERNELS["s"],
    "reduce": DRAWN_KERNELS["r"],
    "optimizer": DRAWN_KERNELS["o"],
    "matmul": KERNELS["m"],
    "attention": DRAWN_KERNELS["a"],
    "pointwise": KERNELS["k"],
    "copy": KERNELS["l"],
}
CORES = Ceilings("cores", "measured", flops={"fp32": 1e12}, bandwidth=1e11)


def one_kernel(drawn: Drawn, us: float, cpu: str = "o   o   o   ") -> Facts:
    """Three steps of one kernel each, a character long."""
    return facts_of(sketch(cpu, "k   K   k   ", "|   |   |   ", {"k": drawn}, us=us))


def work(name: str, rows: int) -> Drawn:
    one = PASSES[name]
    dims = {
        "matmul": ([rows, 1024], [1024, 1024]),
        "attention": ([1, rows, 2, 64],) * 3,
    }.get(name, ([rows, 1024],) * max(len(one.dims), 1))
    return one.given(*dims)


@pytest.mark.parametrize("name", PASSES)
def test_a_long_kernel_of_little_work_is_slow(name: str) -> None:
    facts = one_kernel(work(name, 2), us=3300)
    assert all(facts.spent_ms(roof) == 0 for roof in ROOFS)
    if name in ("norm", "softmax", "reduce", "matmul", "attention"):
        assert facts.spent_ms("slow-kernels") == pytest.approx(3.3)
        assert facts.local()["slow-kernels"] > 3.2e6


@pytest.mark.parametrize("name", ["norm", "softmax", "reduce", "matmul", "attention"])
def test_a_short_one_is_too_small(name: str) -> None:
    facts = one_kernel(work(name, 2), us=5)
    index = facts.atoms.index[facts.atoms.of("launch-bound")]
    assert len(index) == len(facts.atoms.index)


def test_a_memset_of_nothing_much_is_at_no_roof() -> None:
    facts = one_kernel(Drawn("Memset (Device)", "aten::zero_", kind=Kind.MEMSET, nbytes=512), us=1000)
    assert facts.spent_ms("memory-roof") == 0


@drawn(67)
@given(name=st.sampled_from(sorted(PASSES)), rows=st.integers(1, 2**20), us=st.integers(1, 4000))
def test_what_is_at_a_roof_is_near_it_and_what_is_too_small_is_short(name: str, rows: int, us: int) -> None:
    facts = one_kernel(work(name, rows), us)
    for roof in ROOFS:
        atoms = facts.atoms.of(roof)
        assert (facts.atoms.floor[atoms] >= NEAR * facts.atoms.own[atoms] * (1 - 1e-9)).all()
    small = facts.atoms.index[facts.atoms.of("launch-bound")]
    assert (facts.kernels.duration[small] <= TOO_SMALL_NS).all()


@pytest.mark.parametrize("ceilings", [CORES, None], ids=["measured", "nobody measured"])
def test_on_cores_too(ceilings: Ceilings | None) -> None:
    """Drawing one of two numbers takes milliseconds for any reason but the memory's speed."""
    drawn = Drawn("multinomial", "aten::multinomial").given([1, 2])
    timeline = sketch("oo  oo  oo  ", "kK  kK  kK  ", "|   |   |   ", {"k": drawn}, device="", us=3300)
    facts = facts_of(hosts_own(timeline), ceilings=ceilings, device_kind="cpu")
    assert all(facts.spent_ms(roof) == 0 for roof in ROOFS)
    assert decide(facts).cause not in ROOFS


def mixed(known: int, unknown: int, wait: int = 0) -> Facts:
    """Steps of so many ms of a slow norm, of kernels nobody knows, and of a host that waits."""
    slow = KERNELS["w"].given([2, 8])
    gpu = "k" * known + "u" * unknown + " " * (wait + 1)
    cpu = "oo" + " " * (known + unknown + wait - 1)
    return facts_of(sketch(cpu * 3, gpu * 3, ("|" + " " * (len(gpu) - 1)) * 3, {"k": slow}))


@pytest.mark.parametrize(("known", "unknown"), [(5, 1), (5, 4), (3, 3), (3, 4), (1, 6)])
def test_the_unknown_weighs(known: int, unknown: int) -> None:
    facts = mixed(known, unknown)
    gain = facts.recoverable_ms("slow-kernels") or 0.0
    assert (decide(facts).cause is None) == (facts.unknown() / 1e6 > gain)


@pytest.mark.parametrize("unknown", [0, 1, 2, 6])
def test_a_roof_is_named_only_where_nearly_all_is_known(unknown: int) -> None:
    gpu = "mmMMmmMMmmMM"[: 12 - unknown] + "u" * unknown
    large = KERNELS["m"].given([8192, 8192], [8192, 2 * 5632], dtype="c10::BFloat16")
    facts = facts_of(sketch("o" * 36, gpu * 3, ("|" + " " * 11) * 3, {"m": large}))
    share = facts.unknown() / facts.step
    assert np.isclose(share, unknown / 12, atol=0.05)
    assert (decide(facts).cause == "at-the-roof") == (share <= SMALL_PART)


@pytest.mark.parametrize("slow", [0, 1, 2, 3, 4, 6, 8])
def test_a_tenth_of_what_stands_at_the_roof_is_a_remark_and_no_wall(slow: int) -> None:
    gpu = "mmMM" * 10 + "k" * slow
    large = KERNELS["m"].given([8192, 8192], [8192, 2 * 5632], dtype="c10::BFloat16")
    kernels = {"m": large, "k": KERNELS["w"].given([2, 8])}
    facts = facts_of(sketch("o" * 3 * len(gpu), gpu * 3, ("|" + " " * (len(gpu) - 1)) * 3, kernels))
    gain = facts.recoverable_ms("slow-kernels") or 0.0
    least = max(WORTH_IT * facts.step / 1e6, SMALL_PART * facts.spent_ms("at-the-roof"))
    verdict = decide(facts)
    assert verdict.cause == ("slow-kernels" if gain >= least else "at-the-roof")
    named = "slow-kernels" if gain >= WORTH_IT * facts.step / 1e6 else "no other cause"
    if verdict.cause == "at-the-roof":
        assert named in in_words(at_the_roof.CAUSE, facts)
        assert verdict.next == ("slow-kernels" if named == "slow-kernels" else None)


# Copies that compute nothing: by a kernel, and by the device's own memcpy.
COPIES = {
    "copy_": KERNELS["l"],
    "memcpy": Drawn("Memcpy DtoD (Device -> Device)", "aten::cat", kind=Kind.MEMCPY),
}
BANDWIDTH = table_ceilings(H200).bandwidth or 0.0


@drawn(30)
@given(name=st.sampled_from(sorted(COPIES)), rows=st.integers(1024, 2**20), speed=st.floats(0.3, 1.1))
def test_a_copy_is_at_no_roof_at_any_speed(name: str, rows: int, speed: float) -> None:
    """Whether it must be is not known from how fast it is: all of it may go."""
    one, copied = COPIES[name].given([rows, 1024], [rows, 1024]), 4 * 1024 * rows
    us = int(2 * copied / BANDWIDTH * 1e6 / speed) + 1
    facts = one_kernel(replace(one, nbytes=copied) if one.kind == Kind.MEMCPY else one, us)
    assert facts.spent_ms("memory-roof") == 0
    assert facts.local()["layout-copies"] == pytest.approx(us * 1e3, rel=0.01)


def test_a_copy_keeps_what_a_chain_writes_through_it() -> None:
    """A product made contiguous: without the copy, the kernel before it writes the result itself."""
    within = facts_of(sketch("oo  " * 3, "kl  " * 3, "|   " * 3)).recoverable_ms("layout-copies")
    alone = facts_of(sketch("oo  " * 3, "ml  " * 3, "|   " * 3)).recoverable_ms("layout-copies")
    assert 0 < (within or 0) < 0.9 * (alone or 0)


SELECTIONS = {
    "median": "void at::native::(anonymous namespace)::gatherMedian<float, unsigned int, 2>()",
    "kthvalue": "void at::native::(anonymous namespace)::gatherKthValue<float, unsigned int, 2>()",
    "topk": "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>()",
    "mode": "void at::native::compute_mode<float, 2048>()",
    "sort": "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, float, long>()",
    "bincount": "void at::native::kernelHistogram1D<float, long, long, 1, 2, -1>()",
    "cumsum": "void at::native::tensor_kernel_scan_outer_dim<float, unsigned int, std::plus<float> >()",
}


@pytest.mark.parametrize("op", SELECTIONS)
def test_ordering_and_selecting_far_below_the_memory_is_slow(op: str) -> None:
    facts = one_kernel(Drawn(SELECTIONS[op], f"aten::{op}").given([9, 256, 256]), us=3300)
    assert facts.spent_ms("slow-kernels") == pytest.approx(3.3)


def test_few_values_are_ordered_by_comparing_whole_tensors() -> None:
    median = Drawn(SELECTIONS["median"], "aten::median").given([9])
    assert "the 9 values" in in_words(slow_kernels.CAUSE, one_kernel(median, us=3300))
    assert "fewer values" in in_words(slow_kernels.CAUSE, one_kernel(median.given([999]), us=3300))
