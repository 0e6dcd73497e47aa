import argparse
import copy
import time

import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50000, 64, sparse=True)
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))

    def forward(self, ids):
        return self.body(self.words(ids))


model = Tagger()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
DECAY = 0.99
averaged = copy.deepcopy(model.state_dict())
fast = [averaged[k] for k, _ in model.named_parameters()]
ids, tags = torch.randint(0, 50000, (64, 8, 16)), torch.randint(0, 12, (64, 8, 16))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    loss = F.cross_entropy(model(ids[step % 64]).flatten(0, 1), tags[step % 64].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if args.fix:
        torch._foreach_lerp_(fast, [p.detach() for p in model.parameters()], 1 - DECAY)
    else:
        averaged = {k: DECAY * averaged[k] + (1 - DECAY) * v for k, v in model.state_dict().items()}
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item() + averaged["body.0.weight"].sum().item(), 4))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
