"""What each op of a step is for, line by line of jobs that torch really runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from msgspec.structs import replace
from torch import nn

from dataflow_observed import Step, benchmark, facts_with_flow, flow_of
from findwall.agent.tracing.value_counts import tell
from findwall.dataflow.linking import Flow
from findwall.dataflow.roles import roles
from findwall.dataflow.traced_roles import traced_roles
from findwall.facts.beside_the_model import beside_the_model
from findwall.facts.facts import serve
from findwall.facts.step_views import split_by_phase
from findwall.model.dataflow import LINE, ROLES, SEEN
from findwall.work.work_facts import ops_named

JOBS = benchmark("unneeded_jobs")


def roles_at(flow: Flow, words: str, job: str, file: Path = Path(str(JOBS.__file__))) -> set[str]:
    """Of the ops that lines of a job call which hold these words, views left out."""
    text = file.read_text().splitlines()
    first = next(at for at, line in enumerate(text) if line.startswith(f"def {job}("))
    end = next((at for at in range(first + 1, len(text)) if re.match(r"\S", text[at])), len(text))
    wanted = {f"{LINE}{file.name}:{at + 1}" for at in range(first, end) if words in text[at]}
    assert wanted, words
    told, observed = roles(flow), flow.observed
    works = set(flow.head[flow.wrote].tolist())
    found = set()
    for row in works:
        line = int(observed.line[row])
        if row >= 0 and told[row] >= 0 and line >= 0 and observed.names[line] in wanted:
            found.add(ROLES[told[row]])
    return found


EXPECTED = [
    ("plain_distillation", "target = teacher(x)", {"teacher"}),
    ("plain_distillation", "value.backward()", {"backward"}),  # the gradient it begins with too
    ("plain_distillation", "optimizer.step()", {"update"}),
    ("plain_training", "clip_grad_norm_", {"update"}),
    ("plain_training", "mine.lerp_", {"average"}),
    ("plain_training", "optimizer.step()", {"update"}),
    ("teacher_in_graph", "target = teacher(x)", {"forward"}),  # in the graph, as it is called
    ("evaluation_in_every_step", "F.cross_entropy(model(held_out)", {"evaluation"}),
    ("forward_again_for_metric", "right = again", {"evaluation"}),
]


@pytest.mark.parametrize(("job", "words", "expected"), EXPECTED)
def test_lines_have_their_role(job: str, words: str, expected: set[str], tmp_path: Path) -> None:
    flow = flow_of(JOBS.JOBS[job](JOBS.Setting("cpu", 32, edited=False)), tmp_path)
    assert roles_at(flow, words, job) == expected


def test_batches_are_data(tmp_path: Path) -> None:
    flow = flow_of(JOBS.JOBS["plain_training"](JOBS.Setting("cpu", 32, edited=False)), tmp_path)
    told = {
        ROLES[role]
        for row, role in enumerate(roles(flow).tolist())
        if role >= 0 and flow.observed.names[flow.observed.name[row]] == "aten::index_select"
    }
    assert told == {"data"}


def own_update() -> Step:
    """Parameters that no module holds, and a step by hand."""
    weight = torch.randn(16, 1, requires_grad=True)
    scale = torch.zeros(16, requires_grad=True)
    speed = [torch.zeros_like(one) for one in (weight, scale)]
    inputs, wanted = torch.randn(32, 16), torch.randn(32, 1)

    def step() -> None:
        scaled = inputs * scale.exp()
        guess = torch.tanh(scaled) @ weight
        value = (guess - wanted).square().mean()
        gradients = torch.autograd.grad(value, [weight, scale])
        with torch.no_grad():
            for one, moved, gradient in zip((weight, scale), speed, gradients, strict=True):
                moved.mul_(0.9).add_(gradient)
                one.sub_(0.01 * moved)

    return step


def closure() -> Step:
    model = nn.Linear(16, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    pool = torch.randn(64, 16)

    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        chosen = pool * 2
        guess = model(chosen)
        value = guess.square().mean()
        value.backward()
        return value

    def step() -> None:
        optimizer.step(evaluate)

    return step


def two_heads() -> Step:
    """A loss is computed before the last layer runs; and one is scaled."""
    body, first, second = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(16, 4)
    optimizer = torch.optim.SGD([*body.parameters(), *first.parameters(), *second.parameters()], 0.1)
    scaler = torch.amp.GradScaler("cpu")
    inputs = torch.randn(32, 16)

    def step() -> None:
        hidden = body(inputs).relu()
        one = first(hidden).square().mean()
        made = second(hidden)
        weight = made.detach().abs()
        both = one + (made * weight).mean()
        scaled = scaler.scale(both)
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def averages_anew() -> Step:
    """Each step makes a new average, and drops the one before; a number that it carries on is none."""
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    held = {
        "average": {name: one.clone() for name, one in net.state_dict().items()},
        "seen": {"": torch.zeros(())},
    }

    def step() -> None:
        loss = net(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept = held["average"]
        held["average"] = {name: 0.9 * kept[name] + 0.1 * one for name, one in net.state_dict().items()}
        held["seen"] = {"": 0.9 * held["seen"][""] + loss.detach()}

    return step


def averages() -> Step:
    """A network that follows another and teaches it; codes that follow what goes through them; figures."""
    net, follows = nn.Linear(16, 16), nn.Linear(16, 16).requires_grad_(False)
    codes = nn.Module()
    codes.register_buffer("table", torch.randn(8, 16))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    inputs, seen, steep = torch.randn(32, 16), torch.zeros(16), []

    def step() -> None:
        with torch.no_grad():
            torch._foreach_lerp_(list(follows.parameters()), list(net.parameters()), 0.1)
            target = follows(inputs)
        made = net(inputs)
        with torch.no_grad():
            nearest = (made @ codes.table.t()).argmax(1)
            fitting = codes.table[nearest]
            room = torch.zeros_like(codes.table)
            mixed = room.index_add_(0, nearest, made)
            codes.table.lerp_(mixed, 0.01)
        value = (made - target).square().mean() + (made - fitting).square().mean()
        value.backward()
        steep.append(net.weight.grad.norm())
        optimizer.step()
        optimizer.zero_grad()
        seen.add_(made.detach().mean(0))
        largest = net.weight.detach().abs().max()
        steep.append(largest)

    return step


def second_order() -> Step:
    weight = nn.Linear(16, 1).weight
    optimizer = torch.optim.SGD([weight], 0.1)
    inputs = torch.randn(32, 16)

    def step() -> None:
        inner = nn.functional.linear(inputs, weight).square().mean()
        (gradient,) = torch.autograd.grad(inner, [weight], create_graph=True)
        fast = weight - 0.1 * gradient
        guess = nn.functional.linear(inputs, fast)
        value = guess.abs().mean()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def acting() -> Step:
    """What the host does with the actions of an agent nobody sees; how right it is, is one number."""
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    world, lessons = torch.randn(8, 16), torch.randn(32, 16)

    def step() -> None:
        with torch.no_grad():
            actions = net(world)
            tell(torch, SEEN, [actions])
            right = (net(lessons) > 0).float().mean()
            tell(torch, SEEN, [right])
        net(lessons).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def playing() -> Step:
    """A number may be what the job does next: where it is made of the model's results alone, or chosen."""
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    state, legal = torch.randn(1, 16), torch.tensor([True, False, True, True])
    lessons, wanted = torch.randn(32, 16), torch.randint(0, 4, (32,))

    def step() -> None:
        with torch.no_grad():
            worth = net(state).max()
            action = net(state).masked_fill(~legal, -1e9).argmax()
            missed = nn.functional.cross_entropy(net(lessons), wanted)
            right = (net(lessons).argmax(1) == wanted).float().mean()
        assert all(one.item() is not None for one in (worth, action, missed, right))
        net(lessons).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


