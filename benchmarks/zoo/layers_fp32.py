"""Layers without a model around them: the forward pass is a function of the script, all in fp32.

Truth: compute / fast-path-off. The products run in fp32 off the tensor cores; norms, activations and residual
sums between them are the script's own code, so that autocast and the compiler must reach what lies between
the layers, not the layers alone.
"""

import torch
from changes import compiled, precision
from fixclock import Step, device_of, main
from torch import nn
from torch.nn import functional

WALLS = [["compute", "fast-path-off"]]
ALSO = []
FIXES = ["compile", "bf16", "compile_bf16"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, depth = (32768, 1024, 8) if size == "gpu" else (16, 32, 3)
    norms = [nn.LayerNorm(width).to(device) for _ in range(depth)]
    layers = [nn.Linear(width, width).to(device) for _ in range(depth)]
    optimizer = torch.optim.SGD([one for part in (*norms, *layers) for one in part.parameters()], lr=1e-3)
    rows, wanted = torch.randn(2, tokens, width, device=device)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(norms, layers, strict=True):
            x = x + functional.gelu(layer(norm(x)))
        return x

    run = compiled(forward, fix)

    def step() -> None:
        with precision(device, fix):
            loss = functional.mse_loss(run(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(make, FIXES, steps=100)
