"""Compiled inference with `dynamic=False` on batches whose length never repeats.

Truth: overhead / recompilation. Each new length is a new program: tracing and code generation take
hundreds of times as long as the model. With dynamic shapes one program serves all.
"""

import itertools

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "recompilation"]]
ALSO = []
FIXES = ["dynamic"]
LENGTHS = itertools.count(65)  # one count for the process: a length once compiled must not come again


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    width = 1024 if size == "gpu" else 32
    torch._dynamo.config.recompile_limit = 10_000
    torch._dynamo.config.accumulated_recompile_limit = 10_000
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width))
    compiled = torch.compile(model.to(device, torch.bfloat16), dynamic=fix == "dynamic")

    @torch.no_grad()
    def step() -> torch.Tensor:
        return compiled(torch.randn(8, next(LENGTHS), width, device=device, dtype=torch.bfloat16))

    return step


if __name__ == "__main__":
    main(make, steps=10, warmup=2, most=10)
