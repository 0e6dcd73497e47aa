"""Who made what each op reads, against what was noted byte by byte."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.dataflow.linking import covers, link_flow, meet
from findwall.dataflow.repeats import repeats
from findwall.dataflow.usefulness import written_unseen
from findwall.model.dataflow import Region
from findwall.readers.observed_steps import read_observed_steps

torch = pytest.importorskip("torch")
nn = torch.nn
tools = importlib.import_module("dataflow_observed")  # which needs torch
Reference = tools.benchmark("dataflow_reference").Reference
compare = tools.benchmark("dataflow").compare
flow_of = tools.flow_of


@st.composite
def regions(draw: st.DrawFn) -> Region:
    """Views of a storage of 96 bytes, in numbers of 4."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    strides = draw(st.lists(st.integers(1, 6), min_size=len(shape), max_size=len(shape)))
    first = draw(st.integers(0, 6)) * 4
    dims = sorted(((4 * s, n) for s, n in zip(strides, shape, strict=True) if n > 1), reverse=True)
    return Region(first, first + sum(s * (n - 1) for s, n in dims) + 4, tuple(dims), 4)


def bytes_of(region: Region) -> set[int]:
    places = [region.first]
    for stride, length in region.dims:
        places = [place + stride * at for place in places for at in range(length)]
    return {place + at for place in places for at in range(region.width)}


@given(regions(), regions())
def test_regions_that_share_a_byte_meet(one: Region, other: Region) -> None:
    """Where it is hard to say they may be said to meet; never the other way round."""
    if bytes_of(one) & bytes_of(other):
        assert meet(one, other)
    if covers(one, other):
        assert bytes_of(other) <= bytes_of(one)


def test_columns_of_a_matrix_do_not_meet() -> None:
    whole = Region(0, 4 * 12 * 8, ((48, 8), (4, 12)), 4)
    left, right = Region(0, 7 * 48 + 24, ((48, 8), (4, 6)), 4), Region(24, 7 * 48 + 48, ((48, 8), (4, 6)), 4)
    assert not meet(left, right)
    assert meet(left, whole)
    assert covers(whole, left)
    assert not covers(left, whole)


class Attends(nn.Module):  # type: ignore[name-defined, misc]
    """Views of one product, a mask, a softmax, and a product with its own parts."""

    def __init__(self, wide: int = 32) -> None:
        super().__init__()
        self.mixed, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.norm = nn.LayerNorm(wide)

    def forward(self, x: Any) -> Any:
        q, k, v = self.mixed(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)).masked_fill(
            torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -9.0
        )
        return x + self.out(scores.softmax(-1) @ v)


class Indexes(nn.Module):  # type: ignore[name-defined, misc]
    def __init__(self, wide: int = 16) -> None:
        super().__init__()
        self.table = nn.Embedding(50, wide)
        self.buffer = torch.zeros(8, wide)

    def forward(self, x: Any) -> Any:
        rows = self.table((x[:, 0, 0].abs() * 10).long() % 50)
        self.buffer[: len(rows)] = rows.detach()
        self.buffer[2:4] += 1.0
        one_hot = nn.functional.one_hot(rows.argmax(1), 16).float()
        return rows * self.buffer[: len(rows)].sum() + one_hot.cumsum(1)


def conv() -> Any:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    )


