"""A feature extractor that turns its activations to fp32 after every layer, to be on the safe side.

Truth: bandwidth / dtype-casts. Between two bf16 matmuls the activation is written as fp32 and
turned back to bf16: two kernels that compute nothing.
"""

import torch
from changes import compiled
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "dtype-casts"]]
ALSO = []
FIXES = ["stay_bf16", "compile", "stay_bf16_compile", "reduce_overhead"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, depth = (262144, 512, 16) if size == "gpu" else (64, 32, 3)
    weights = [nn.Linear(width, width, bias=False).to(device, torch.bfloat16) for _ in range(depth)]
    images = torch.randn(tokens, width, device=device)

    stay = "stay_bf16" in (fix or "")

    def forward(x: torch.Tensor) -> torch.Tensor:
        if stay:
            x = x.to(torch.bfloat16)
            for layer in weights:
                x = layer(x)
            return x.float()
        for layer in weights:
            x = layer(x.to(torch.bfloat16)).float()
        return x

    run = compiled(forward, fix)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return run(images)

    return step


if __name__ == "__main__":
    main(make)
