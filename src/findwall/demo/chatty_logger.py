"""A small training job that writes a long record of itself, in plain Python, every step."""

import json
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 600

model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))


def log(step: int) -> int:
    record = {f"metric_{name}": [round(step * value / 7, 6) for value in range(64)] for name in range(150)}
    return len(json.dumps(record, sort_keys=True))


began = time.perf_counter()
for step in range(STEPS):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # The planted wall: nobody reads this record, and every step waits for it.
    log(step)
print(f"{1e3 * (time.perf_counter() - began) / STEPS:.3f} ms per step")
