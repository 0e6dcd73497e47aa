"""Jobs of sequences and graphs: attention written out, recurrent layers, messages along edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from memory_jobs.training import Job, Run

WORDS = 2000


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, length, width = run, 128 * run.wide, 192 * run.wide
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Attention(width, 4) for _ in range(4))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = self.run.block(block, x, self.mask)
        return self.last(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        width = 192 * run.wide
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(kind(width, width, batch_first=True) for kind in (nn.LSTM, nn.GRU))
        self.last = nn.Linear(width, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = self.run.block(lambda given, block=block: block(given)[0], x)
        return self.last(x)


class Messages(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.edge, self.node = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        told = functional.silu(self.edge(torch.cat([x[source], x[target]], dim=1)))
        heard = torch.zeros_like(x).index_add(0, target, told.to(x.dtype))
        return self.norm(x + functional.silu(self.node(torch.cat([x, heard], dim=1))))


class Graphs(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        width = 96 * run.wide
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(Messages(width) for _ in range(4))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        graphs, per_graph = nodes.shape[:2]
        x = self.first(nodes.flatten(0, 1))
        first = torch.arange(graphs, device=nodes.device)[:, None, None] * per_graph
        source, target = (edges + first).transpose(0, 1).reshape(2, -1)
        for block in self.blocks:
            x = self.run.block(block, x, source, target)
        return self.last(x).view(graphs, per_graph).mean(1)


JOBS = {
    "transformer": Job(
        lambda run: [Transformer(run)],
        lambda count, wide: [torch.randint(WORDS, (count, 128 * wide)) for _ in range(2)],
        lambda model, batch: functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()),
        batch=(8, 32),
    ),
    "recurrent": Job(
        lambda run: [Recurrent(run)],
        lambda count, wide: [torch.randint(WORDS, (count, 48 * wide)) for _ in range(2)],
        lambda model, batch: functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()),
        batch=(24, 256),
    ),
    "graphs": Job(
        lambda run: [Graphs(run)],
        lambda count, _: [torch.randn(count, 64, 16), torch.randint(64, (count, 2, 256)), torch.randn(count)],
        lambda model, batch: functional.mse_loss(model(batch[0], batch[1]), batch[2]),
        batch=(32, 512),
    ),
}
