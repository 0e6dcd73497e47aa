"""A training loop that calls `torch.cuda.empty_cache()` after every step, "against fragmentation".

Truth: overhead / allocator. Every activation of the next step has to be asked of the driver again:
cudaMalloc and cudaFree, each of which also waits for the device.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "allocator"]]
ALSO = []
FIXES = ["keep_cache"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, depth = (16384, 2048, 12) if size == "gpu" else (32, 32, 2)
    layers: list[nn.Module] = []
    for i in range(depth):
        hidden = width + 256 * (i % 3)
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if fix != "keep_cache":
            torch.cuda.empty_cache()

    return step


if __name__ == "__main__":
    main(make)
