"""A small model that is called token by token, as people write it at first."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

PROMPT, NEW = 24, 4


class Decoder(nn.Module):
    """Two layers of attention."""

    def __init__(self, size: int, attention: str) -> None:
        super().__init__()
        self.attention = attention
        self.tokens, self.places = nn.Embedding(64, size), nn.Embedding(PROMPT + NEW, size)
        self.mixed = nn.ModuleList(nn.Linear(size, 3 * size) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(2))
        self.out = nn.Linear(size, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for mixed, layer in zip(self.mixed, self.layers, strict=True):
            heads = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in mixed(x).chunk(3, -1))
            x = x + layer(self.attend(*heads).transpose(1, 2).flatten(2)).relu()
        return self.out(x[:, -1])

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.attention in ("back", "both ways"):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self.attention == "back")
        scores = q @ k.transpose(-2, -1)
        if self.attention == "by hand":
            ahead = torch.ones(scores.shape[-2:]).triu(1).bool()
            scores = scores.masked_fill(ahead, float("-inf"))
        return scores.softmax(-1) @ v


class Job:
    def __init__(self, attention: str, size: int = 32, batch: int = 2) -> None:
        self.model, self.batch = Decoder(size, attention).eval(), batch

    @torch.no_grad()
    def whole(self) -> None:
        ids = torch.randint(0, 64, (self.batch, PROMPT))
        for _ in range(NEW):
            ids = torch.cat([ids, self.model(ids).argmax(-1, keepdim=True)], 1)

    @torch.no_grad()
    def buffered(self) -> None:
        """The same from a buffer that is filled token by token."""
        ids = torch.zeros(self.batch, PROMPT + NEW, dtype=torch.long)
        ids[:, :PROMPT] = torch.randint(0, 64, (self.batch, PROMPT))
        for at in range(PROMPT, PROMPT + NEW):
            ids[:, at] = self.model(ids[:, :at]).argmax(-1)
