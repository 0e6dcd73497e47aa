"""Half a billion parameters, a small batch, and AdamW asked for one parameter at a time.

Truth: bandwidth / unfused-optimizer. With `foreach=False` each update is a dozen kernels that read
and write whole parameter-sized tensors; the fused optimizer goes over them once.
"""

import torch
from changes import compiled, optimizer_kind, precision
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "unfused-optimizer"]]
ALSO = []
FIXES = ["fused", "foreach", "bf16", "bf16_fused", "compile", "compile_fused"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, width, depth = (256, 8192, 8) if size == "gpu" else (8, 64, 3)
    torch.set_float32_matmul_precision("high")
    layers: list[nn.Module] = []
    with torch.device(device):
        for _ in range(depth):
            layers += [nn.Linear(width, width, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **optimizer_kind(fix, foreach=False))
    x = torch.randn(batch, width, device=device)
    run = compiled(model, fix)

    def step() -> None:
        with precision(device, fix):
            loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
