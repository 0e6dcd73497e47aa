"""Loops of the job's own lines, in steps that torch really runs: does a round need another?"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from msgspec.structs import replace
from torch import nn

from dataflow_observed import facts_with_flow, flow_of
from findwall.agent.tracing.observer import OBSERVER
from findwall.agent.tracing.value_counts import tell
from findwall.causes.overhead import launch_bound
from findwall.dataflow.line_loops import Rounds, line_loops
from findwall.dataflow.repeats import repeats
from findwall.facts.host_loops import mostly_over_parts
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.predict import predict
from findwall.model.dataflow import SEEN
from findwall.model.measured_run import HostLine
from speaking import in_words

SAMPLES = 16


class Job:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.tables = nn.ModuleList(nn.Embedding(10, 4) for _ in range(12))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))
        self.cell = nn.GRUCell(8, 8)

    def sample_by_sample(self) -> None:
        """Gradients of each sample for itself, added up."""
        x = torch.randn(SAMPLES, 8)
        for number in range(SAMPLES):
            loss = self.net(x[number : number + 1]).square().mean()
            gradients = torch.autograd.grad(loss, list(self.net.parameters()))
            for one, gradient in zip(self.net.parameters(), gradients, strict=True):
                one.grad = gradient if one.grad is None else one.grad + gradient
        self.optimizer.step()
        self.optimizer.zero_grad()

    def sample_by_sample_in_lists(self) -> None:
        """The same, with all gradients of a round added at once."""
        x, given = torch.randn(SAMPLES, 8), list(self.net.parameters())
        total = [torch.zeros_like(one) for one in given]
        for number in range(SAMPLES):
            loss = self.net(x[number : number + 1]).square().mean()
            gradients = torch.autograd.grad(loss, given)
            norm = torch.stack(torch._foreach_norm(gradients)).norm()
            torch._foreach_add_(total, torch._foreach_mul(gradients, (1.0 / norm).clamp(max=1.0)))
        for one, gradient in zip(given, total, strict=True):
            one.grad = gradient
        self.optimizer.step()

    def mask_by_mask(self) -> None:
        """Rows of each group, scaled and put back."""
        x, group = self.net[0](torch.randn(80, 8)), torch.arange(80) % 10
        out = torch.empty_like(x)
        for number in range(10):
            mine = group == number
            out[mine] = x[mine] * self.layers[number].bias
        out.sum().backward()

    def mask_by_mask_of_what_was_put(self) -> None:
        """The same, but each round looks at what the one before has put."""
        x, group = self.net[0](torch.randn(80, 8)).detach(), torch.arange(80) % 10
        out = torch.zeros_like(x)
        for number in range(10):
            out[group == number] = x[group == number] + out.sum()

    def field_by_field(self) -> None:
        numbers = torch.randint(0, 10, (SAMPLES, 12))
        parts = [table(numbers[:, at]) for at, table in enumerate(self.tables)]
        torch.cat(parts, 1).sum().backward()

    def member_by_member(self) -> None:
        """Put together on the line that goes through them."""
        x = torch.randn(12, 4, 8)
        torch.stack([layer(x[at]) for at, layer in enumerate(self.layers)]).sum().backward()

    def sums_of_sums_in_one_line(self) -> None:
        state = torch.zeros(8)
        torch.stack([state := state.tanh() + layer.bias for layer in self.layers]).sum().backward()

    def class_by_class(self) -> None:
        found, truth, shares = torch.randint(0, 10, (99,)), torch.randint(0, 10, (99,)), []
        for one in range(10):
            both = ((found == one) & (truth == one)).sum().item()
            either = ((found == one) | (truth == one)).sum().item()
            shares.append(both / max(either, 1))

    def parameter_by_parameter(self) -> None:
        x = torch.randn(4, 8)
        for layer in self.layers:
            x = layer(x)
        x.sum().backward()
        with torch.no_grad():
            for one in self.layers.parameters():
                one.add_(one.grad / one.grad.norm(), alpha=-0.1)  # type: ignore[operator, union-attr]
                one.grad = None

    def layer_by_layer(self) -> None:
        x = torch.randn(4, 8)
        for layer in self.layers:
            x = x + layer(x).relu()
        x.sum().backward()

    def time_by_time(self) -> None:
        x, state = torch.randn(20, 4, 8), torch.zeros(4, 8)
        for now in x:
            state = self.cell(now, state)
        state.sum().backward()

    def update_by_update(self) -> None:
        x = torch.randn(SAMPLES, 8)
        for one in x:
            self.net(one).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def running_sum(self) -> None:
        """What was added up so far is looked at in every round."""
        total, x = torch.zeros(8), torch.randn(SAMPLES, 8)
        for one in x:
            total = total + one
            total.norm().exp()


def loops_of(step: Callable[[Job], None], folder: Path) -> list[Rounds]:
    job = Job()
    return line_loops(flow_of(lambda: step(job), folder))


@pytest.mark.parametrize(
    ("step", "rounds"),
    [
        (Job.sample_by_sample, SAMPLES),
        (Job.sample_by_sample_in_lists, SAMPLES),
        (Job.field_by_field, 12),
        (Job.member_by_member, 12),
        (Job.class_by_class, 10),
        (Job.mask_by_mask, 10),
    ],
)
def test_rounds_that_need_no_other_are_a_batch(
    step: Callable[[Job], None], rounds: int, tmp_path: Path
) -> None:
    found = loops_of(step, tmp_path)
    assert len(found) == 1 and not found[0].parameters
    assert rounds <= found[0].count <= rounds + 1


def test_a_loop_over_parameters_is_told_as_such(tmp_path: Path) -> None:
    assert [one.parameters for one in loops_of(Job.parameter_by_parameter, tmp_path)] == [True]


@pytest.mark.parametrize(
    "step",
    [
        Job.layer_by_layer,
        Job.sums_of_sums_in_one_line,
        Job.time_by_time,
        Job.update_by_update,
        Job.running_sum,
        Job.mask_by_mask_of_what_was_put,
    ],
)
def test_rounds_that_need_the_one_before_are_none(step: Callable[[Job], None], tmp_path: Path) -> None:
    assert loops_of(step, tmp_path) == []


def one_by_one(job: Job, places: torch.Tensor) -> torch.Tensor:
    found = []
    for one in places:
        found.append(job.net(one))
    return torch.stack(found)


def test_rounds_that_go_through_the_host_come_behind_those_within_them(tmp_path: Path) -> None:
    """A policy asked for one place after the other, of which arrays make the next places."""
    job = Job()
    places = torch.randn(SAMPLES, 8)
    batched = [False]

    def step() -> None:
        now = places.numpy()
        with torch.no_grad():
            for _ in range(10):
                x = torch.from_numpy(now)
                found = job.net(x) if batched[0] else one_by_one(job, x)
                if OBSERVER.is_busy:
                    tell(torch, SEEN, [found])
                now = now + found.numpy()

    (told, *others) = line_loops(flow_of(step, tmp_path))
    assert (told.count, told.unseen, len(others)) == (SAMPLES, False, 9)
    batched[0] = True
    (told,) = line_loops(flow_of(step, tmp_path))
    assert told.count == 10 and told.unseen
    outcome = all_fixes()["vectorise-loop"].advise(facts_with_flow(step, tmp_path))
    assert isinstance(outcome, Use) and outcome.condition == "rounds-independent"


def test_a_loop_of_every_other_step_is_known_by_the_last_that_was_seen(tmp_path: Path) -> None:
    job, number = Job(), [0]

    def step() -> None:
        if number[0] % 2:
            places = torch.randn(SAMPLES, 8)
            with torch.no_grad():
                one_by_one(job, places)
        job.net(torch.randn(4, 8)).sum().backward()
        number[0] += 1

    looped = []
    for first in range(2):
        number[0] = first
        looped += [one.rounds for one in facts_with_flow(step, tmp_path).loops]
    assert looped == [SAMPLES, SAMPLES]


def test_the_fix_has_a_line_and_a_shorter_step(tmp_path: Path) -> None:
    job = Job()
    facts = facts_with_flow(job.sample_by_sample, tmp_path)
    outcome = all_fixes()["vectorise-loop"].advise(facts)
    assert isinstance(outcome, Use)
    (place,) = outcome.places
    assert "for number in range" in Path(__file__).read_text().splitlines()[int(place.rpartition(":")[2]) - 1]
    said = predict(facts, {"vectorise-loop": outcome})
    assert said is not None and said.low <= said.mid <= said.high and said.mid < facts.step


def test_a_larger_batch_has_more_rounds_of_a_loop_over_it(tmp_path: Path) -> None:
    facts = facts_with_flow(Job().sample_by_sample, tmp_path)
    assert mostly_over_parts(facts)
    said = all_fixes()["larger-batch"].advise(facts)
    assert isinstance(said, NoUse) and said.claim.id == "larger-batch/loop-over-samples"
    assert "Do in one call" in in_words(launch_bound.CAUSE, facts)


def test_what_the_engine_adds_up_is_of_the_rounds_whose_gradients_it_adds(tmp_path: Path) -> None:
    """A gradient for each slice, as large as what was sliced, and all of them added."""
    net, x = nn.Linear(64, 64), torch.randn(512, 64)

    def step() -> None:
        h, found = net(x), []
        for at in range(32):
            part = h[16 * at : 16 * at + 16]
            found.append(torch.tanh(part).sum())
        torch.stack(found).mean().backward()

    facts = facts_with_flow(step, tmp_path)
    (loop,) = facts.loops
    names = [facts.op_name(atom) for atom in loop.atoms.tolist()]
    assert names.count("aten::add_") + names.count("aten::add") >= 30 * facts.steps.count


def test_on_cores_what_every_round_does_to_the_whole_is_done_once(tmp_path: Path) -> None:
    """Rounds on parts of many sizes: each fills a gradient as large as the whole."""
    net, x, ends = nn.Linear(64, 64), torch.randn(2048, 64), [at * at for at in range(46)]

    def step() -> None:
        h, found = net(x), []
        for first, end in pairwise(ends):
            part = torch.tanh(h[first:end])
            found.append(part.sum())
        torch.stack(found).mean().backward()

    facts = facts_with_flow(step, tmp_path)
    outcome = all_fixes()["vectorise-loop"].advise(facts)
    assert isinstance(outcome, Use) and set(outcome.moves or ()) - {"launch-bound", "host-work", "host-sync"}
    said = predict(facts, {"vectorise-loop": outcome})
    assert said is not None and said.high < facts.step


def test_a_librarys_routine_works_as_long_on_everything_at_once(tmp_path: Path) -> None:
    weights = [torch.randn(64, 1000) for _ in range(16)]

    def step() -> None:
        for weight in weights:
            np.histogram((weight * 2.0).numpy(), bins=64)

    facts = facts_with_flow(step, tmp_path)
    shorter = []
    for routine in ("", "numpy.histogram"):
        seen = (HostLine("job.py:8", "step", 0.6, "", routine, looped=True),)
        known = replace(facts, rank=replace(facts.rank, host_lines=seen))
        outcome = all_fixes()["vectorise-loop"].advise(known)
        assert isinstance(outcome, Use)
        shorter.append(step_at_best(all_fixes()["vectorise-loop"], outcome, known))
    assert shorter[0] < 0.5 * shorter[1]


def test_cells_called_by_hand_are_a_layer_of_the_library(tmp_path: Path) -> None:
    job = Job()
    facts = facts_with_flow(job.time_by_time, tmp_path)
    outcome = all_fixes()["builtin-ops"].advise(facts)
    assert isinstance(outcome, Use) and outcome.claim.names["layer"] == "nn.GRU"


def test_the_same_again_through_batch_norms_and_in_place_ops(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    x = torch.randn(2, 3, 16, 16)
    flow = flow_of(lambda: (net(x).mean() + net(x).square().mean()).backward(), tmp_path)
    names = [flow.observed.names[flow.observed.name[head]] for head in repeats(flow).twice.tolist()]
    assert names == ["aten::conv2d", "aten::batch_norm", "aten::relu_"]


def test_what_is_changed_afterwards_is_no_shared_result(tmp_path: Path) -> None:
    net, x = nn.Linear(8, 8), torch.randn(4, 8)

    def step() -> None:
        with torch.no_grad():
            first, second = net(x), net(x)
            second.mul_(torch.rand(4, 8))
            (first + second).sum()

    flow = flow_of(step, tmp_path)
    assert len(repeats(flow).twice) == 0
