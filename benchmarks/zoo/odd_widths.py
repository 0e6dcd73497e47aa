"""A stack of MLP blocks in bf16 whose widths are 1023 and 4093.

Truth: compute / misaligned-shapes. No dimension is a multiple of 8, so the tensor-core kernels with
wide loads cannot be used; 1024 and 4096 do (slightly) more arithmetic in much less time.
"""

import torch
from changes import compiled, optimizer_kind
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["compute", "misaligned-shapes"]]
ALSO = []
FIXES = ["pad", "compile", "pad_compile", "foreach"]


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, hidden, depth = (32768, 1023, 4093, 4) if size == "gpu" else (64, 31, 61, 2)
    if "pad" in (fix or ""):
        width, hidden = (width + 7) // 8 * 8, (hidden + 7) // 8 * 8
    model = nn.Sequential(*[Block(width, hidden) for _ in range(depth)]).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **optimizer_kind(fix, fused=True))
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    run = compiled(model, fix)

    def step() -> None:
        run(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
