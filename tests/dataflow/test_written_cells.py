"""Recurrent cells written out in the usual ways, and loops that look like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dataflow_observed import facts_with_flow, flow_of  # noqa: E402
from findwall.dataflow.written_cells import written_cells  # noqa: E402
from findwall.fixes import Use, all_fixes  # noqa: E402
from findwall.fixes.predict import predict  # noqa: E402

TIMES, WIDE = 12, 16
Round = Callable[[Any, Any], Any]  # an input and the state before: the state, the first part is handed out
GIVEN = torch.randn(4, TIMES, WIDE)
ZEROS = torch.zeros(4, WIDE)


def products(count: int) -> list[Any]:
    return [nn.Linear(WIDE, WIDE) for _ in range(count)]


def lstm_of_eight() -> Round:
    of_x, of_h = products(4), products(4)

    def one(x: Any, state: Any) -> Any:
        h, c = state if isinstance(state, tuple) else (state, state)
        first, forget, last = (torch.sigmoid(of_x[at](x) + of_h[at](h)) for at in range(3))
        c = forget * c + first * torch.tanh(of_x[3](x) + of_h[3](h))
        return last * torch.tanh(c), c

    return one


def lstm_of_one(sigmoids: int = 3) -> Round:
    gates = nn.Linear(2 * WIDE, 4 * WIDE)

    def one(x: Any, state: Any) -> Any:
        h, c = state if isinstance(state, tuple) else (state, state)
        made = gates(torch.cat([x, h], -1))
        if sigmoids == 3:
            first, forget, last, new = made.chunk(4, -1)
            first, forget, last = first.sigmoid(), forget.sigmoid(), last.sigmoid()
        else:
            first, forget, last = made[:, : 3 * WIDE].sigmoid().split(WIDE, -1)
            new = made[:, 3 * WIDE :]
        c = torch.addcmul(forget * c, first, new.tanh())
        return last * c.tanh(), c

    return one


def gru(blend: str = "both", resets: str = "product") -> Round:
    of_x, of_h, again = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)

    def one(x: Any, h: Any) -> Any:
        (x_r, x_z, x_n), (h_r, h_z, h_n) = of_x(x).chunk(3, -1), of_h(h).chunk(3, -1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + (r * h_n if resets == "product" else again(r * h)))
        return (1 - z) * n + z * h if blend == "both" else torch.lerp(n, h, z)

    return one


def rnn(ends: str = "tanh") -> Round:
    of_x, weight = nn.Linear(WIDE, WIDE), nn.Parameter(torch.randn(WIDE, WIDE) / WIDE)

    def one(x: Any, h: Any) -> Any:
        made = of_x(x) + h @ weight.t()
        return torch.tanh(made) if ends == "tanh" else h + torch.tanh(made)

    return one


def called(cell: Round, trains: bool = True, reads: Round | None = None) -> Callable[[], Any]:
    """`reads`: what makes a round's input of the one before and of what was handed out."""

    def step() -> None:
        with torch.set_grad_enabled(trains):
            state, x, found = ZEROS, GIVEN[:, 0], []
            for at in range(TIMES):
                x = GIVEN[:, at] if reads is None else reads(x, found[-1] if found else ZEROS)
                state = cell(x, state)
                found.append(state[0] if isinstance(state, tuple) else state)
            made = torch.stack(found, 1).square().mean()
            if trains:
                made.backward()

    return step


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(
    ("cell", "layer"),
    [
        (lstm_of_eight, "nn.LSTM"),
        (lstm_of_one, "nn.LSTM"),
        (lambda: lstm_of_one(1), "nn.LSTM"),
        (gru, "nn.GRU"),
        (lambda: gru("lerp"), "nn.GRU"),
        (rnn, "nn.RNN"),
    ],
)
def test_cells_are_told_by_their_gates(
    cell: Callable[[], Round], layer: str, trains: bool, tmp_path: Path
) -> None:
    (found,) = written_cells(flow_of(called(cell(), trains), tmp_path), [0])
    assert (found.layer, found.rounds) == (layer, TIMES)


def test_each_layer_and_each_call_has_its_own_rounds(tmp_path: Path) -> None:
    below, above = lstm_of_eight(), gru()

    def step() -> None:
        for _ in range(2):  # two parts of a batch
            state, top = (ZEROS, ZEROS), ZEROS
            for at in range(TIMES):
                state = below(GIVEN[:, at], state)
                top = above(state[0], top)
            top.mean().backward()

    found = written_cells(flow_of(step, tmp_path), [0])
    assert [one.rounds for one in found] == 4 * [TIMES]
    assert sorted(one.layer for one in found) == ["nn.GRU", "nn.GRU", "nn.LSTM", "nn.LSTM"]


def stack() -> Callable[[], Any]:
    net = nn.Sequential(*(one for _ in range(TIMES) for one in (nn.Linear(WIDE, WIDE), nn.Tanh())))
    return lambda: net(GIVEN).mean().backward()


def sampler() -> Callable[[], Any]:
    net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE))

    def step() -> None:
        with torch.no_grad():
            x = torch.randn(4, WIDE)
            for _ in range(TIMES):
                x = 1.1 * x - 0.1 * net(x) + 0.01 * torch.randn(4, WIDE)

    return step


def decoder(cell: Round) -> Callable[[], Any]:
    table, out = nn.Embedding(32, WIDE), nn.Linear(WIDE, 32)
    return called(cell, False, lambda _, h: table(out(h).argmax(-1)))


def decoder_through_the_host() -> Callable[[], Any]:
    table, out = nn.Embedding(32, WIDE), nn.Linear(WIDE, 32)

    def reads(_: Any, h: Any) -> Any:
        return table(torch.tensor([one.item() for one in out(h).argmax(-1)]))

    return called(gru(), False, reads)


def fed_back() -> Callable[[], Any]:
    out = nn.Linear(WIDE, WIDE)
    return called(lstm_of_eight(), True, lambda _, h: out(h))


def on_itself() -> Callable[[], Any]:
    net = nn.Linear(WIDE, WIDE)

    def step() -> None:
        x = GIVEN[:, 0]
        for _ in range(TIMES):
            x = torch.tanh(net(x))
        x.mean().backward()

    return step


@pytest.mark.parametrize(
    "job",
    [
        stack,
        sampler,
        lambda: decoder(gru()),
        lambda: decoder(lstm_of_one()),
        decoder_through_the_host,
        fed_back,
        on_itself,
        lambda: called(gru(resets="state")),  # the library multiplies before it resets
        lambda: called(rnn("residual")),
    ],
)
def test_what_is_no_cell_of_the_library(job: Callable[[], Callable[[], Any]], tmp_path: Path) -> None:
    assert written_cells(flow_of(job(), tmp_path), [0]) == []


def test_a_written_cell_is_a_layer_of_the_library(tmp_path: Path) -> None:
    facts = facts_with_flow(called(lstm_of_eight()), tmp_path)
    found = all_fixes()["builtin-ops"].advise(facts)
    assert isinstance(found, Use) and found.claim.id == "builtin-ops/written-cell"
    assert found.claim.names["layer"] == "nn.LSTM" and found.claim.figures["rounds"] == TIMES
    told = predict(facts, {"builtin-ops": found})
    assert told is not None and told.low <= told.mid <= told.high < facts.step
    # Nearly all that the forward pass does is of the rounds, and what the backward pass does for them.
    names = [facts.op_name(atom) for atom in facts.cell.atoms.tolist()] if facts.cell else []
    assert names.count("aten::tanh") >= 2 * (TIMES - 2) * facts.steps.count
    assert "aten::tanh_backward" in names and "aten::addmm" in names
