"""A plain Accelerate loop with mixed precision left at its default, "no".

Truth: compute / fast-path-off. PyTorch leaves TF32 off for matmuls, so a 2048-wide MLP runs in true
fp32 on the vector units.
"""

import torch
from accelerate import Accelerator
from changes import compiled, precision, switches
from stepclock import Step, main
from torch import nn

WALLS = [["compute", "fast-path-off"]]
ALSO = []
FIXES = ["tf32", "bf16", "compile", "compile_tf32", "compile_bf16"]


def make(size: str, fix: str | None = None) -> Step:
    tokens, width, depth = (16384, 2048, 3) if size == "gpu" else (32, 32, 2)
    switches(fix)
    accelerator = Accelerator(cpu=size == "cpu")
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    x = torch.randn(tokens, width, device=accelerator.device)
    run = compiled(model, fix)

    def step() -> None:
        with precision(x.device.type, fix):
            loss = run(x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(make, steps=60)
