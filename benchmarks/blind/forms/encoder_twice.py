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


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
                                    nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(),
                                    nn.Flatten(), nn.Linear(16 * 14 * 14, 32))
        self.decode = nn.Linear(32, 28 * 28)
        self.classify = nn.Linear(32, 10)

    def reconstruction(self, x):
        return F.mse_loss(self.decode(self.encode(x)), x.flatten(1))

    def label_loss(self, x, y):
        return F.cross_entropy(self.classify(self.encode(x)), y)

    def sparsity(self, x):
        return self.encode(x).abs().mean()

    def loss(self, x, y):
        if args.fix:
            z = self.encode(x)
            return (F.mse_loss(self.decode(z), x.flatten(1)) + F.cross_entropy(self.classify(z), y)
                    + 0.01 * z.abs().mean())
        return self.reconstruction(x) + self.label_loss(x, y) + 0.01 * self.sparsity(x)


model = AutoEncoder()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
X, Y = torch.rand(256, 1, 28, 28), torch.randint(0, 10, (256,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 16) * 16
    loss = model.loss(X[i:i + 16], Y[i:i + 16])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