OWN = [
    (playing, "worth = net", {"other"}),
    (playing, "action = net", {"other"}),
    (playing, "missed = ", {"evaluation"}),
    (playing, "right = (net", {"evaluation"}),
    (acting, "actions = net", {"other"}),
    (acting, "right = (net", {"evaluation"}),
    (own_update, "scaled = inputs", {"forward"}),
    (own_update, "guess = torch.tanh", {"forward"}),
    (own_update, "value = (guess", {"loss"}),
    (own_update, "moved.mul_", {"update"}),
    (own_update, "one.sub_", {"update"}),
    (closure, "chosen = pool", {"data"}),
    (closure, "guess = model", {"forward"}),
    (closure, "value = guess", {"loss"}),
    (closure, "optimizer.step(evaluate)", {"update"}),
    (two_heads, "made = second", {"forward"}),
    (two_heads, "weight = made", {"loss"}),
    (two_heads, "both = one", {"loss"}),
    (two_heads, "scaler.step(optimizer)", {"update"}),
    (averages_anew, "0.9 * kept[name] + 0.1", {"average"}),
    (averages_anew, '0.9 * held["seen"]', {"metric", "other"}),
    (averages, "_foreach_lerp_", {"average"}),
    (averages, "target = follows", {"teacher"}),
    (averages, "made = net", {"forward"}),
    (averages, "mixed = room", {"average"}),
    (averages, "table.lerp_", {"average"}),
    (averages, "nearest = (", {"loss"}),
    (averages, "grad.norm()", {"metric"}),
    (averages, "seen.add_", {"metric"}),
    (averages, "largest = ", {"metric"}),
    (second_order, "fast = weight", {"forward"}),
    (second_order, "guess = nn.functional", {"forward"}),
    (second_order, "value = guess", {"loss"}),
]


