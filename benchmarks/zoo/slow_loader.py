"""Image training with real augmentation work in two loader workers.

Truth: data / loader-starved. Two workers make a batch in several times the time the device needs
for it; the loop stands in `next(loader)`. More workers, or batches that are already on the device,
show it.
"""

import torch
from changes import compiled
from stepclock import Step, device_of, main
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["data", "loader-starved"]]
ALSO = []
FIXES = ["workers4", "workers8", "workers12", "workers16", "resident", "compile"]


class Images(Dataset):
    def __init__(self, side: int) -> None:
        self.side = side

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        dice = torch.Generator().manual_seed(index)
        image = torch.rand(1, 3, self.side, self.side, generator=dice)
        for scale in (0.9, 1.1):
            image = nn.functional.interpolate(image, scale_factor=scale, mode="bicubic", antialias=True)
            image = (image - image.mean()) / (image.std() + 1e-5)
        image = nn.functional.interpolate(image, size=(self.side, self.side), mode="bilinear", antialias=True)
        return image[0], index % 1000


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width, workers = (48, 192, 128, 2) if size == "gpu" else (4, 32, 8, 1)
    workers = int(fix.removeprefix("workers")) if fix and fix.startswith("workers") else workers
    convs: list[nn.Module] = [nn.Conv2d(3, width, 4, stride=4)]
    for _ in range(4):
        convs += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    model = nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)).to(device)
    model = model.to(memory_format=torch.channels_last)
    run = compiled(model, fix)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loader = iter(DataLoader(Images(side), batch, num_workers=workers, pin_memory=device == "cuda"))
    resident = next(loader)

    def step() -> None:
        images, labels = resident if fix == "resident" else next(loader)
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make, steps=30)
