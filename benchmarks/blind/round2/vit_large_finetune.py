"""ViT-L/16 fine-tuning (timm), two micro-batches of 96 images a step, bf16 autocast, fused AdamW, 8 workers, and
`set_grad_checkpointing(True)` inherited from a 24 GB card.

Why: on a card with room for ten times the activations, every block's forward is computed twice.
Trap: the loader does real work for every image and is busy, but eight workers bring several times what the GPU takes.
Fix: no_checkpointing.
"""

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

WALLS = [["compute", "recompute"]]
FIXES = ["no_checkpointing"]
TRUTH_STEPS = 27


class Shard(Dataset):
    def __init__(self, length, side):
        self.length, self.side = length, side
        self.raw = np.random.default_rng(1).integers(0, 256, (32, side + 32, side + 32, 3), dtype=np.uint8)

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        y, x = rng.integers(0, 32, 2)
        image = self.raw[i % 32, y : y + self.side, x : x + self.side].astype(np.float32)
        image = image * rng.uniform(0.8, 1.2) + rng.uniform(-10, 10)
        if rng.random() < 0.5:
            image = image[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(image.clip(0, 255).astype(np.uint8).transpose(2, 0, 1))), i % 1000


class TinyViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.head, self.remat = nn.Conv2d(3, 32, 8, 8), nn.Linear(32, 1000), False
        self.body = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(2))

    def set_grad_checkpointing(self, on):
        self.remat = on

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for layer in self.body:
            x = checkpoint(layer, x, use_reentrant=False) if self.remat else layer(x)
        return self.head(x.mean(1))


def main():
    args = arguments(130, FIXES)
    if args.gpu:
        import timm

        model, side, micro, workers = timm.create_model("vit_large_patch16_224", num_classes=1000), 224, 96, 8
    else:
        model, side, micro, workers = TinyViT(), 32, 2, 1
    model.to(args.device).train()
    model.set_grad_checkpointing(args.fix != "no_checkpointing")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.05, fused=True)
    data = Shard((2 * args.steps + 2) * micro, side)
    loader = DataLoader(data, micro, num_workers=workers, pin_memory=args.gpu, persistent_workers=True, drop_last=True)
    clock = Clock(args.steps)
    for i, (images, labels) in enumerate(loader):
        if i == 2 * args.steps:
            break
        images = images.to(args.device, non_blocking=True).float().sub_(120).div_(60)
        labels = labels.to(args.device, non_blocking=True)
        with torch.autocast(args.device.type, torch.bfloat16):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1) / 2
        loss.backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            clock.tick()
    print("loss", 2 * loss.item())
    clock.report()


if __name__ == "__main__":
    main()
