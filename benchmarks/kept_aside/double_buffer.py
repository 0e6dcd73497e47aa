"""A patch transformer fed by a hand-written double buffer: a side stream copies the next batch from
pinned memory while this one is trained on, with an event each way.

Truth: the device's own work: TF32 matmuls, fp32 pointwise passes and the patch convolution with its
layout copies. The 308 MB copy (about 6 ms) is wholly hidden under 31 ms of it, and still hidden in
bf16, so a batch that is already there gives nothing either way.

Fixes: resident: no copy at all, both buffers are filled once. bf16: forward and loss under autocast.
bf16_resident: both.
"""

import functools

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["compute", "fast-path-off"], ["bandwidth", "unfused-pointwise"], ["bandwidth", "layout-copies"]]
ALSO = []
FIXES = ["resident", "bf16", "bf16_resident"]


class PatchNet(nn.Module):
    def __init__(self, side: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.place = nn.Parameter(torch.zeros(1, (side // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.blocks(x).mean(1))


@functools.cache
def host_batches(batch: int, side: int, pinned: bool) -> list[torch.Tensor]:
    made = [torch.rand(batch, 3, side, side) for _ in range(2)]
    return [b.pin_memory() for b in made] if pinned else made


class DoubleBuffer:
    def __init__(self, host: list[torch.Tensor], device: str) -> None:
        self.host, self.number = host, 0
        self.stream = torch.cuda.Stream()
        self.slots = [torch.empty_like(host[0], device=device) for _ in range(2)]
        self.filled = [torch.cuda.Event() for _ in range(2)]
        self.free = [torch.cuda.Event() for _ in range(2)]
        self.fill(0)

    def fill(self, number: int) -> None:
        slot = number % 2
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.free[slot])
            self.slots[slot].copy_(self.host[number % len(self.host)], non_blocking=True)
            self.filled[slot].record(self.stream)

    def next(self) -> torch.Tensor:
        slot = self.number % 2
        self.fill(self.number + 1)
        torch.cuda.current_stream().wait_event(self.filled[slot])
        return self.slots[slot]

    def done(self) -> None:
        self.free[self.number % 2].record()
        self.number += 1


def settings(fix: str | None) -> None:
    torch.set_float32_matmul_precision("high")


def make(size: str, fix: str | None = None) -> Step:
    settings(fix)
    device = device_of(size)
    fix = fix or ""
    batch, side, patch, width, depth = (512, 224, 32, 640, 4) if size == "gpu" else (2, 32, 16, 64, 1)
    model = PatchNet(side, patch, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    labels = torch.randint(1000, (batch,), device=device)
    host = host_batches(batch, side, device == "cuda")
    buffer = DoubleBuffer(host, device) if device == "cuda" and "resident" not in fix else None
    there = [b.to(device) for b in host] if buffer is None else []

    def step() -> None:
        images = buffer.next() if buffer else there[0]
        with torch.autocast(device, torch.bfloat16, enabled="bf16" in fix):
            loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if buffer:
            buffer.done()

    return step


if __name__ == "__main__":
    main(make)
