"""A causal language model whose batches are padded to their longest text: a new length every step.

Truth: overhead / recompilation. Attention runs on cuDNN, which builds a plan for every shape it has not
seen, once forward and once backward: about a hundred milliseconds of host time inside the op while the
device waits. Padded to a few lengths the plans are there after the first batches.
"""

import contextlib
import random

import torch
from fixclock import Step, device_of, main
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WALLS = [["overhead", "recompilation"]]
ALSO = []
FIXES = ["few_lengths", "flash"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norm2(x))


class Writer(nn.Module):
    def __init__(self, vocabulary: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.words(ids)))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, shortest, longest, bucket = (4, 512, 4096, 512) if size == "gpu" else (2, 8, 16, 4)
    vocabulary, width, heads, depth = (8192, 1024, 16, 4) if size == "gpu" else (64, 32, 2, 1)
    model = Writer(vocabulary, width, heads, depth).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    texts = torch.randint(1, vocabulary, (rows, longest + 1), device=device)
    # The longest text of each batch: every length once before one comes again.
    lengths = list(range(shortest, longest + 1))
    random.Random(0).shuffle(lengths)
    kernel = SDPBackend.FLASH_ATTENTION if fix == "flash" else SDPBackend.CUDNN_ATTENTION
    number = 0

    def train(length: int) -> None:
        padded = -(-length // bucket) * bucket if fix == "few_lengths" else length
        ids = torch.zeros(rows, padded + 1, dtype=torch.long, device=device)
        ids[:, : length + 1] = texts[:, : length + 1]
        chosen = sdpa_kernel([kernel]) if device == "cuda" else contextlib.nullcontext()
        with chosen:
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def step() -> None:
        nonlocal number
        train(lengths[number % len(lengths)])
        number += 1

    train(longest)  # the largest first: if memory does not do, it should show now
    if fix == "few_lengths":
        for length in range(bucket, longest, bucket):
            train(length)
    return step


if __name__ == "__main__":
    main(make, FIXES, steps=100)
