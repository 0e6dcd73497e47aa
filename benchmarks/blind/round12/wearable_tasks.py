"""Multi-task learning on wearable-sensor windows: activity, heart rate and step count."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class TemporalBlock(nn.Module):
    def __init__(self, c, dil):
        super().__init__()
        self.conv1 = nn.Conv1d(c, c, 3, padding=dil, dilation=dil)
        self.conv2 = nn.Conv1d(c, c, 3, padding=dil, dilation=dil)
        self.n1, self.n2 = nn.BatchNorm1d(c), nn.BatchNorm1d(c)

    def forward(self, x):
        h = F.relu(self.n1(self.conv1(x)))
        return F.relu(x + self.n2(self.conv2(h)))


class MultiTask(nn.Module):
    def __init__(self, sensors, c, depth, classes):
        super().__init__()
        self.inp = nn.Conv1d(sensors, c, 5, padding=2)
        self.body = nn.Sequential(*(TemporalBlock(c, 2 ** i) for i in range(depth)))
        self.activity, self.heart, self.cadence = nn.Linear(c, classes), nn.Linear(c, 1), nn.Linear(c, 1)
        self.log_var = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        h = self.body(self.inp(x)).mean(-1)
        return self.activity(h), self.heart(h).squeeze(1), self.cadence(h).squeeze(1)


def recordings(n, sensors, length, classes):
    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, n)
    t = np.arange(length) / 50.0
    freq = 0.5 + 0.3 * label[:, None, None] + 0.05 * rng.standard_normal((n, sensors, 1))
    x = np.sin(2 * np.pi * freq * t) + 0.3 * rng.standard_normal((n, sensors, length))
    x = (x - x.mean((0, 2), keepdims=True)) / x.std((0, 2), keepdims=True)
    heart = 70 + 6 * label + 3 * rng.standard_normal(n)
    steps = 20 * label + 5 * rng.standard_normal(n)
    z = lambda v: (v - v.mean()) / v.std()
    return x, label, z(heart), z(steps)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fix = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    n, sensors, length, classes, c, depth, batch = (16, 3, 32, 4, 8, 2, 4) if a.tiny else (2048, 12, 512, 12, 128, 5, 128)
    x, label, heart, cadence = (torch.from_numpy(v).to(dev) for v in recordings(n, sensors, length, classes))
    net = MultiTask(sensors, c, depth, classes)
    if "single" in fix:
        x, heart, cadence = x.float(), heart.float(), cadence.float()
        net = net.to(dev)
    else:
        net = net.double().to(dev)
    opt = torch.optim.AdamW(net.parameters(), 1e-3, fused=True)
    k = min(a.steps, 15)
    for step in range(a.steps):
        if step == a.steps - k:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        idx = torch.randint(0, n, (batch,), device=dev)
        act, hr, cad = net(x[idx])
        losses = torch.stack((F.cross_entropy(act, label[idx]), F.mse_loss(hr, heart[idx]), F.mse_loss(cad, cadence[idx])))
        loss = (losses * torch.exp(-net.log_var) + 0.5 * net.log_var).sum()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"step {step} " + " ".join(f"{v:.4f}" for v in losses.tolist()), flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final loss {loss.item():.5f}")
    print(f"MEAN_STEP_MS {dt / k * 1e3:.3f}")


if __name__ == "__main__":
    main()
