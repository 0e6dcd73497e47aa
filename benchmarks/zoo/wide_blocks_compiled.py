"""Two very wide transformer blocks, bf16, fused attention, torch.compile: a job with nothing much
wrong.

Truth: compute / at-the-roof. Width 8192 and 8192 tokens: the matmuls carry the step and run near
what the card can do; what is left beside them is a few percent.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["compute", "at-the-roof"]]
ALSO = []
FIXES = []


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, width, heads = (4, 2048, 8192, 64) if size == "gpu" else (1, 16, 32, 2)
    with torch.device(device):
        model = nn.Sequential(Block(width, heads), Block(width, heads)).to(torch.bfloat16)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)

    def step() -> None:
        compiled(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
