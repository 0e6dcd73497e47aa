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
    def __init__(self, run: Run, length: int = 128, width: int = 192) -> None:
        super().__init__()
        self.run = run
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
        self.words = nn.Embedding(WORDS, 192)
        self.blocks = nn.ModuleList([nn.LSTM(192, 192, batch_first=True), nn.GRU(192, 192, batch_first=True)])
        self.last = nn.Linear(192, WORDS)

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
        self.first, self.last = nn.Linear(16, 96), nn.Linear(96, 1)
        self.blocks = nn.ModuleList(Messages(96) for _ in range(4))

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
        lambda count: [torch.randint(WORDS, (count, 128)), torch.randint(WORDS, (count, 128))],
        lambda model, batch: functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()),
        batch=8,
    ),
    "recurrent": Job(
        lambda run: [Recurrent(run)],
        lambda count: [torch.randint(WORDS, (count, 48)), torch.randint(WORDS, (count, 48))],
        lambda model, batch: functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()),
        batch=24,
    ),
    "graphs": Job(
        lambda run: [Graphs(run)],
        lambda count: [torch.randn(count, 64, 16), torch.randint(64, (count, 2, 256)), torch.randn(count)],
        lambda model, batch: functional.mse_loss(model(batch[0], batch[1]), batch[2]),
        batch=32,
    ),
}
