"""A small training job whose batches are made one sample at a time in the training process itself."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Waves(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        # The planted wall: a transform in plain Python, sample by sample.
        wave = [math.sin(0.01 * index * point) + math.cos(0.02 * point) for point in range(256)]
        return torch.tensor(wave), index % 10


model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (waves, labels) in enumerate(DataLoader(Waves(), batch_size=64, num_workers=0)):
    loss = nn.functional.cross_entropy(model(waves), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 600:
        break
