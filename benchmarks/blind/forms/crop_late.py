import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
HALO, SIZE = 4, 48


class Refiner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 12, 5, padding=2), nn.ReLU(),
                                    nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
                                    nn.Conv2d(12, 1, 3, padding=1))

    def forward(self, image, top, left):
        if args.fix:
            part = image[:, :, top - HALO:top + SIZE + HALO, left - HALO:left + SIZE + HALO]
            return self.layers(part)[:, :, HALO:-HALO, HALO:-HALO]
        return self.layers(image)[:, :, top:top + SIZE, left:left + SIZE]


model = Refiner()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
images = torch.rand(16, 3, 160, 160)
masks = (images.mean(1, keepdim=True) > 0.5).float()
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i, top, left = step % 8 * 2, 10 + step % 90, 100 - step % 90
    logits = model(images[i:i + 2], top, left)
    loss = F.binary_cross_entropy_with_logits(logits, masks[i:i + 2, :, top:top + SIZE, left:left + SIZE])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
