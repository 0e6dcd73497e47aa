import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)


class KronLinear(nn.Module):
    def __init__(self, n=32):
        super().__init__()
        self.n = n
        self.A = nn.Parameter(torch.eye(n) + 0.1 * torch.randn(n, n))
        self.B = nn.Parameter(torch.eye(n) + 0.1 * torch.randn(n, n))
        self.bias = nn.Parameter(torch.zeros(n * n))

    def forward(self, x):
        if args.fix:
            y = self.A @ x.view(-1, self.n, self.n) @ self.B.T
            return y.reshape(x.shape) + self.bias
        return F.linear(x, torch.kron(self.A, self.B), self.bias)


model = nn.Sequential(KronLinear(), nn.Tanh(), KronLinear(), nn.Tanh(), nn.Linear(1024, 10))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
X, Y = torch.randn(640, 1024), torch.randint(0, 10, (640,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    b = (step % 10) * 64
    loss = F.cross_entropy(model(X[b:b + 64]), Y[b:b + 64])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