@pytest.mark.parametrize("make", dict.fromkeys(one for one, _, _ in OWN), ids=lambda one: str(one.__name__))
def test_what_flows_where_decides(make: Callable[[], Step], tmp_path: Path) -> None:
    flow = flow_of(make(), tmp_path)
    expected = {words: told for one, words, told in OWN if one is make}
    assert {words: roles_at(flow, words, make.__name__, Path(__file__)) for words in expected} == expected


def test_a_word_to_go_on_from_is_no_input_of_the_same_pass(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).requires_grad_(False)
    words = [torch.zeros(4, dtype=torch.long)]

    def step() -> None:
        words[0] = model(words[0]).softmax(-1).argmax(-1)

    flow = flow_of(step, tmp_path, 3)
    observed, told = flow.observed, roles(flow)
    by_name = {
        observed.names[observed.name[row]]: ROLES[told[row]] for row in range(len(told)) if told[row] >= 0
    }
    assert by_name["aten::embedding"] == by_name["aten::linear"] == "forward"
    assert by_name["aten::softmax"] == by_name["aten::argmax"] == "other"


def test_clipping_is_of_the_update_by_graph_and_by_trace(tmp_path: Path) -> None:
    """Clipping gets gradients ready for it, outside of the optimizer's own range."""
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    inputs = torch.randn(32, 64)

    def step() -> None:
        net(inputs).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    facts = facts_with_flow(step, tmp_path)
    alone = replace(facts, roles=traced_roles(facts))
    norms = facts.kernels.row[ops_named(facts.timeline, facts.kernels.op, re.compile("norm"))]
    assert len(norms)
    assert serve(facts, norms, "update").all() and serve(alone, norms, "update").all()
    assert split_by_phase(facts)["optimizer"] == pytest.approx(split_by_phase(alone)["optimizer"])


def test_a_figure_from_inside_the_model_lies_beside_it(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    seen: list[torch.Tensor] = []
    net[0].register_forward_hook(lambda module, given, made: seen.append(made.detach().sort(1).values.mean()))
    inputs = torch.randn(64, 256)

    def step() -> None:
        seen.clear()
        net(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    facts = facts_with_flow(step, tmp_path)
    sorts = [facts.op_name(atom) == "aten::sort" for atom in range(len(facts.atoms.index))]
    assert any(sorts) and beside_the_model(facts)[sorts].all()
    assert not beside_the_model(replace(facts, roles=traced_roles(facts)))[sorts].any()
