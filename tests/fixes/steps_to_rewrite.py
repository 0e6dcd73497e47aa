"""Small steps that torch really runs on the CPU, as people write them and as they are nearly written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from dataflow_observed import facts_with_flow
from findwall.facts.facts import Facts

Step = Callable[[], Any]


def recorded(step: Step) -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


@cache
def coded(by: str = "scatter", read: str = "product") -> Facts:
    """Rows of a table, picked with one-hot rows."""
    table, codes, other = torch.randn(512, 64), torch.randint(0, 512, (1024,)), torch.randn(1024, 512)

    def step() -> None:
        if by == "scatter":
            hot = torch.zeros(1024, 512).scatter_(1, codes.unsqueeze(1), 1.0)
        else:
            hot = functional.one_hot(codes, 512).float()
        (hot @ table).sum() if read == "product" else (hot * other).sum()

    return recorded(step)


@cache
def all_pairs(power: int = 2) -> Facts:
    """A number for each pair, of all their differences."""
    left, right = torch.randn(128, 64, requires_grad=True), torch.randn(128, 64)

    def step() -> None:
        ((left[:, None] - right[None]).pow(power).sum(-1)).mean().backward()

    return recorded(step)


@cache
def transformed(length: int) -> Facts:
    signal, kernel = torch.randn(64, 2000), torch.randn(2000)

    def step() -> None:
        spectrum = torch.fft.rfft(signal, n=length) * torch.fft.rfft(kernel, n=length)
        torch.fft.irfft(spectrum, n=length).sum()

    return recorded(step)


@cache
def taken(along: int = 0) -> Facts:
    """Rows, or columns, picked by number, many of them often."""
    values, picks = torch.randn(256, 256, requires_grad=True), torch.randint(0, 256, (5000,))

    def step() -> None:
        (values[picks] if along == 0 else values[:, picks]).square().mean().backward()

    return recorded(step)


@cache
def filtered(taps: int = 7) -> Facts:
    """A box over volumes, its window at once."""
    volumes, box = torch.randn(2, 1, 24, 24, 24), torch.ones(1, 1, taps, taps, taps)

    def step() -> None:
        functional.conv3d(volumes, box, padding=taps // 2).sum()

    return recorded(step)


@cache
def blurred(channels: int = 1, side: int = 64, taps: int = 11) -> Facts:
    """Images under a window, with gradients that pass."""
    images = torch.randn(2, channels, side, side, requires_grad=True)
    window = torch.rand(channels, 1, taps, taps)

    def step() -> None:
        functional.conv2d(images, window, padding=taps // 2, groups=channels).sum().backward()

    return recorded(step)


@cache
def three_products(between: str = "scale") -> Facts:
    first, middle, end = torch.randn(512, 64), torch.randn(64, 512), torch.randn(512, 4)

    def step() -> None:
        product = first @ middle
        ((product / 8 if between == "scale" else product.softmax(-1)) @ end).sum()

    return recorded(step)


@cache
def over_time(taken_by: str = "unbind", carries: bool = True) -> Facts:
    """A smoothed signal, one time step after the other."""
    signal, rate = torch.randn(64, 8, 8), torch.rand((), requires_grad=True)

    def step() -> None:
        level, found = signal[0], []
        parts = signal.unbind(0)[1:] if taken_by == "unbind" else (signal[at] for at in range(1, 64))
        for part in parts:
            level = (1 - rate) * level + rate * part if carries else (1 - rate) * part + rate * part
            found.append(level)
        torch.stack(found).sum().backward()

    return recorded(step)


@cache
def masked(then: str = "mean") -> Facts:
    values, keep, weight = torch.randn(2000, 64), torch.rand(2000) < 0.9, torch.randn(64, 64)

    def step() -> None:
        picked = values[keep]
        picked.mean() if then == "mean" else (picked @ weight).mean()

    return recorded(step)


@cache
def checked(listed: bool = False) -> Facts:
    """Gradients looked at one by one before an update, or all at once."""
    sizes = [(16 + at % 4, 16 + (at + 1) % 4) for at in range(24)]
    model = torch.nn.Sequential(*(torch.nn.Linear(*one) for one in sizes))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        model(torch.randn(4, 16)).square().mean().backward()
        if listed:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            for one in model.parameters():
                if torch.isnan(one.grad).any():
                    raise AssertionError
        optimizer.step()
        optimizer.zero_grad()

    return recorded(step)


@cache
def averaged(listed: bool = False) -> Facts:
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(24)))
    averages = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            if listed:
                torch._foreach_lerp_(averages, list(model.parameters()), 0.01)
            else:
                for mean, one in zip(averages, model.parameters(), strict=True):
                    mean.mul_(0.99).add_(one, alpha=0.01)

    return recorded(step)


@cache
def grown(in_place: bool = False) -> Facts:
    """A cache that each step makes longer by one."""
    state = {"cache": torch.randn(4, 500, 256), "n": 500}
    buffer = torch.randn(4, 600, 256)

    @torch.inference_mode()
    def step() -> None:
        new = torch.randn(4, 1, 256)
        if in_place:
            buffer[:, state["n"] : state["n"] + 1] = new
            cache = buffer[:, : state["n"] + 1]
        else:
            cache = state["cache"] = torch.cat([state["cache"], new], 1)
        state["n"] += 1
        cache[:, -1].sum()

    return recorded(step)


@cache
def cast(narrow: bool = False) -> Facts:
    """Weights that every step converts."""
    weights = [torch.randn(256, 256, dtype=torch.float if narrow else torch.double) for _ in range(4)]
    given = torch.randn(4, 256)

    @torch.inference_mode()
    def step() -> None:
        found = given
        for weight in weights:
            found = functional.linear(found, weight.to(torch.float))

    return recorded(step)


@cache
def loss_over_words(words: int = 2000, by_hand: bool = True) -> Facts:
    logits, gold = torch.randn(64, words, requires_grad=True), torch.randint(0, words, (64,))

    def step() -> None:
        if by_hand:
            target = functional.one_hot(gold, words).float() * 0.9 + 0.1 / words
            loss = -(target * torch.log(torch.softmax(logits, -1) + 1e-9)).sum(-1).mean()
        else:
            loss = functional.cross_entropy(logits, gold, label_smoothing=0.1)
        loss.backward()
        logits.grad = None

    return recorded(step)


@cache
def counted(weights: str = "", read: str = "sum") -> Facts:
    """Values that are compared with all others, for what is smaller."""
    values, others = torch.randn(700, requires_grad=True), torch.randn(900)
    learned = torch.randn(900, requires_grad=True)
    each, other = torch.randn(700, 900), torch.randn(512, 512)

    def step() -> None:
        (other @ other).sum()
        smaller = values[:, None] >= others
        if weights == "one side":
            ((smaller.float() * learned).sum(1) * values).sum().backward()
        elif weights == "each pair":
            (smaller.float() * each).sum(1)
        elif read == "mask":
            each.masked_fill(smaller, 0.0).sum(1)
        else:
            smaller.sum(-1)

    return recorded(step)


@cache
def unfolded(read: str = "product") -> Facts:
    """Images taken apart into columns, for a product or for the norm of each column."""
    images, weight = torch.randn(4, 8, 40, 40), torch.randn(6, 200, requires_grad=True)

    def step() -> None:
        columns = torch.nn.functional.unfold(images, 5, padding=2)
        if read == "product":
            (weight @ columns).sum().backward()
        else:
            columns.norm(dim=1).sum()

    return recorded(step)


@cache
def scanned(scan: str = "cummax", shape: tuple[int, ...] = (2000, 128), dim: int = 0) -> Facts:
    values = torch.rand(shape)

    def step() -> None:
        found = getattr(torch, scan)(values, dim)
        (found[0] if isinstance(found, tuple) else found).sum()

    return recorded(step)


@cache
def summed_after_a_factor() -> Facts:
    """A sum of products with a factor that does not change along it."""
    small, factor = torch.rand(1000, 1), torch.rand(64)

    def step() -> None:
        torch.cumsum(small * factor, 0).sum()

    return recorded(step)


@cache
def factored(clones: bool = False) -> Facts:
    """A system that is solved by its Cholesky factor, and where asked with copies of the job's own: many, so
    that they are some of the step on a busy machine too."""
    sides = torch.randn(400, 400, dtype=torch.double)
    matrix = sides @ sides.T + 400 * torch.eye(400, dtype=torch.double)

    def step() -> None:
        given = matrix
        for _ in range(20 if clones else 0):
            given = given.clone()
        found = torch.cholesky_solve(sides, torch.linalg.cholesky(given))
        torch.addmm(found, sides[:, :1], sides[:1], beta=0.5).sum()

    return recorded(step)


@cache
def picked(by: str = "mask") -> Facts:
    """What is best is kept, and what is like it goes: round after round, or in one table."""
    torch.manual_seed(0)
    places = torch.rand(64, 2)

    def step() -> None:
        if by == "table":
            _ = (torch.cdist(places, places) > 0.05).triu().any(0)
            return
        left = torch.arange(len(places))
        while len(left):
            apart = (places[left] - places[left[0]]).square().sum(-1)
            left = left[apart > 0.0025]

    return recorded(step)
