"""A residual MLP in default fp32 that logs the norm of every parameter's gradient, each with `.item()`.

Truth: two walls of about one size. The matmuls run in true fp32 (TF32 is off by default), and about
fifty `.item()` calls between the backward pass and the optimizer leave the device idle for a launch
and a read each. With TF32 alone the fifty waits and the host's issuing are what is left.

Fixes: no_item: the norms are not logged. stacked: all norms in one foreach call, stacked, one
`.tolist()`. tf32: matmul precision "high".
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["compute", "fast-path-off"], ["overhead", "host-sync"]]
ALSO = [["overhead", "host-sync"]]
FIXES = ["no_item", "stacked", "tf32"]


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.linear(self.norm(x)))


def settings(fix: str | None) -> None:
    torch.set_float32_matmul_precision("high" if fix == "tf32" else "highest")


def make(size: str, fix: str | None = None) -> Step:
    settings(fix)
    device = device_of(size)
    rows, width, depth = (2048, 1024, 12) if size == "gpu" else (16, 32, 2)
    model = nn.Sequential(*[Residual(width) for _ in range(depth)], nn.Linear(width, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(rows, width, device=device)
    y = torch.randint(10, (rows,), device=device)
    history: dict[str, float] = {}

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if fix == "stacked":
            names, grads = zip(*[(n, p.grad) for n, p in model.named_parameters()], strict=True)
            norms = torch.stack(torch._foreach_norm(grads)).tolist()
            history.update(zip(names, norms, strict=True))
        elif fix != "no_item":
            for name, parameter in model.named_parameters():
                history[name] = parameter.grad.norm().item()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(make)
