"""A job that already profiles itself now and then, and spends its time in hand-written Mish
activations.

Truth: bandwidth / unfused-pointwise. softplus, tanh and a product over large activations as
separate kernels; `nn.functional.mish` is one. The job's own torch.profiler session must come
through unharmed.
"""

import torch
from stepclock import Step, arguments, block_ms, device_of
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"]]
ALSO = []
FIXES = ["builtin"]


def mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(torch.log(1 + torch.exp(x)))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, width, depth = (131072, 512, 8) if size == "gpu" else (64, 32, 2)
    activation = nn.functional.mish if fix == "builtin" else mish
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)]).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4, fused=True)
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)

    def step() -> None:
        h = x
        for layer in layers:
            h = activation(layer(h))
        h.mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    chosen = arguments(steps=200)
    step = make(chosen.size)
    for _ in range(5):
        step()
    print(f"mean step ms {block_ms(step, chosen.steps):.3f}")
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        for _ in range(max(chosen.steps, 6)):
            step()
            profiler.step()
    print(f"own profiler saw {len(profiler.key_averages())} kinds of events")


if __name__ == "__main__":
    main()
