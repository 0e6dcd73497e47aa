"""A job with a large replay buffer of Python objects that calls `gc.collect()` after every step.

Truth: overhead / gc-pause. The collector walks a million live containers to free nothing while the
device waits. A trace does not show the collector: from a trace alone it is Python work with no op
under it.
"""

import gc

import torch
from changes import compiled
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "gc-pause"], ["overhead", "host-work"]]
ALSO = []
FIXES = ["no_collect", "freeze", "compile"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, objects = (8192, 4096, 400_000) if size == "gpu" else (32, 32, 2000)
    gc.unfreeze()
    replay = [{"state": [i, i + 1], "action": [i % 7]} for i in range(objects)]
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    model = model.to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    run = compiled(model, fix)
    if fix == "freeze":
        gc.collect()
        gc.freeze()

    def step() -> int:
        run(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if fix != "no_collect":
            gc.collect()
        return len(replay)

    return step


if __name__ == "__main__":
    main(make)
