import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
B, CLIP = 32, 1.0


def sample_loss(params, x, y):
    return F.cross_entropy(functional_call(model, params, (x[None],)), y[None])


def per_sample(x, y):
    if args.fix:
        grads = vmap(grad(sample_loss), in_dims=(None, 0, 0))(dict(model.named_parameters()), x, y)
        return [g.detach() for g in grads.values()]
    rows = []
    for i in range(len(x)):
        loss = F.cross_entropy(model(x[i:i + 1]), y[i:i + 1])
        rows.append(torch.autograd.grad(loss, list(model.parameters())))
    return [torch.stack(g) for g in zip(*rows)]


X, Y = torch.randn(512, 24), torch.randint(0, 4, (512,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step * B) % 512
    grads = per_sample(X[i:i + B], Y[i:i + B])
    norm = torch.stack([g.flatten(1).norm(dim=1) for g in grads]).norm(dim=0)
    scale = (CLIP / norm).clamp_max(1.0)
    for p, g in zip(model.parameters(), grads):
        p.grad = torch.einsum("n,n...->...", scale, g) / B
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
with torch.no_grad():
    print("loss", round(F.cross_entropy(model(X), Y).item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
