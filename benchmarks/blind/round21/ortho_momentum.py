"""Trains a small MLP-mixer with an orthogonalised-momentum optimizer (exact Muon)."""
import argparse
import time

import torch
from torch import nn

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=850)
parser.add_argument("--fix", action="store_true")
opts = parser.parse_args()


class OrthoMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if "m" not in st:
                    st["m"] = torch.zeros_like(p)
                m = st["m"].mul_(group["beta"]).add_(p.grad)
                if p.ndim == 2:
                    u, s, vh = torch.linalg.svd(m, full_matrices=not opts.fix)
                    k = s.numel()
                    update = u[:, :k] @ vh[:k]
                    update *= max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                else:
                    update = m
                p.add_(update, alpha=-group["lr"])


class Mixer(nn.Module):
    def __init__(self, tokens=16, dim=32, expand=16, classes=10):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tok = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.ch = nn.Sequential(nn.Linear(dim, expand * dim), nn.GELU(), nn.Linear(expand * dim, dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = x + self.tok(self.n1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.ch(self.n2(x))
        return self.head(x.mean(1))


torch.manual_seed(5)
model = Mixer()
optimizer = OrthoMomentum(model.parameters(), lr=0.005)
w_true = torch.randn(16 * 32, 10)
elapsed = []
for step in range(opts.steps):
    begin = time.perf_counter()
    x = torch.randn(32, 16, 32)
    y = (x.flatten(1) @ w_true).argmax(1)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    elapsed.append(time.perf_counter() - begin)
    if step % 100 == 0:
        print("step", step, "loss", f"{loss.item():.4f}")

tail = elapsed[opts.steps // 3:]
print(f"loss {loss.item():.5f}")
print(f"mean step ms {sum(tail) / len(tail) * 1000:.3f}")
