"""Small steps that torch really runs on the CPU, traced."""

from __future__ import annotations

import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy
import torch
from torch.nn import functional

from dataflow_observed import facts_with_flow
from findwall.facts.facts import Facts
from token_models import Job


@cache
def with_anomaly_mode(on: bool = True) -> Facts:
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step() -> None:
        with torch.autograd.set_detect_anomaly(on):
            model(torch.randn(4, 32)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


@cache
def from_frames(at_once: bool = False) -> Facts:
    """A batch made of NumPy arrays, number by number or as one."""
    layer = torch.nn.Linear(64, 64)
    frames = [numpy.full((64, 64), at, numpy.float32) for at in range(8)]

    def step() -> None:
        batch = torch.from_numpy(numpy.stack(frames)) if at_once else torch.tensor(frames)
        torch.tensor([1.0, 2.0])
        layer(batch).mean().backward()

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch itself says that it is slow
        return facts_with_flow(step, Path(folder))


@cache
def sorted_heads(few: int = 4) -> Facts:
    """Rows are put in order, and the first few of each are read."""
    scores, values = torch.randn(64, 512), torch.randn(64, 512)

    def step() -> None:
        values.gather(1, scores.argsort(1)[:, :few]).sum()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


@cache
def looked_up(rows: int) -> Facts:
    """Sixteen rows of a table, and an update of it all."""
    table = torch.nn.Embedding(rows, 32)
    optimizer = torch.optim.Adagrad(table.parameters(), lr=0.1)
    words = torch.arange(16)

    def step() -> None:
        table(words).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


@cache
def with_routine(name: str) -> Facts:
    """A step that calls one routine of linear algebra on small matrices."""
    matrices = torch.randn(256, 8, 8) + 8 * torch.eye(8)
    right = torch.randn(256, 8, 1)

    def step() -> None:
        if name == "solve":
            torch.linalg.solve(matrices, right).sum()
        else:
            (getattr(torch.linalg, name)(matrices) @ right).sum()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


@cache
def by_tokens() -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(Job("back", size=256, batch=8).whole, Path(folder))


@cache
def filled_up(length: int) -> Facts:
    """Samples of at most 12 tokens, filled up to so many."""
    table, layer = torch.nn.Embedding(64, 128), torch.nn.Linear(128, 512)
    optimizer = torch.optim.SGD([*table.parameters(), *layer.parameters()], lr=1e-3)

    def step() -> None:
        tokens = torch.zeros(16, length, dtype=torch.long)
        tokens[:, :12] = torch.randint(1, 64, (16, 12))
        layer(functional.embedding(tokens, table.weight)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


@cache
def attending(window: int, by_mask: bool = True) -> Facts:
    """Attention of 768 tokens to so many before each, by a mask; or causal by the flag."""
    tokens = 768
    apart = torch.arange(tokens)[:, None] - torch.arange(tokens)
    mask = (apart >= 0) & (apart < window) if by_mask else None
    layer = torch.nn.Linear(32, 96)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)

    def step() -> None:
        q, k, v = layer(torch.randn(1, tokens, 32)).view(1, tokens, 6, 16).transpose(1, 2).chunk(3, 1)
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


NODES, WIDTH = 768, 64


@cache
def over_neighbours(share: float = 0.01, way: str = "left") -> Facts:
    """A layer over the neighbours of every node; the matrix is made before the loop, or in each step."""
    layer = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    near, x = torch.rand(NODES, NODES), torch.randn(NODES, WIDTH)
    fixed = (near < share).double() if way == "cast" else (near < share).float()

    def step() -> None:
        if way == "written":
            fixed.mul_(1.0)
        matrix = (near < share).float() if way == "made" else fixed
        y = layer(x)
        (y.t() @ matrix if way == "right" else matrix.float() @ y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


@cache
def modulated(way: str = "lengths") -> Facts:
    """A convolution whose weight is scaled for each sample, and brought to a length."""
    samples, inside, outside, side = 4, 12, 16, 8
    weight = torch.nn.Parameter(torch.randn(outside, inside, 3, 3))
    style = torch.nn.Linear(6, inside)
    places = torch.nn.Parameter(torch.rand(samples, 1, inside, 3, 3))

    def step() -> None:
        x, factors = torch.randn(samples, inside, side, side), style(torch.randn(samples, 6))
        each = weight * 0.1 * (places if way == "places" else factors[:, None, :, None, None])
        if way == "lengths":
            each = each * (each.square().sum((2, 3, 4)) + 1e-8).rsqrt()[:, :, None, None, None]
        loss = each.abs().sum() if way == "read" else 0.0
        image = x.reshape(1, -1, side, side)
        made = functional.conv2d(image, each.reshape(-1, inside, 3, 3), padding=1, groups=samples)
        (made.square().mean() + loss).backward()
        for one in (weight, places, *style.parameters()):
            one.grad = None

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))
