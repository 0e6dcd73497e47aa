"""A small dataset seen many times: ResNet-50, epochs of 16 batches, a DataLoader with 12 workers whose dataset reads its
manifest (JSON lines) when a worker first needs it.

Why: without `persistent_workers` each epoch starts twelve processes anew, each reads the manifest again, and the first batch
comes a second later. Within an epoch the loader is far ahead of the GPU.
Trap: fifteen of sixteen steps show no wait for data at all.
Fixes: persistent: persistent_workers=True. preload: the manifest is read once, before the workers are forked.
"""

import json
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["data", "loader-starved"]]
FIXES = ["persistent", "preload"]
TRUTH_STEPS = 64


class Manifest(Dataset):
    def __init__(self, path, length, side):
        self.path, self.length, self.side, self.rows = path, length, side, None
        self.pixels = np.random.default_rng(0).integers(0, 256, (side + 32, side + 32, 3), dtype=np.uint8)

    def load(self):
        with open(self.path) as lines:
            self.rows = [json.loads(line) for line in lines]

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.rows is None:
            self.load()
        row = self.rows[i]
        y, x = row["box"][:2]
        crop = self.pixels[y : y + self.side, x : x + self.side]
        return torch.from_numpy(np.ascontiguousarray(crop.transpose(2, 0, 1))), row["label"]


def write_manifest(path, rows):
    rng = np.random.default_rng(0)
    boxes = rng.integers(0, 32, (rows, 4)).tolist()
    with open(path, "w") as out:
        for i, box in enumerate(boxes):
            out.write(json.dumps({"file": f"images/{i:08d}.jpg", "box": box, "label": i % 64, "tags": ["a", "b"], "w": 640, "h": 480}))
            out.write("\n")


def main():
    args = arguments(288, FIXES, cpu_steps=6)
    if args.gpu:
        import torchvision

        model, side, batch, per_epoch, rows, workers = torchvision.models.resnet50(weights=None, num_classes=64), 224, 64, 16, 250_000, 12
    else:
        model = nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 64))
        side, batch, per_epoch, rows, workers = 32, 4, 2, 100, 1
    model = model.to(args.device, memory_format=torch.channels_last)
    folder = tempfile.mkdtemp(prefix="few_shot_")
    path = os.path.join(folder, "manifest.jsonl")
    write_manifest(path, rows)
    data = Manifest(path, per_epoch * batch, side)
    if args.fix == "preload":
        data.load()
    loader = DataLoader(data, batch, shuffle=True, num_workers=workers, pin_memory=args.gpu,
                        persistent_workers=args.fix == "persistent")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    clock = Clock(args.steps, per_epoch)
    done = 0
    while done < args.steps:
        for images, labels in loader:
            images = images.to(args.device, non_blocking=True).float().sub_(120).div_(60)
            labels = labels.to(args.device, non_blocking=True)
            with torch.autocast(args.device.type, torch.bfloat16):
                loss = F.cross_entropy(model(images.contiguous(memory_format=torch.channels_last)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            clock.tick()
            if done == args.steps:
                break
    print(f"{done // per_epoch} epochs, loss {loss.item():.3f}")
    clock.report()
    os.remove(path)
    os.rmdir(folder)


if __name__ == "__main__":
    main()
