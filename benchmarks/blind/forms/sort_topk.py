import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)


class TwoTower(nn.Module):
    def __init__(self, items=60000, d=24):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(50, 64), nn.ReLU(), nn.Linear(64, d))
        self.items = nn.Parameter(torch.randn(items, d))

    def recommend(self, features, k):
        scores = self.user(features) @ self.items.T
        if args.fix:
            return scores.topk(k, dim=1)
        values, order = torch.sort(scores, dim=1, descending=True)
        return values[:, :k], order[:, :k]


model = TwoTower().eval()
users = torch.randn(400, 50)
clicked = torch.randint(0, 60000, (400,))
hits, times = 0, []
with torch.no_grad():
    for step in range(args.steps):
        t0 = time.perf_counter()
        i = (step * 4) % 400
        scores, found = model.recommend(users[i:i + 4], 20)
        hits += int((found == clicked[i:i + 4, None]).any(1).sum())
        times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(-scores.mean().item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
