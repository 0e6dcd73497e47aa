"""Image restoration: a pageable batch goes to the device, the restored batch comes back with `.cpu()`.

Truth: the copies, above all the way back. `.cpu()` of 100 MB into fresh pageable memory takes about 80
ms, the pageable copy in about 16, the network about 35, and none of the three overlap. Pinned input
alone gives a tenth; pinned both ways leaves the network. bf16 is hardly seen: the network's layout
copies and activations are most of its time and it is a quarter of the step.

Fixes: pinned_in: the batches lie in pinned memory. pinned: the result too goes to a pinned buffer, kept
from step to step, with a synchronize before it is read. bf16: the network under autocast (in and out stay
fp32 and pageable).
"""

import functools

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["data", "copy-exposed"]]
ALSO = []
FIXES = ["pinned_in", "pinned", "bf16"]


@functools.cache
def batches(batch: int, side: int) -> list[torch.Tensor]:
    return [torch.rand(batch, 3, side, side) for _ in range(2)]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width, depth = (32, 512, 48, 4) if size == "gpu" else (1, 16, 8, 2)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.PReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.PReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(width, 3, 3, padding=1)).eval().to(device)
    host = batches(batch, side)
    if device == "cuda" and fix in ("pinned_in", "pinned"):
        host = [b.pin_memory() for b in host]
    buffer = torch.empty_like(host[0], pin_memory=device == "cuda") if fix == "pinned" else None
    number, brightness = 0, 0.0

    @torch.no_grad()
    def step() -> None:
        nonlocal number, brightness
        noisy = host[number % 2].to(device, non_blocking=fix in ("pinned_in", "pinned"))
        number += 1
        with torch.autocast(device, torch.bfloat16, enabled=fix == "bf16"):
            clean = noisy - model(noisy)
        clean = clean.float().clamp_(0, 1)
        if buffer is not None:
            buffer.copy_(clean, non_blocking=True)
            if device == "cuda":
                torch.cuda.current_stream().synchronize()
            result = buffer
        else:
            result = clean.cpu()
        brightness += float(result[0, 0, 0, 0])

    return step


if __name__ == "__main__":
    main(make)
