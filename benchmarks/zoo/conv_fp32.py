"""A convolutional trunk trained in plain fp32 with TF32 switched off.

Truth: compute / fast-path-off. Six 3x3 convolutions of 256 channels carry nearly all of the step
and run on the vector units; with TF32 or bf16 the same work goes to the tensor cores.
"""

import torch
from changes import compiled, optimizer_kind
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["compute", "fast-path-off"]]
ALSO = []
FIXES = [
    "tf32",
    "bf16",
    "channels_last",
    "tf32_channels_last",
    "bf16_channels_last",
    "cudnn_benchmark",
    "fused",
    "compile",
    "compile_bf16_channels_last",
]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, width, side, depth = (64, 256, 56, 6) if size == "gpu" else (2, 16, 16, 3)
    changes = fix or ""
    torch.backends.cudnn.allow_tf32 = "tf32" in changes
    torch.backends.cuda.matmul.allow_tf32 = "tf32" in changes
    torch.backends.cudnn.benchmark = "cudnn_benchmark" in changes
    layers = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **optimizer_kind(fix))
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(1000, (batch,), device=device)
    if "channels_last" in changes:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    run = compiled(model, fix)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled="bf16" in changes):
            loss = nn.functional.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
