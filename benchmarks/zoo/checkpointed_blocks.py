"""Transformer blocks under activation checkpointing on a card with plenty of memory left.

Truth: compute / recompute. Every block's forward runs a second time in the backward pass: about a
quarter of the step, all of it given back when the checkpoints are taken out (the activations fit
many times over).
"""

import torch
from changes import compiled
from stepclock import Step, device_of, main
from torch import nn
from torch.utils.checkpoint import checkpoint

WALLS = [["compute", "recompute"]]
ALSO = []
FIXES = ["no_checkpoint", "compile", "no_checkpoint_compile"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, width, heads, depth = (8, 2048, 4096, 32, 4) if size == "gpu" else (1, 16, 32, 2, 2)
    with torch.device(device):
        blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)]).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4, fused=True)
    tokens = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)

    kept = "no_checkpoint" in (fix or "")

    def forward(x: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            x = block(x) if kept else checkpoint(block, x, use_reentrant=False)
        return x

    run = compiled(forward, fix)

    def step() -> None:
        run(tokens).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
