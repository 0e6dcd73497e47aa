import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class BilinearCNN(nn.Module):
    def __init__(self, fix):
        super().__init__()
        self.fix = fix
        self.conv = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(),
                                  nn.Conv2d(16, 48, 3, stride=2), nn.ReLU())
        self.out = nn.Linear(48 * 48, 10)

    def forward(self, img):
        f = self.conv(img).flatten(2).transpose(1, 2)
        if self.fix:
            pooled = f.transpose(1, 2) @ f
        else:
            pooled = (f.unsqueeze(3) * f.unsqueeze(2)).sum(1)
        pooled = pooled.flatten(1) / f.shape[1]
        return self.out(F.normalize(pooled.sign() * (pooled.abs() + 1e-6).sqrt()))


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
model = BilinearCNN(args.fix)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images, labels = torch.rand(128, 3, 32, 32), torch.randint(0, 10, (128,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 8) * 16
    loss = F.cross_entropy(model(images[i:i + 16]), labels[i:i + 16])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
