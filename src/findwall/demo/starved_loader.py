"""A small training job whose batches are made one sample at a time in the training process itself."""

import math
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 600
POINTS = torch.arange(512)


class Waves(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 64 * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        # The planted wall: a transform in plain Python, point by point.
        wave = [math.sin(0.01 * index * point) + math.cos(0.02 * point) for point in range(512)]
        return torch.tensor(wave), index % 10


model = nn.Sequential(nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.perf_counter()
for waves, labels in DataLoader(Waves(), batch_size=64, num_workers=0):
    loss = nn.functional.cross_entropy(model(waves), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{1e3 * (time.perf_counter() - began) / STEPS:.3f} ms per step")
