"""Differentially private training (DP-SGD) of a small network on ECG-like beats."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

LEN, CLASSES = 180, 5


def make_beats(n, gen):
    t = torch.linspace(0, 1, LEN)
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    jitter = 0.03 * torch.randn(n, 1, generator=gen)
    qrs = torch.exp(-((t - 0.4 - jitter) / (0.02 + 0.012 * y[:, None])) ** 2)
    wave = 0.4 * torch.exp(-((t - 0.68 - jitter) / 0.06) ** 2) * (1 - 0.35 * y[:, None])
    x = qrs + wave + 0.1 * torch.randn(n, LEN, generator=gen)
    return x.unsqueeze(1), y


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 9, stride=2)
        self.norm1 = nn.GroupNorm(4, 16)
        self.conv2 = nn.Conv1d(16, 32, 7, stride=2)
        self.norm2 = nn.GroupNorm(4, 32)
        self.fc1 = nn.Linear(32 * 40, 64)
        self.fc2 = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class PrivateTrainer:
    def __init__(self, model, lr, clip, sigma, gen, together):
        self.model, self.lr, self.clip, self.sigma, self.gen = model, lr, clip, sigma, gen
        self.params = dict(model.named_parameters())
        self.sums = self.sum_together if together else self.sum_records
        self.per_record = vmap(grad(self.record_loss, has_aux=True), in_dims=(None, 0, 0))

    def record_loss(self, params, x, y):
        out = functional_call(self.model, params, (x.unsqueeze(0),))
        loss = F.cross_entropy(out, y.unsqueeze(0))
        return loss, loss

    def sum_together(self, x, y):
        params = {k: p.detach() for k, p in self.params.items()}
        grads, losses = self.per_record(params, x, y)
        sq = sum(g.flatten(1).square().sum(1) for g in grads.values())
        scale = (self.clip / (sq.sqrt() + 1e-6)).clamp(max=1)
        total = {k: torch.tensordot(scale, g, dims=1) for k, g in grads.items()}
        return total, losses.mean().item()

    def sum_records(self, x, y):
        total = {k: torch.zeros_like(p) for k, p in self.params.items()}
        mean_loss = 0.0
        for xi, yi in zip(x, y):
            self.model.zero_grad(set_to_none=True)
            loss = F.cross_entropy(self.model(xi.unsqueeze(0)), yi.unsqueeze(0))
            loss.backward()
            norm = torch.stack([p.grad.norm() for p in self.params.values()]).norm()
            scale = (self.clip / (norm + 1e-6)).clamp(max=1)
            for k, p in self.params.items():
                total[k] += scale * p.grad
            mean_loss += loss.item() / len(x)
        return total, mean_loss

    @torch.no_grad()
    def apply(self, total, n):
        for k, p in self.params.items():
            noise = torch.randn(p.shape, generator=self.gen) * (self.sigma * self.clip)
            p -= self.lr * (total[k] + noise) / n

    def step(self, x, y):
        total, loss = self.sums(x, y)
        self.apply(total, len(x))
        return loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=220)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(9)

    x, y = make_beats(4000, gen)
    trainer = PrivateTrainer(BeatNet(), 0.5, 1.0, 0.8, gen, together=args.fix)
    rate, times, spent = 64 / len(x), [], 0.0
    for step in range(args.steps):
        t0 = time.perf_counter()
        pick = torch.randperm(len(x), generator=gen)[:64]
        loss = trainer.step(x[pick], y[pick])
        spent += rate ** 2 / trainer.sigma ** 2
        times.append(time.perf_counter() - t0)
        if step % 20 == 0 or step == args.steps - 1:
            eps = 2 * spent + 2 * math.sqrt(2 * spent * math.log(1e5))
            print(f"step {step} loss {loss:.5f} eps~{eps:.2f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
