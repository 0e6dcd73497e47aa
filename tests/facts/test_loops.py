"""Which loops go over the parts of a tensor: of steps that torch really ran and traced, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from findwall.causes.overhead import launch_bound
from findwall.examine.traced_document import diagnose_device
from findwall.facts import host_loops as module
from findwall.facts.facts import Facts
from findwall.facts.host_loops import (
    is_backward,
    launched_by,
    loops,
    mostly_over_parts,
    part_loops,
    without_layers,
)
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.host.vectorise_loop import FIX
from findwall.model.catalogue import FEWEST_REPEATS
from findwall.model.measured_run import HostLine
from findwall.report.texts.by_hand_text import LONGEST_HOW
from sketch import facts_of
from speaking import in_words
from traced_steps import traced_steps

SAMPLES, WIDE = 24, 16
STEPS = 3
Step = Callable[[Tensor, Tensor], Tensor]  # the loss of what a model gave, and what it should be


def error(one: Tensor, wanted: Tensor) -> Tensor:
    """More ops than any layer that is told by its ops alone."""
    near = torch.sigmoid(one.abs()) * (one - wanted)
    chance = torch.softmax(one, 0)
    entropy = (chance * torch.log(chance + 1e-6)).sum()
    return (near * near).sum() + entropy.neg() + (one - wanted).abs().clamp(max=1.0).mean()


def by_index(out: Tensor, wanted: Tensor) -> Tensor:
    return torch.stack([error(out[at], wanted[at]) for at in range(len(out))]).mean()


def by_rows(out: Tensor, wanted: Tensor) -> Tensor:
    total = torch.zeros(())
    for one, want in zip(out, wanted, strict=True):
        total = total + error(one, want)
    return total / len(out)


def by_slices(out: Tensor, wanted: Tensor) -> Tensor:
    found = [functional.smooth_l1_loss(out[at : at + 1], wanted[at : at + 1]) for at in range(len(out))]
    return torch.stack(found).mean()


def by_neighbours(out: Tensor, wanted: Tensor) -> Tensor:
    """Each sample with its own and the next one's, as products of vectors."""
    total = torch.zeros(())
    for at in range(len(out)):
        own, other = torch.dot(out[at], wanted[at]), torch.dot(out[at], wanted[(at + 1) % len(out)])
        total = total + torch.clamp(0.2 - own + other, min=0)
    return total / len(out)


class Layers(nn.Module):
    """As many as there are samples, without a product, each with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(SAMPLES))

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = x + 0.1 * torch.relu(norm(x))
        return x


class Conditioned(Layers):
    """Each with a row of a table besides, as large as what it works on."""

    def forward(self, x: Tensor) -> Tensor:
        x = x[0]
        for norm, row in zip(self.norms, torch.ones(SAMPLES, WIDE), strict=True):
            x = norm(x + row).relu()
        return x


class Scaled(nn.Module):
    """Each with its scale in one table of all."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.ones(SAMPLES, WIDE))

    def forward(self, x: Tensor) -> Tensor:
        for at in range(SAMPLES):
            x = x + self.scales[at] * torch.tanh(x)
        return x


class Recurrent(nn.Module):
    """No larger than what a step of the sequence gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(WIDE))

    def forward(self, x: Tensor) -> Tensor:
        sequence, state = torch.randn(SAMPLES, *x.shape), x
        for at in range(SAMPLES):
            state = torch.tanh(sequence[at] + state @ self.weight)
        return state


def taken_apart_each_round(out: Tensor, _: Tensor) -> Tensor:
    """A loop over something else, which takes two of the parts that it makes."""
    total = torch.zeros(())
    for _ in range(3 * SAMPLES):
        one, other, *_ = out.unbind()
        total = total + (torch.sigmoid(one) * other).sum()
    return total


def rows_of_rows(out: Tensor, wanted: Tensor) -> Tensor:
    """Few ops in a loop within a loop, and more beside both."""
    table, total = out[:, None] * wanted[:FEWEST_REPEATS], torch.zeros(())
    for at in range(len(table)):
        for one in table[at]:
            total = total + torch.sigmoid(one).sum()
    for norm in range(1, 3 * len(out)):
        out = functional.normalize(out * norm)
    return total + out.mean()


def each_with_each(out: Tensor, wanted: Tensor) -> Tensor:
    """Two tensors of one shape, taken from in turns: one index stays while the other goes up."""
    some = range(FEWEST_REPEATS + 2)
    rows = [torch.stack([functional.cosine_similarity(out[i], wanted[j], 0) for j in some]) for i in some]
    return torch.stack([torch.logsumexp(row, 0) for row in rows]).mean()


def plain(out: Tensor, wanted: Tensor) -> Tensor:
    return (out - wanted).square().mean()


def traced(folder: Path, model: nn.Module, loss: Step, **measured: Any) -> Facts:
    x, wanted = torch.randn(SAMPLES, WIDE), torch.randn(SAMPLES, WIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(_number: int) -> None:
        optimizer.zero_grad()
        loss(model(x), wanted).backward()
        optimizer.step()

    return facts_of(traced_steps(step, folder, STEPS), device_kind="cpu", **measured)


@pytest.mark.parametrize("loss", [by_index, by_rows, by_slices])
def test_a_loop_over_samples_in_the_loss_is_found_with_its_backward(tmp_path: Path, loss: Step) -> None:
    facts = traced(tmp_path, nn.Linear(WIDE, WIDE), loss)
    found = part_loops(facts)
    assert found and {one.rounds for one in found} == {SAMPLES}
    held = {int(atom) for one in found for atom in one.all_atoms}
    of_model = [at for at in range(len(facts.atoms.index)) if facts.kernel_class(at) == "matmul"]
    assert len(held) > 0.8 * len(facts.atoms.index) and not held & set(of_model)
    assert all(len(one.gradients) >= one.rounds for one in found)


def test_products_of_vectors_are_no_cells_and_a_loop_ends_with_its_step(tmp_path: Path) -> None:
    """The last sample's next one is the first: so it is taken again, as the next step begins with it."""
    facts = traced(tmp_path, nn.Linear(WIDE, WIDE), by_neighbours)
    found = part_loops(facts)
    assert len(found) == facts.steps.count and {one.rounds for one in found} == {SAMPLES}
    assert mostly_over_parts(facts) and "Do in one call" in in_words(launch_bound.CAUSE, facts)
    assert isinstance(all_fixes()["larger-batch"].advise(facts), NoUse)


