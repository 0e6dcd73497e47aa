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


def conv(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1), nn.ReLU())


backbone = nn.Sequential(conv(3, 16, 1), conv(16, 16, 2), conv(16, 32, 2), conv(32, 64, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten())
head = nn.Linear(64, 10)
opt = torch.optim.Adam(head.parameters(), lr=1e-3)
images, labels = torch.rand(256, 3, 32, 32), torch.randint(0, 10, (256,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 8) * 32
    if args.fix:
        with torch.no_grad():
            features = backbone(images[i:i + 32])
    else:
        features = backbone(images[i:i + 32])
    loss = F.cross_entropy(head(features), labels[i:i + 32])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
