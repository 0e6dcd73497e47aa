"""A residual MLP in default fp32 that logs the norm of every parameter's gradient, each with `.item()`.

Truth: the host. Issuing forward, backward and Adam, and between them about fifty `.item()` calls of a
launch, a wait and a read each, take longer than the device's work (under 5 ms of 7.6). True-fp32
matmuls are most of what the device does, but they are mostly under the host's time: TF32 alone gives
next to nothing while the reads stand; without the reads the fp32 matmuls are close to being the wall.

Fixes: no_item: the norms are not logged. stacked: all norms in one foreach call, stacked, one
`.tolist()`. tf32: matmul precision "high".
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-sync"], ["overhead", "launch-bound"]]
ALSO = []
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