def test_a_long_round_is_prescribed_to_be_one_call(tmp_path: Path) -> None:
    seen = (
        HostLine("train.py:9", "main", 0.6, "graph.py:_engine_run_backward"),
        HostLine("loss.py:12", "by_rows", 0.3),
    )
    facts = traced(tmp_path, nn.Linear(WIDE, WIDE), by_rows, host_lines=seen)
    advice = FIX.advise(facts)
    assert isinstance(advice, Use) and f"in {SAMPLES} rounds of" in in_words(advice)
    assert "likely at loss.py:12 in by_rows), if no round needs the one before" in in_words(advice)
    assert in_words(advice).endswith(" ops per step.") and len(in_words(advice)) <= LONGEST_HOW
    assert advice.moves == ("launch-bound", "host-work")
    assert step_at_best(FIX, advice, facts) < 0.5 * facts.step  # next to nothing of the loop remains


@pytest.mark.parametrize("model", [Layers, Conditioned, Scaled, Recurrent])
def test_layers_and_cells_are_no_loop_over_parts(tmp_path: Path, model: type[nn.Module]) -> None:
    facts = traced(tmp_path, model(), plain)
    assert part_loops(facts) == []


def test_rounds_of_a_loop_that_takes_parts_are_not_rounds_over_them(tmp_path: Path) -> None:
    assert part_loops(traced(tmp_path, nn.Linear(WIDE, WIDE), taken_apart_each_round)) == []


def test_a_loop_within_a_loop_is_counted_once(tmp_path: Path) -> None:
    facts = traced(tmp_path, nn.Linear(WIDE, WIDE), rows_of_rows)
    found = part_loops(facts)
    assert {one.rounds for one in found} == {SAMPLES, FEWEST_REPEATS}
    half = 0.5 * len(facts.atoms.index)
    assert len(launched_by(found)) < half < sum(len(one.all_atoms) for one in found)
    assert not mostly_over_parts(facts)


def test_two_tensors_of_one_shape_taken_from_in_turns_are_two_loops(tmp_path: Path) -> None:
    facts = traced(tmp_path, nn.Linear(WIDE, WIDE), each_with_each)
    assert FEWEST_REPEATS + 2 in {one.rounds for one in part_loops(facts)}
    assert mostly_over_parts(facts) and "Do in one call" in in_words(launch_bound.CAUSE, facts)
    assert isinstance(all_fixes()["larger-batch"].advise(facts), NoUse)


@pytest.mark.parametrize("product", [False, True])
def test_layers_that_are_alike_are_no_loop(tmp_path: Path, product: bool) -> None:
    parts = [nn.Linear(WIDE, WIDE)] if product else []
    layers = [nn.Sequential(*parts, nn.LayerNorm(WIDE), nn.ReLU()) for _ in range(SAMPLES)]
    facts = traced(tmp_path, nn.Sequential(*layers), plain)
    assert loops(facts) and without_layers(facts, loops(facts)) == []
    assert not isinstance(FIX.advise(facts), Use)


def test_what_the_backward_pass_repeats_is_no_loop_of_the_job(tmp_path: Path) -> None:
    facts = traced(tmp_path, Scaled(), plain)
    assert any(is_backward(facts, one) for one in loops(facts))
    said = FIX.advise(facts)
    assert isinstance(said, Use) and " rounds of 3 small ops" in in_words(
        said
    )  # those of its backward are longer


def test_a_larger_batch_has_more_rounds_of_a_loop_over_it(tmp_path: Path) -> None:
    facts = traced(tmp_path, nn.Linear(WIDE, WIDE), by_index)
    assert mostly_over_parts(facts)
    said = all_fixes()["larger-batch"].advise(facts)
    assert isinstance(said, NoUse) and "more rounds" in in_words(said)
    sentence = in_words(launch_bound.CAUSE, facts)
    assert "Do in one call" in sentence and "larger batch" not in sentence
    assert "if no round needs the one before" in sentence
    assert not mostly_over_parts(traced(tmp_path, Layers(), plain))


def test_one_reading_looks_for_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = traced(tmp_path, nn.Linear(WIDE, WIDE), by_index)
    searches: list[Facts] = []
    look = module.heads_of
    monkeypatch.setattr(module, "heads_of", lambda facts: searches.append(facts) or look(facts))
    diagnose_device(facts.run, [facts])
    assert "in one call" in in_words(launch_bound.CAUSE, facts.advised(frozenset(), {}))
    assert len(searches) == 1
