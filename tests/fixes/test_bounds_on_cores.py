"""What a fix does at best to a job of the CPU: no real run is faster, and the words tell the same figure."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from dataflow_observed import facts_with_flow
from findwall.causes.compute import slow_kernels
from findwall.examine.traced_document import diagnose_device
from findwall.facts.best_changes import WARMER_AT_MOST, at_most, best_step, gone
from findwall.facts.facts import Facts, of_class
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.predict import predict
from findwall.model.events import Kind
from findwall.model.machine import Ceilings, CpuUse, Telemetry
from findwall.report.fix_phrases import basis
from findwall.units import ms
from fixes.recorded_steps import looked_up, sorted_heads
from sketch import Drawn, facts_of, hosts_own, sketch
from speaking import in_words

FIXES = all_fixes()
PRODUCT = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000])  # 2 GFLOP: 0.5 ms at the ceiling
SUM = Drawn("", "aten::add").given([1000, 1000], [1000, 1000])
CORES = Ceilings("Some CPU, 2 cores", "measured", "here", {"fp32": 4e12}, bandwidth=1e11)
LOADER = (Kind.ANNOTATION, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
SAVES = re.compile(r"saves (?:up to )?([\d.]+) ms")


def on_cores(host: str, device: str, own_busy: float = 1.0, threads: int | None = 1) -> Facts:
    """A millisecond a letter: p and P multiply, s and S add up, d loads; blank is Python's own time."""
    drawn = {"p": PRODUCT, "s": SUM}
    steps = "|".ljust(len(host)) * 3
    timeline = sketch(host * 3, device * 3, steps, kernels=drawn, host={"d": LOADER}, device="")
    cpu = CpuUse(cores=2, own_busy=own_busy, others_busy=0.0, threads=threads)
    measured = {"device_kind": "cpu", "telemetry": Telemetry(cpu=cpu)}
    return facts_of(hosts_own(timeline), ceilings=CORES, **measured)


def at_best(facts: Facts, name: str) -> float:
    outcome = FIXES[name].advise(facts)
    assert isinstance(outcome, Use)
    return ms(step_at_best(FIXES[name], outcome, facts))


def promised(sentence: str) -> float:
    found = SAVES.search(sentence)
    assert found is not None, sentence
    return float(found[1])


def test_more_threads_divide_every_op_and_the_verdict_says_what_that_saves() -> None:
    """Python and the like keep cores busy too: what counts is that the ops have one thread of two."""
    facts = on_cores("oooooooo  ", "pPpPsS    ")
    best, work = at_best(facts, "more-threads"), ms(facts.reading.likely.busy)
    assert best == pytest.approx(ms(facts.step) - work / 2, rel=1e-3)
    assert "keep 1.3 of 2 cores busy" in in_words(slow_kernels.CAUSE, facts)
    assert promised(in_words(slow_kernels.CAUSE, facts)) == pytest.approx(ms(facts.step) - best, abs=0.01)


def test_threads_that_nobody_counted_are_as_few_as_may_be() -> None:
    counted, not_counted = (on_cores("oooooooo  ", "pPpPsS    ", threads=count) for count in (1, None))
    assert at_best(not_counted, "more-threads") == at_best(counted, "more-threads")


def test_ops_that_have_all_threads_need_no_more_though_cores_are_idle() -> None:
    facts = on_cores("oooooooo  ", "pPpPsS    ", threads=2)
    told = FIXES["more-threads"].advise(facts)
    assert isinstance(told, NoUse) and in_words(told) == "the ops may use 2 threads already, for 2 cores"
    assert "set_num_threads" not in in_words(slow_kernels.CAUSE, facts)
    own = FIXES["custom-kernels"].advise(facts)
    assert isinstance(own, Use) and " of 2 cores" not in in_words(own) and not own.after_others


def test_workers_of_a_cpu_job_are_predicted_from_no_curve_of_a_gpu() -> None:
    facts = on_cores("ddoooooooo", "  pPpPpPsS")
    found = diagnose_device(facts.run, [facts]).prescriptions
    workers = next(one for one in found if one.fixes == ["loader-workers"])
    assert workers.step_ms.mid is not None and workers.basis == "replay"
    assert "H200" not in basis([workers]) and "replaying the trace" in basis([workers])


def test_what_a_compiler_gives_on_cores_no_curve_of_a_gpu_tells() -> None:
    """Of small CPU jobs it took between a fifth and nearly three times the time."""
    facts = on_cores("oooooooooo", "pPpPpPpPpP")
    told = FIXES["torch-compile"].advise(facts)
    assert isinstance(told, Use) and predict(facts, {"torch-compile": told}) is None


