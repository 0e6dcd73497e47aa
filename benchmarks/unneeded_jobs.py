"""Jobs that do work nobody needs, one kind each, and the edit that leaves it out.

    python benchmarks/unneeded_jobs.py NAME [--edited] [--steps N] [--device cpu|cuda] [--size N]

At the end it prints the sum of all losses, which the edit must not change, and the mean step by its own
clock. The line that does the work is marked `# needless`; jobs named `plain_…` have none.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[[], torch.Tensor]


class Setting:
    """What a job is given."""

    def __init__(self, device: str, size: int, edited: bool) -> None:
        self.device, self.size, self.edited = device, size, edited
        torch.manual_seed(0)
        self.pool = torch.randn(2048, size, device=device)
        self.numbers = torch.Generator().manual_seed(1)

    def batch(self) -> torch.Tensor:
        rows = torch.randint(0, len(self.pool), (256,), generator=self.numbers)
        return self.pool.index_select(0, rows.to(self.device))

    def net(self, layers: int = 3, out: int | None = None) -> nn.Sequential:
        inner = [m for _ in range(layers) for m in (nn.Linear(self.size, self.size), nn.ReLU())]
        return nn.Sequential(*inner, nn.Linear(self.size, out or self.size)).to(self.device)


def trained(parameters: Any, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def step() -> torch.Tensor:
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def teacher_in_graph(s: Setting) -> Step:
    teacher, student = s.net(5), s.net(1)
    if s.edited:
        teacher.requires_grad_(False)

    def loss() -> torch.Tensor:
        x = s.batch()
        target = teacher(x)  # needless
        return F.mse_loss(student(x), target)

    return trained(student.parameters(), loss)


def frozen_backbone(s: Setting) -> Step:
    backbone, head = s.net(5), s.net(1, 8)
    if s.edited:
        backbone.requires_grad_(False)

    def loss() -> torch.Tensor:
        features = backbone(s.batch())  # needless
        return head(features).square().mean()

    return trained(head.parameters(), loss)


def careless_gan(s: Setting) -> Step:
    generator, judge = s.net(1), s.net(4, 1)
    first = torch.optim.SGD(judge.parameters(), lr=1e-3)
    second = torch.optim.SGD(generator.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        real, noise = s.batch(), s.batch()
        made = generator(noise)
        first.zero_grad()
        wrong = F.softplus(-judge(real)).mean() + F.softplus(judge(made.detach())).mean()
        wrong.backward()
        first.step()
        second.zero_grad()
        if s.edited:
            judge.requires_grad_(False)
        fooled = F.softplus(-judge(made)).mean()  # needless
        fooled.backward()
        judge.requires_grad_(True)
        second.step()
        return (wrong + fooled).detach()

    return step


def unused_head(s: Setting) -> Step:
    trunk, one, other = s.net(1), s.net(1, 8), s.net(3)

    def loss() -> torch.Tensor:
        features = trunk(s.batch())
        if not s.edited:
            other(features)  # needless
        return one(features).square().mean()

    return trained([*trunk.parameters(), *one.parameters()], loss)


def statistics_unread(s: Setting) -> Step:
    model = s.net(2)
    seen: dict[str, torch.Tensor] = {}

    def loss() -> torch.Tensor:
        out = model(s.batch())
        if not s.edited:
            seen["gram"] = (out.detach().T @ out.detach()) @ (out.detach().T @ out.detach()).T  # needless
        return out.square().mean()

    return trained(model.parameters(), loss)


def forward_again_for_metric(s: Setting) -> Step:
    model = s.net(4, 16)

    def loss() -> torch.Tensor:
        x = s.batch()
        logits = model(x)
        with torch.no_grad():
            again = logits if s.edited else model(x)  # needless
            right = again.argmax(1).float().mean().item()
        return logits.square().mean() + 0.0 * right

    return trained(model.parameters(), loss)


def loss_again(s: Setting) -> Step:
    """Twice with its gradient."""
    model = s.net(3)

    def loss() -> torch.Tensor:
        x = s.batch()
        first = model(x)
        second = first if s.edited else model(x)  # needless
        return first.square().mean() + second.abs().mean()

    return trained(model.parameters(), loss)


def backward_of_each_loss(s: Setting) -> Step:
    trunk, heads = s.net(4), [s.net(1, 8) for _ in range(3)]
    optimizer = torch.optim.SGD(
        [*trunk.parameters(), *(one for head in heads for one in head.parameters())], lr=1e-3
    )

    def step() -> torch.Tensor:
        shared = trunk(s.batch())
        losses = torch.stack([head(shared).square().mean() for head in heads])
        optimizer.zero_grad()
        if s.edited:
            losses.sum().backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)  # needless
        optimizer.step()
        return losses.sum().detach()

    return step


def mask_in_every_step(s: Setting) -> Step:
    model, wide = s.net(1), 4 * s.size
    kept = torch.ones(wide, wide, device=s.device).tril().cumsum(0).softmax(-1)[: s.size, : s.size]

    def loss() -> torch.Tensor:
        mask = kept
        if not s.edited:
            mask = torch.ones(wide, wide, device=s.device).tril().cumsum(0).softmax(-1)  # needless
        return (model(s.batch()) @ mask[: s.size, : s.size]).square().mean()

    return trained(model.parameters(), loss)


def prompt_in_every_step(s: Setting) -> Step:
    encoder, model = s.net(5), s.net(1)
    encoder.requires_grad_(False)
    prompt = torch.randn(256, s.size, device=s.device)
    kept = encoder(prompt)

    def loss() -> torch.Tensor:
        encoded = kept if s.edited else encoder(prompt)  # needless
        return (model(s.batch()) + encoded).square().mean()

    return trained(model.parameters(), loss)


def adjacency_in_every_step(s: Setting) -> Step:
    model, nodes = s.net(1), 4 * s.size
    graph = (torch.rand(nodes, nodes, device=s.device) < 0.1).float()
    features = torch.randn(nodes, s.size, device=s.device)

    def normalised() -> torch.Tensor:
        degree = graph.sum(1).rsqrt()  # needless
        return degree[:, None] * graph * degree[None, :]  # needless

    kept = normalised()

    def loss() -> torch.Tensor:
        spread = kept if s.edited else normalised()  # needless
        return (spread[:64] @ model(features)).square().mean()

    return trained(model.parameters(), loss)


def weights_cast_in_every_step(s: Setting) -> Step:
    model = s.net(1)
    table = nn.Parameter(torch.randn(64 * s.size, s.size, device=s.device), requires_grad=False)
    model.register_parameter("table", table)
    kept = table.to(torch.bfloat16)[:256].float()

    def loss() -> torch.Tensor:
        rounded = kept if s.edited else table.to(torch.bfloat16)[:256].float()  # needless
        return (model(s.batch()) + rounded).square().mean()

    return trained([one for one in model.parameters() if one.requires_grad], loss)


def evaluation_in_every_step(s: Setting) -> Step:
    model, held_out = s.net(3, 16), s.pool[:512]
    target = torch.randint(0, 16, (512,), device=s.device)
    labels = torch.randint(0, 16, (256,), device=s.device)
    best = [float("inf")]

    def evaluate() -> None:
        model.eval()
        with torch.no_grad():
            best[0] = min(best[0], F.cross_entropy(model(held_out), target).item())  # needless
        model.train()

    def loss() -> torch.Tensor:
        if not s.edited:
            evaluate()
        return F.cross_entropy(model(s.batch()), labels)

    return trained(model.parameters(), loss)


def scores_of_all_tokens(s: Setting) -> Step:
    trunk, head = s.net(1), s.net(0, 4 * s.size)

    def loss() -> torch.Tensor:
        hidden = trunk(s.batch()).view(16, 16, -1).cumsum(1)
        if s.edited:
            return head(hidden[:, -1]).square().mean()
        scores = head(hidden)  # needless
        return scores[:, -1].square().mean()

    return trained([*trunk.parameters(), *head.parameters()], loss)


def layer_for_each_edge(s: Setting) -> Step:
    layer, out = s.net(1), s.net(0, 8)
    ends = torch.randint(0, 256, (4096,), generator=torch.Generator().manual_seed(2)).to(s.device)

    def loss() -> torch.Tensor:
        nodes = s.batch()
        fetched = nodes if s.edited else nodes.index_select(0, ends)
        told = layer(fetched)  # needless
        told = told.index_select(0, ends) if s.edited else told
        return out(torch.zeros_like(nodes).index_add(0, ends, told)).square().mean()

    return trained([*layer.parameters(), *out.parameters()], loss)


def plain_training(s: Setting) -> Step:
    """Nothing to leave out: running statistics, an average of the weights, losses that are kept."""
    layers = nn.Linear(s.size, s.size), nn.BatchNorm1d(s.size), nn.ReLU(), s.net(1, 8)
    model = nn.Sequential(*layers).to(s.device)
    average = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters())
    history: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        value = model(s.batch()).square().mean()
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for mine, one in zip(average, model.parameters(), strict=True):
                mine.lerp_(one, 0.01)
        history.append(value.detach())
        return value.detach()

    return step


def plain_distillation(s: Setting) -> Step:
    """A teacher that is used, out of the graph; every second backward pass is added to the first."""
    teacher, student = s.net(3), s.net(1)
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3, momentum=0.9)

    def step() -> torch.Tensor:
        total = torch.zeros((), device=s.device)
        optimizer.zero_grad()
        for _ in range(2):
            x = s.batch()
            with torch.no_grad():
                target = teacher(x)
            value = F.mse_loss(student(x), target)
            value.backward()
            total += value.detach()
        optimizer.step()
        return total

    return step


JOBS = {
    make.__name__: make
    for make in (
        teacher_in_graph,
        frozen_backbone,
        careless_gan,
        unused_head,
        statistics_unread,
        forward_again_for_metric,
        loss_again,
        backward_of_each_loss,
        mask_in_every_step,
        prompt_in_every_step,
        adjacency_in_every_step,
        weights_cast_in_every_step,
        evaluation_in_every_step,
        scores_of_all_tokens,
        layer_for_each_edge,
        plain_training,
        plain_distillation,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=JOBS)
    parser.add_argument("--edited", action="store_true")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=0)
    asked = parser.parse_args()
    size = asked.size or (4096 if asked.device == "cuda" else 256)
    step = JOBS[asked.name](Setting(asked.device, size, asked.edited))
    total, began = torch.zeros((), device=asked.device), time.perf_counter()
    for number in range(asked.steps):
        if number == asked.steps // 2:
            began = time.perf_counter()
        total += step()
    value = total.item()
    taken = (time.perf_counter() - began) / (asked.steps - asked.steps // 2)
    print(f"LOSSES {value!r} STEP_MS {1e3 * taken:.3f}")


if __name__ == "__main__":
    main()