@pytest.mark.parametrize("make", [Attends, Indexes, conv], ids=["attends", "indexes", "convolves"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_links_are_those_that_were_noted(make: Any, optimizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = make(), torch.randn(4, 8, 32)
    stepping = optimizer(model.parameters(), lr=1e-3)

    def step() -> None:
        stepping.zero_grad()
        model(x).square().mean().backward()
        stepping.step()

    step()
    reference, observer = Reference(), torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "observed.json"))
    observer.start()
    with reference:
        step()
    observer.stop()
    observer.unregister_callback()
    found = compare(tmp_path / "observed.json", reference.names, reference.edges)
    assert found["links"] > 20
    assert (found["precision"], found["recall"]) == (1.0, 1.0), found


def test_a_place_that_is_used_again_is_another_storage(tmp_path: Path) -> None:
    """What is freed and made again at the same place has no link to what lay there."""
    flow = flow_of(lambda: [torch.ones(1000).mul(2.0).sum() for _ in range(5)], tmp_path, iterations=1)
    names = flow.observed.names
    seen = (flow.writer >= 0) & (flow.head[flow.writer] != flow.head[flow.reader])
    writers, readers = np.unique(flow.head[[flow.writer[seen], flow.reader[seen]]], axis=1)
    pairs = {
        (names[flow.observed.name[a]], b - a) for a, b in zip(writers.tolist(), readers.tolist(), strict=True)
    }
    assert {name for name, _ in pairs} >= {"aten::ones", "aten::mul"}
    sums = [row for row in np.unique(readers).tolist() if names[flow.observed.name[row]] == "aten::sum"]
    assert all((readers == row).sum() == 1 for row in sums)


def test_what_autocast_has_cast_before_is_what_it_was(tmp_path: Path) -> None:
    """A layer that is called again is given the weights as they were cast for its first call."""
    layer, x = torch.nn.Conv2d(4, 4, 3), torch.randn(2, 4, 8, 8)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            first = layer(x).relu()
            found = layer(first).float().sum()
        found.backward()

    flow = flow_of(step, tmp_path)
    assert not written_unseen(flow)
    calls = [
        row for row in flow.heads().tolist() if flow.observed.names[flow.observed.name[row]] == "aten::conv2d"
    ]
    links = set(zip(flow.head[flow.writer].tolist(), flow.head[flow.reader].tolist(), strict=True))
    assert (calls[0], calls[1]) in links


def test_what_python_writes_is_written_by_nobody_unseen(tmp_path: Path) -> None:
    """`mask[a:b] = True` makes a tensor of the number, `torch.tensor` one of a list: no op writes there."""
    mask, x, numbers = torch.zeros(8, 8, dtype=torch.bool), torch.randn(8, 8), iter(range(9))

    def step() -> None:
        mask[2:4, 2:4] = True
        rows = torch.tensor([1, 2, next(numbers)])
        x.masked_fill(mask, 0.0)[rows].mul(torch.tensor(float(next(numbers)))).sum()

    flow = flow_of(step, tmp_path)
    assert not written_unseen(flow)
    always = {flow.observed.names[flow.observed.name[head]] for head in repeats(flow).always.tolist()}
    assert always <= {"aten::lift_fresh"}  # the number of the mask; nobody knows which the others were


def test_a_tensor_of_python_s_at_the_place_of_one_that_is_freed_is_another(tmp_path: Path) -> None:
    """Two arrays one after the other lie at one place, and two numbers."""
    layer, draws = torch.nn.Linear(16, 16), np.random.default_rng(0)

    @torch.no_grad()
    def step() -> None:
        for _ in range(8):
            layer(torch.from_numpy(draws.random(16, np.float32)))
        total = torch.zeros(8)
        for place in range(8):
            total[place] = draws.random()
        layer(total.repeat(2))

    found = repeats(flow_of(step, tmp_path))
    assert len(found.twice) == len(found.always) == 0


def test_nothing_that_is_damaged_gives_a_graph(tmp_path: Path) -> None:
    from findwall.errors import InputError

    path = tmp_path / "observed.json"
    for text in ('{"schema": "1", "nodes": [{"id": "x"}]}', '{"schema": "1", "nodes": [{"id": 1', "", "[]"):
        path.write_text(text)
        with pytest.raises(InputError):
            read_observed_steps(path)
    odd = '{"schema":"1","nodes":[{"id":3,"name":"aten::a","inputs":{"values":[[1,2,"x",4,5,"cpu"]],'
    path.write_text(odd + '"shapes":[[2]],"types":["Tensor(float)"],"strides":[[1]]}}]}')
    with pytest.raises(InputError):
        read_observed_steps(path)
    path.write_text('{"schema":"1","nodes":[]}')
    assert len(link_flow(read_observed_steps(path)).head) == 0
