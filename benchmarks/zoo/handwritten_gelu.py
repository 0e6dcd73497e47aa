"""Feed-forward blocks with RMSNorm and tanh-GELU written out by hand.

Truth: bandwidth / unfused-pointwise. Each formula is eight or more kernels that read and write the
whole activation; PyTorch's own `gelu` and `rms_norm` do the same in one.
"""

import torch
from changes import compiled, optimizer_kind
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"]]
ALSO = []
FIXES = ["builtin", "compile", "builtin_compile", "reduce_overhead", "foreach"]


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


class Block(nn.Module):
    def __init__(self, width: int, builtin: bool) -> None:
        super().__init__()
        self.builtin = builtin
        self.weight = nn.Parameter(torch.ones(width))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.builtin:
            h = nn.functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)
            return x + self.down(nn.functional.gelu(self.up(h), approximate="tanh"))
        return x + self.down(gelu(self.up(rms_norm(x, self.weight))))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, depth = (32768, 1024, 6) if size == "gpu" else (64, 32, 2)
    builtin = "builtin" in (fix or "")
    model = nn.Sequential(*[Block(width, builtin) for _ in range(depth)]).to(device, torch.bfloat16)
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
