"""A convolutional network that goes channels-last and back around every LayerNorm.

Truth: bandwidth / layout-copies. `permute(...).contiguous()` twice a layer (and again in the
backward pass) moves the whole activation only to reorder it. Kept channels-last from end to end
there is nothing to copy.
"""

import torch
from changes import compiled, switches
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "layout-copies"]]
ALSO = []
FIXES = ["stay_channels_last", "channels_last", "compile", "cudnn_benchmark"]


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(width), nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.permute(0, 2, 3, 1).contiguous()
        x = self.norm(x)
        x = x.permute(0, 3, 1, 2).contiguous()
        return self.conv(x)


class LastLayer(Layer):
    """The same arithmetic on (batch, height, width, channels), where a 1x1 convolution is a matmul."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.norm(x), self.conv.weight.flatten(1), self.conv.bias)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    switches(fix)
    batch, width, side, depth = (128, 256, 56, 8) if size == "gpu" else (2, 16, 8, 2)
    kind = LastLayer if fix == "stay_channels_last" else Layer
    model = nn.Sequential(*[kind(width) for _ in range(depth)]).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    shape = (batch, side, side, width) if fix == "stay_channels_last" else (batch, width, side, side)
    x = torch.randn(shape, device=device, dtype=torch.bfloat16)
    if fix == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    run = compiled(model, fix)

    def step() -> None:
        run(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
