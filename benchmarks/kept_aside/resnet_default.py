"""A small ResNet trained as PyTorch comes: fp32 tensors, NCHW, BatchNorm, SGD with momentum.

Truth: the device, on NCHW layout. Convolutions already use TF32 (cuDNN's default) and are not the
larger part: BatchNorm over NCHW maps, cuDNN's turning of layouts around its tensor-core kernels, and
ReLU, residual adds and pooling are. bf16 alone therefore gives almost nothing; channels_last takes the
layout kernels out and gives BatchNorm better kernels, and on top of it bf16 gives a quarter more.

Fixes: channels_last: model and images in channels_last. bf16: autocast. bf16_channels_last: both.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["bandwidth", "layout-copies"], ["bandwidth", "unfused-pointwise"]]
ALSO = []
FIXES = ["channels_last", "bf16", "bf16_channels_last"]


class Basic(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.down: nn.Module = nn.Identity()
        if stride != 1 or before != width:
            self.down = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.down(x))


def resnet(width: int) -> nn.Module:
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    blocks: list[nn.Module] = []
    before = width
    for stage in range(4):
        for part in range(2 if stage == 0 else 1):
            blocks.append(Basic(before, width << stage, 2 if stage and not part else 1))
            before = width << stage
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *tail)


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    fix = fix or ""
    batch, side, width = (192, 224, 64) if size == "gpu" else (2, 32, 8)
    model = resnet(width).to(device)
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(1000, (batch,), device=device)
    if "channels_last" in fix:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loss_of = nn.CrossEntropyLoss()

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled="bf16" in fix):
            loss = loss_of(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(make)
