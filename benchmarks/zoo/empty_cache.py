"""A training loop that calls `torch.cuda.empty_cache()` after every step, "against fragmentation".

Truth: overhead / allocator. Every activation of the next step has to be asked of the driver again:
cudaMalloc and cudaFree, each of which also waits for the device.
"""

import torch
from changes import compiled
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "allocator"]]
ALSO = []
FIXES = ["keep_cache", "expandable_segments", "compile", "keep_cache_compile"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    if device == "cuda" and fix == "expandable_segments":
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    tokens, width, depth = (16384, 2048, 12) if size == "gpu" else (32, 32, 2)
    layers: list[nn.Module] = []
    for i in range(depth):
        hidden = width + 256 * (i % 3)
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    run = compiled(model, fix)

    def step() -> None:
        run(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if "keep_cache" not in (fix or ""):
            torch.cuda.empty_cache()

    return step


if __name__ == "__main__":
    main(make)
