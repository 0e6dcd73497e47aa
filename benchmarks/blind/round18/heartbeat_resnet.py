"""Beat classification in two-lead ECG with a 1-D residual network; the run log keeps the usual curves and histograms."""
import argparse
import json
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class RunLog:
    """Appends one JSON line a record."""

    def __init__(self, folder):
        self.file = open(pathlib.Path(folder) / "metrics.jsonl", "w")

    def scalars(self, step, **values):
        self.file.write(json.dumps({"step": step, **values}) + "\n")

    def histogram(self, step, name, values, bins=64):
        counts, edges = np.histogram(values, bins=bins)
        self.file.write(json.dumps({"step": step, "name": name, "counts": counts.tolist(), "edges": edges.tolist()}) + "\n")

    def close(self):
        self.file.close()


class TorchRunLog(RunLog):
    def histogram(self, step, name, values, bins=64):
        low, high = torch.aminmax(values)
        counts = torch.histc(values, bins, low.item(), high.item())
        self.file.write(json.dumps({"step": step, "name": name, "counts": counts.int().tolist(),
                                    "edges": [low.item(), high.item()]}) + "\n")


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv1d(cin, cout, 7, stride, 3, bias=False)
        self.conv2 = nn.Conv1d(cout, cout, 7, 1, 3, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm1d(cout), nn.BatchNorm1d(cout)
        self.skip = nn.Conv1d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class BeatNet(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv1d(2, width, 15, 2, 7)
        self.stages = nn.Sequential(Residual(width, width, 2), Residual(width, 2 * width, 2),
                                    Residual(2 * width, 4 * width, 2), Residual(4 * width, 8 * width, 2))
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x):
        return self.head(self.stages(F.relu(self.stem(x))).mean(-1))


def beats(n, length, classes, seed=2):
    """Five Gaussian waves per beat; the class shifts and scales them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    place, size = rng.uniform(0.1, 0.9, (classes, 5)), rng.normal(0, 1, (classes, 2, 5))
    t = np.linspace(0, 1, length)
    centre = place[y] + rng.normal(0, 0.01, (n, 5))
    waves = np.exp(-((t - centre[:, :, None]) / 0.02) ** 2)
    x = np.einsum("nlw,nwt->nlt", size[y], waves) + rng.normal(0, 0.4, (n, 2, length))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def train(args, folder):
    gpu = args.device == "cuda"
    width, batch, length, count = (64, 512, 1024, 20_000) if gpu else (20, 32, 256, 3000)
    torch.manual_seed(0)
    x, y = (v.to(args.device) for v in beats(count, length, 8))
    model = BeatNet(width, 8).to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    log = TorchRunLog(folder) if args.fix == "histc" else RunLog(folder)
    every = 100 if args.fix == "every_100" else 1
    recent = []
    for step in range(args.steps):
        if step == args.steps // 3:
            torch.cuda.synchronize() if gpu else None
            t0 = time.perf_counter()
        rows = torch.randint(count, (batch,), device=args.device)
        loss = F.cross_entropy(model(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % every == 0:
            for name, p in model.named_parameters():
                log.histogram(step, f"weights/{name}", p.detach().cpu())
                log.histogram(step, f"gradients/{name}", p.grad.cpu())
        recent.append(loss.detach())
        if step % 20 == 19:
            log.scalars(step, loss=torch.stack(recent[-20:]).mean().item())
    torch.cuda.synchronize() if gpu else None
    spent = time.perf_counter() - t0
    log.close()
    print(f"loss first {recent[0].item():.5f} last {torch.stack(recent[-20:]).mean().item():.5f}")
    print(f"mean step ms {spent * 1e3 / (args.steps - args.steps // 3):.3f}")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="every_100, histc")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        train(args, folder)


if __name__ == "__main__":
    main()
