"""An encoder in fp16 whose attention with relative-position bias is written out as softmax(QK' +
bias)V.

Truth: bandwidth / unfused-attention. The score matrix of every head is written and read several
times in each direction; scaled_dot_product_attention takes the bias as its mask and never writes
it.
"""

import torch
from changes import compiled, switches
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "unfused-attention"]]
ALSO = []
FIXES = ["sdpa", "compile", "sdpa_compile", "reduce_overhead", "tf32"]


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, length: int, sdpa: bool) -> None:
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("bias", torch.randn(1, heads, length, length) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.sdpa:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        else:
            scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5 + self.bias
            mixed = scores.softmax(-1) @ v
        return x + self.out(mixed.transpose(1, 2).reshape(b, t, c))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    switches(fix)
    batch, length, width, heads, depth = (8, 2048, 1024, 16, 4) if size == "gpu" else (2, 16, 32, 2, 2)
    dtype = torch.float16 if size == "gpu" else torch.bfloat16
    layers = [Layer(width, heads, length, "sdpa" in (fix or "")) for _ in range(depth)]
    model = nn.Sequential(*layers).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(batch, length, width, device=device, dtype=dtype)
    run = compiled(model, fix)

    def step() -> None:
        run(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
