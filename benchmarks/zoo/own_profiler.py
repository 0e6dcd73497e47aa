"""A job that already profiles itself now and then, and spends its time in hand-written Mish
activations.

Truth: bandwidth / unfused-pointwise. softplus, tanh and a product over large activations as
separate kernels; `nn.functional.mish` is one. The job's own torch.profiler session must come
through unharmed.
"""

import torch
from changes import compiled
from stepclock import Step, arguments, device_of, timed_ms
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"]]
ALSO = []
FIXES = ["builtin", "compile", "builtin_compile", "reduce_overhead"]


def mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(torch.log(1 + torch.exp(x)))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, width, depth = (131072, 512, 8) if size == "gpu" else (64, 32, 2)
    activation = nn.functional.mish if "builtin" in (fix or "") else mish
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)]).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4, fused=True)
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)

    def forward(h: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            h = activation(layer(h))
        return h

    run = compiled(forward, fix)

    def step() -> None:
        run(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    chosen = arguments(steps=200, fixes=FIXES)
    step = make(chosen.size, chosen.fix)
    for _ in range(5):
        step()
    print(f"mean step ms {timed_ms(step, chosen):.3f}", flush=True)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        for _ in range(max(chosen.steps, 6)):
            step()
            profiler.step()
    print(f"own profiler saw {len(profiler.key_averages())} kinds of events")


if __name__ == "__main__":
    main()
