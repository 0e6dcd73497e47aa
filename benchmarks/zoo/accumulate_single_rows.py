"""A small GPT with gradients accumulated over four micro-batches of one text, and a log line an update.

Truth: overhead / launch-bound. A micro-batch of 128 tokens costs the host as many launches as one of
thousands, and the device has done with it at once. Nothing forces four: the four texts in one batch
fit easily and take one round of launches.
"""

import os

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["one_batch"]
MICRO = 4


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    length, vocabulary, width, depth = (128, 8192, 512, 12) if size == "gpu" else (8, 64, 32, 1)
    words = nn.Embedding(vocabulary, width)
    blocks = [Block(width, max(1, width // 64)) for _ in range(depth)]
    model = nn.Sequential(words, *blocks, nn.Linear(width, vocabulary, bias=False)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    texts = torch.randint(vocabulary, (MICRO, length + 1), device=device)
    parts = [texts] if fix == "one_batch" else list(texts.split(1))
    log = open(os.devnull, "w")  # noqa: SIM115  (kept open for the life of the job, as a logger is)

    def step() -> None:
        total = torch.zeros((), device=device)
        for ids in parts:
            with torch.autocast(device, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            (loss / len(parts)).backward()
            total += loss.detach() / len(parts)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        log.write(f"loss {total.item():.4f} norm {norm.item():.3f}\n")

    return step


if __name__ == "__main__":
    main(make, FIXES, steps=300)
