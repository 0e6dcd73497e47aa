"""torchvision's ResNet-50 as it comes: fp32 tensors, NCHW, SGD with momentum, batch 128 on the device.

Truth: bandwidth / unfused-pointwise. Convolutions use TF32 already (cuDNN's default). Norms,
activations and residual additions as passes of their own over fp32 maps take as long as they do, with
layouts turned around the convolutions. Compiling fuses the first, channels-last ends the second, and
16-bit values halve all of it once the layout is right.
"""

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"], ["bandwidth", "memory-roof"], ["bandwidth", "layout-copies"]]
ALSO = []
FIXES = ["compile", "channels_last", "bf16", "bf16_channels_last", "compile_bf16_channels_last"]


class Basic(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + x)


def network(size: str) -> nn.Module:
    if size == "cpu":  # torchvision is not needed where only the script is tried
        parts = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]
        return nn.Sequential(*parts, Basic(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000))
    from torchvision.models import resnet50

    return resnet50(weights=None)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    changes = fix or ""
    batch, side = (128, 224) if size == "gpu" else (2, 32)
    model = network(size).to(device)
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(1000, (batch,), device=device)
    if "channels_last" in changes:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    run = torch.compile(model) if "compile" in changes else model
    loss_of = nn.CrossEntropyLoss()

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled="bf16" in changes):
            loss = loss_of(run(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(make, FIXES, steps=100)
