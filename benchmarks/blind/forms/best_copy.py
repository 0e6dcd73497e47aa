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
EVERY = 50 if args.fix else 1
net = nn.Sequential(nn.EmbeddingBag(8000, 96, sparse=True), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(),
                    nn.Linear(96, 6))
table, dense = [net[0].weight], [p for m in net[1:] for p in m.parameters()]
opts = [torch.optim.SparseAdam(table, lr=1e-3), torch.optim.Adam(dense, lr=1e-3)]
docs, labels = torch.randint(0, 8000, (512, 24)), torch.randint(0, 6, (512,))
snapshot, times = None, []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 16) * 32
    loss = F.cross_entropy(net(docs[i:i + 32]), labels[i:i + 32])
    for opt in opts:
        opt.zero_grad()
    loss.backward()
    for opt in opts:
        opt.step()
    if not torch.isfinite(loss):
        net.load_state_dict(snapshot["net"])
        for opt, state in zip(opts, snapshot["opts"]):
            opt.load_state_dict(state)
    elif step % EVERY == 0:
        snapshot = copy.deepcopy({"net": net.state_dict(), "opts": [o.state_dict() for o in opts]})
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
