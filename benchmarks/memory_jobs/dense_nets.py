"""Jobs of dense layers: a perceptron, a ranker of embeddings, two nets that play against each other."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from memory_jobs.training import Batch, Job, Run


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.dropout(functional.gelu(self.up(self.norm(x))), 0.1))


class Perceptron(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        width = 512 * run.wide
        self.first, self.last = nn.Linear(256, width), nn.Linear(width, 100)
        self.blocks = nn.ModuleList(Layer(width) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        for block in self.blocks:
            x = self.run.block(block, x)
        return self.last(x)


class Ranker(nn.Module):
    """Large tables, a small net on top."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        times, width = 4 * run.wide, 256 * run.wide
        self.tables = nn.ModuleList(
            nn.Embedding(rows * times // 4, 8 * times) for rows in (60_000, 30_000, 9_000, 500)
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.BatchNorm1d(width)) for _ in range(3)
        )
        self.first, self.last = nn.Linear(4 * 8 * times + 16, width), nn.Linear(width, 1)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        found = [table(ids[:, at] % table.num_embeddings) for at, table in enumerate(self.tables)]
        x = self.first(torch.cat([*found, numbers], dim=1))
        for block in self.blocks:
            x = self.run.block(block, x)
        return self.last(x).squeeze(1)


class Upsampler(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, width = run, 64 * run.wide
        self.first = nn.Linear(64, width * 8 * 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Upsample(scale_factor=2),
                nn.Conv2d(width, width, 3, padding=1),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            )
            for _ in range(2)
        )
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, noise: Tensor) -> Tensor:
        x = self.first(noise).unflatten(1, (-1, 8, 8))
        for block in self.blocks:
            x = self.run.block(block, x)
        return torch.tanh(self.last(x))


def critic() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 64, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 1),
    )


def train_pair(
    run: Run, models: list[nn.Module], optimizers: list[torch.optim.Optimizer], batch: Batch
) -> None:
    """The critic first, then the one it judges, each with its own optimizer."""
    make, judge = models
    (real,) = batch
    for optimizer, judged in zip(reversed(optimizers), ("both", "made"), strict=True):
        for part in run.parts([real]):
            with run.autocast():
                noise = torch.randn(len(part[0]), 64, device=real.device, dtype=real.dtype)
                made = make(noise)
                if judged == "both":
                    loss = (
                        functional.softplus(-judge(part[0])).mean()
                        + functional.softplus(judge(made.detach())).mean()
                    )
                else:
                    loss = functional.softplus(-judge(made)).mean()
            run.backward(loss)
        run.update(optimizer)


JOBS = {
    "perceptron": Job(
        lambda run: [Perceptron(run)],
        lambda count, _: [torch.randn(count, 256), torch.randint(100, (count,))],
        lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1]),
        batch=(64, 8192),
    ),
    "ranker": Job(
        lambda run: [Ranker(run)],
        lambda count, _: [
            torch.randint(1 << 20, (count, 4)),
            torch.randn(count, 16),
            torch.rand(count).round(),
        ],
        lambda model, batch: functional.binary_cross_entropy_with_logits(model(batch[0], batch[1]), batch[2]),
        batch=(4096, 65_536),
    ),
    "pair": Job(
        lambda run: [Upsampler(run), critic()],
        lambda count, _: [torch.randn(count, 3, 32, 32)],
        batch=(48, 256),
        train=train_pair,
    ),
}
