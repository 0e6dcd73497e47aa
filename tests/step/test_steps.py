"""Steps by their four markers, best first, and on the device's clock."""

from __future__ import annotations

import numpy as np
import pytest

from findwall.model.events import Kind, Timeline
from findwall.step.links import link
from findwall.step.recurring import _smallest_period
from findwall.step.step_bounds import find_steps
from findwall.step.step_facts import Steps
from sketch import sketch

LAYERS = {letter: letter for letter in "ab"}


def found(timeline: Timeline) -> Steps:
    return find_steps(timeline, link(timeline))


def unmarked(cpu: str, gpu: str, **host: tuple[Kind, str]) -> Timeline:
    """A drawing without ProfilerStep ranges."""
    timeline = sketch(cpu=cpu, gpu=gpu, host=host)
    marks = [name.startswith("ProfilerStep") for name in timeline.names]
    keep = [not marks[int(name)] for name in timeline.events.name]
    return Timeline(
        timeline.path,
        timeline.events.take([at for at, kept in enumerate(keep) if kept]),  # type: ignore[arg-type]
        timeline.names,
        timeline.processes,
        timeline.threads,
        timeline.details,
        timeline.header,
        timeline.quality,
    )


def test_a_step_runs_from_its_first_kernel_to_the_next_ones() -> None:
    steps = found(sketch(cpu="o    o    o", gpu="  mmm  mmm  mmm", steps="|    |    |    "))
    assert steps.found_by == "ProfilerStep"
    assert (steps.boundaries / 1e6).tolist() == [2, 7, 12]
    assert steps.count == 2


def test_the_devices_clock_decides() -> None:
    """Three host ranges of a millisecond each, whose kernels take five."""
    steps = found(sketch(cpu="ooo", gpu="mmmmmMMMMMmmmmm", steps="|||"))
    assert (steps.lengths / 1e6).tolist() == [5, 5]


def test_kernels_belong_to_the_step_that_launched_them() -> None:
    steps = found(sketch(cpu="oo  oo  ", gpu="mmmmMMMMmmmmMMMM", steps="|   |   "))
    assert [step for step in steps.of_row.tolist() if step >= 0] == [0, 0, 1, 1]


def test_a_copy_stream_does_not_set_the_boundary() -> None:
    gpu = """
  mmm  mmm  mmm
 ii   ii   ii
"""
    steps = found(sketch(cpu="oo   oo   oo", gpu=gpu, steps="|    |    |    "))
    assert (steps.boundaries / 1e6).tolist() == [2, 7, 12]


def test_steps_without_device_work_are_named() -> None:
    steps = found(sketch(cpu="o         o    o", gpu="mm        mm   mm", steps="|    |    |    |    "))
    assert steps.without_device_work == ("ProfilerStep#1",)


def test_a_single_step_ends_with_its_last_kernel() -> None:
    steps = found(sketch(cpu="  o", gpu="   mmm", steps="|         "))
    assert (steps.boundaries / 1e6).tolist() == [0, 6]
    assert "Only one step" in " ".join(steps.notes)


def test_optimizer_calls_tell_steps_apart() -> None:
    cpu = """
   zz   zz   zz   zz
oo o oo o oo o oo o
"""
    steps = found(unmarked(cpu, "kK k kK k kK k kK k"))
    assert steps.found_by == "optimizer"
    assert (steps.lengths / 1e6).tolist() == [5, 5, 5]


def test_of_several_optimizers_one_counts() -> None:
    cpu = """
 zz  qq  zz  qq  zz  qq
 o   o   o   o   o   o
"""
    steps = found(unmarked(cpu, " k   k   k   k   k   k", q=(Kind.ANNOTATION, "Optimizer.step#SGD.step")))
    assert steps.found_by == "optimizer"
    assert (steps.lengths / 1e6).tolist() == [8, 8]


def test_equal_optimizers_one_after_the_other_end_one_step() -> None:
    cpu = """
    zz zz     zz zz     zz zz
ooo o  o  ooo o  o  ooo o  o
"""
    steps = found(unmarked(cpu, "kKk k  k  kKk k  k  kKk k  k"))
    assert steps.found_by == "optimizer"
    assert (steps.lengths / 1e6).tolist() == [10, 10]


