"""Electric load forecasting on a panel of meters with a dilated temporal convolution net."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.benchmark = True


class Residual(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.a = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)

    def forward(self, x):
        return x + self.b(F.relu(self.a(F.relu(x))))


class TCN(nn.Module):
    def __init__(self, meters, c, depth, horizon):
        super().__init__()
        self.inp = nn.Conv1d(meters, c, 1)
        self.body = nn.Sequential(*(Residual(c, 2 ** (i % 6)) for i in range(depth)))
        self.out = nn.Linear(c, meters * horizon)
        self.meters, self.horizon = meters, horizon

    def forward(self, x):
        h = self.body(self.inp(x))[..., -1]
        return self.out(F.relu(h)).view(-1, self.meters, self.horizon)


class Panel:
    """Hourly readings (meters, hours); standardised per meter."""

    def __init__(self, meters, hours, seed=0):
        rng = np.random.default_rng(seed)
        t = np.arange(hours)
        daily = np.sin(2 * np.pi * (t / 24 + rng.random((meters, 1))))
        weekly = np.sin(2 * np.pi * (t / 168 + rng.random((meters, 1))))
        raw = 50 + 20 * daily + 8 * weekly + 3 * rng.standard_normal((meters, hours))
        self.values = (raw - raw.mean(1, keepdims=True)) / raw.std(1, keepdims=True)

    def tensor(self, dtype=None):
        values = self.values if dtype is None else self.values.astype(dtype)
        return torch.from_numpy(values)


def windows(series, starts, history, horizon):
    idx = starts[:, None] + torch.arange(history + horizon, device=series.device)
    w = series[:, idx].transpose(0, 1)
    return w[..., :history], w[..., history:]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(13)
    meters, hours, c, depth, history, horizon, batch = (5, 300, 8, 2, 48, 4, 4) if a.tiny else (321, 8760, 128, 8, 512, 24, 64)
    series = Panel(meters, hours).tensor(np.float32 if "float32" in a.fix.split(",") else None).to(dev)
    model = TCN(meters, c, depth, horizon).to(device=dev, dtype=series.dtype)
    opt = torch.optim.Adam(model.parameters(), 1e-3, fused=not a.cpu)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        starts = torch.randint(0, hours - history - horizon, (batch,), device=dev)
        x, y = windows(series, starts, history, horizon)
        loss = F.smooth_l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.5f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