@pytest.mark.parametrize(("cores", "gains"), [(2, False), (16, True)])
def test_workers_beside_ops_that_keep_the_cores_busy_gain_nothing(cores: int, gains: bool) -> None:
    """Core seconds of a step and of its batches, over all cores: of 10 ms six are the loader's on one core,
    the rest is on both."""
    facts = on_cores("ddddddoooo", "      pPpP", threads=2)
    cpu = CpuUse(cores, others_busy=0.0, own_busy=1.4, threads=2, loading_busy=1.0, loading_own=1.0)
    facts = replace(facts, rank=replace(facts.rank, telemetry=Telemetry(cpu=cpu), loader_workers=0))
    told = FIXES["loader-workers"].advise(facts)
    assert isinstance(told, Use) == gains
    found = diagnose_device(facts.run, [facts])
    assert found.wall.cause == "loader-starved"
    assert ("loader-workers" in [one.fixes[0] for one in found.prescriptions]) == gains
    assert found.wall.advises == ["loader-workers" if gains else "lighter-samples"]
    if gains:
        assert at_best(facts, "loader-workers") == pytest.approx(4.0, rel=0.02)
    else:
        assert in_words(told).startswith("a step and its batches share 2 cores, which with workers takes 9.9")


def test_what_stays_may_run_faster_once_the_rest_is_gone() -> None:
    facts = on_cores("oooooooo  ", "pPpPsS    ")
    atoms = np.flatnonzero(of_class(facts, "matmul"))
    left = best_step(facts, gone(facts, atoms), ("slow-kernels",))
    rest = facts.step - facts.own[atoms].sum()
    assert left < rest and left > (1 - WARMER_AT_MOST) * rest
    assert best_step(facts, at_most(facts, atoms, 0.5), ("slow-kernels",)) == pytest.approx(
        facts.step - facts.own[atoms].sum() / 2, rel=1e-3
    )


@pytest.mark.parametrize("own_busy", [1.0, 1.9])  # one core is idle, or none is
def test_a_kernel_of_ones_own_saves_what_its_op_takes_beyond_the_ceiling(own_busy: float) -> None:
    facts = on_cores("oooooooo  ", "pPpPsS    ", own_busy)
    told = FIXES["custom-kernels"].advise(facts)
    assert isinstance(told, Use) and ("on 1 of 2 cores" in in_words(told)) is (own_busy == 1.0)
    taken = re.search(r"it takes ([\d.]+) ms per step and reaches (\d+) %", in_words(told))
    assert taken is not None
    saved = float(taken[1]) * (1 - float(taken[2]) / 100)
    assert at_best(facts, "custom-kernels") == pytest.approx(ms(facts.step) - saved, rel=0.01)


def measured(facts: Facts) -> Facts:
    return replace(facts, ceilings=CORES)


@pytest.mark.parametrize(
    ("name", "facts", "near_miss"),
    [
        ("topk", lambda: measured(sorted_heads()), lambda: measured(sorted_heads(512))),
        ("sparse-embedding", lambda: looked_up(20_000), lambda: looked_up(32)),
    ],
)
def test_a_rewrite_whose_speed_on_cores_nobody_measured_has_its_bound_alone(
    name: str, facts: Callable[[], Facts], near_miss: Callable[[], Facts]
) -> None:
    outcome = FIXES[name].advise(facts())
    assert isinstance(outcome, Use) and predict(facts(), {name: outcome}) is None
    assert ms(step_at_best(FIXES[name], outcome, facts())) < 0.9 * ms(facts().step)
    assert not isinstance(FIXES[name].advise(near_miss()), Use)


def test_a_compiler_may_leave_out_what_a_graph_computes_twice(tmp_path: Path) -> None:
    """And of a table's passes over memory it works out the rows that are picked: one bound holds both."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    table = torch.nn.Parameter(torch.randn(40_000, 32))
    optimizer = torch.optim.SGD([table], 1e-3)
    rows = torch.randint(40_000, (2, 50))

    def step() -> None:
        first, second = (functional.embedding(one, functional.normalize(table, dim=-1)) for one in rows)
        (first * second).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    facts = facts_with_flow(step, tmp_path)
    assert facts.unneeded[0].kind == "dropped"
    told = FIXES["torch-compile"].advise(facts)
    needless = facts.own[facts.unneeded[0].atoms].sum()
    assert isinstance(told, Use)
    assert step_at_best(FIXES["torch-compile"], told, facts) <= facts.step - 0.9 * needless