def adversarial(*rounds: str) -> Steps:
    """Calls of optimizers of one class, ten milliseconds apart, each after so many gradients."""
    gradients = "".join(f"  {'p.' * count}".ljust(10) for text in rounds for count in map(int, text))
    calls = len(gradients) // 10
    cpu = f"{'oo      zz' * calls}\n{gradients}\n{'        o ' * calls}"
    host = {"p": (Kind.OP, "torch::autograd::AccumulateGrad")}
    return found(unmarked(cpu, "kK      k " * calls, **host))


@pytest.mark.parametrize(
    ("rounds", "step_ms"),
    [
        (["12", "12", "12"], 20),  # a GAN's two
        (["1113", "1113", "1113"], 40),  # a critic that learns three times as often
        (["11", "11", "11"], 10),  # one optimizer
        (["12", "11", "12"], 10),  # one whose layers are dropped now and then
        (["12", "12"], 10),  # seen once and a half: no proof
    ],
)
def test_optimizers_of_one_class_are_told_apart_by_what_they_train(rounds: list[str], step_ms: int) -> None:
    steps = adversarial(*rounds)
    assert steps.found_by == "optimizer"
    assert set((steps.lengths / 1e6).tolist()) <= {step_ms} and steps.count >= 1
    assert ("alternates" in " ".join(steps.notes)) == (step_ms > 10)


def test_calls_without_a_backward_pass_before_them_end_no_step() -> None:
    """An optimizer called for one group of parameters after the other, with copies between the calls."""
    steps = adversarial("1000", "1000", "1000", "1000")
    assert steps.found_by == "optimizer"
    assert set((steps.lengths / 1e6).tolist()) == {40}


def test_an_optimizer_that_a_gradient_s_hook_calls_ends_no_step() -> None:
    cpu = """
oo  pppp pppp   oo  pppp pppp   oo  pppp pppp
     zz   zz         zz   zz         zz   zz
     o    o          o    o          o    o
"""
    gpu = "kK   m    w     kK   m    w     kK   m    w  "
    steps = found(unmarked(cpu, gpu, p=(Kind.OP, "torch::autograd::AccumulateGrad")))
    assert (steps.found_by, steps.lengths.tolist()) == ("period", [16_000_000] * steps.count)


def test_markers_that_launched_nothing_are_no_steps() -> None:
    steps = found(sketch(cpu="nn nn nn ", gpu="kKkkKKkkk", steps="|  |  |  "))
    assert (steps.found_by, steps.count) == ("span", 1)
    assert "No device work can be linked" in " ".join(steps.notes)


def test_the_period_of_the_kernels_is_the_step() -> None:
    steps = found(unmarked("ooooooooooooooo", "kmwlxkmwlxkmwlx"))
    assert steps.found_by == "period"
    assert "3 repeats of a sequence of 5 kernels" in " ".join(steps.notes)


def test_layers_are_not_steps() -> None:
    """Three equal layers and a head, twice: the layers repeat, but the head does not with them."""
    step = "kmwkmwkmwx"
    steps = found(unmarked("o" * 30, step * 3))
    assert "3 repeats of a sequence of 10 kernels" in " ".join(steps.notes)


def test_without_any_marker_the_span_is_one_step() -> None:
    steps = found(unmarked("ooo", "kmw"))
    assert steps.found_by == "span"
    assert steps.count == 1
    assert "one step" in " ".join(steps.notes)


@pytest.mark.parametrize("cpu", ["nnnnnn", "dddd"])
def test_no_device_is_no_device(cpu: str) -> None:
    assert found(sketch(cpu=cpu, steps="|  |  ")).device == -1


def test_a_long_sequence_that_hardly_fails_to_repeat_has_no_period() -> None:
    """Looking at a few places first must not change what is found, whatever the sequence."""
    generator = np.random.default_rng(0)
    step = generator.integers(0, 20, 90)
    whole = np.tile(step, 200)
    assert _smallest_period(whole) == 90
    broken = whole.copy()
    broken[len(broken) // 3] = 99
    assert _smallest_period(broken) is None
    for length in range(9, 60):
        drawn = generator.integers(0, 2, length)
        found = _smallest_period(drawn)
        assert found is None or np.array_equal(drawn[found:], drawn[:-found])


def test_a_period_is_found_among_many_that_only_begin_alike() -> None:
    step = [0, 1, 2, 0, 1, 3]
    assert _smallest_period(np.array(step * 4)) == 6
    assert _smallest_period(np.array([1, 3, *step * 4])) == 6  # cut off in front
    assert _smallest_period(np.array([*step * 2, 0, 1, 2, 0, 1, 2])) is None
    assert _smallest_period(np.array([0, 1, 2] * 5)) == 3
