"""Post-processing of numerical weather forecasts: shared encoder of the grid columns, own calibration head per station,
quantiles of tomorrow's gusts, pinball loss."""
import argparse
import math
import time

import torch
from torch import nn


class Calibration(nn.Module):
    """What is special about one station: exposure, height, sea breeze."""

    def __init__(self, dim, hidden, quantiles):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, quantiles)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


class PerStation(nn.Module):
    def __init__(self, stations, dim, hidden, quantiles):
        super().__init__()
        self.heads = nn.ModuleList(Calibration(dim, hidden, quantiles) for _ in range(stations))

    def forward(self, x):                                   # batch, station, dim
        out = []
        for head, column in zip(self.heads, x.unbind(1)):
            out.append(head(column))
        return torch.stack(out, 1)


class StackedStations(nn.Module):
    def __init__(self, stations, dim, hidden, quantiles):
        super().__init__()
        heads = [Calibration(dim, hidden, quantiles) for _ in range(stations)]
        stack = lambda get: nn.Parameter(torch.stack([get(h).detach() for h in heads]))
        self.w1, self.b1 = stack(lambda h: h.fc1.weight.t()), stack(lambda h: h.fc1.bias[None])
        self.w2, self.b2 = stack(lambda h: h.fc2.weight.t()), stack(lambda h: h.fc2.bias[None])

    def forward(self, x):
        h = torch.relu(torch.baddbmm(self.b1, x.transpose(0, 1), self.w1))
        return torch.baddbmm(self.b2, h, self.w2).transpose(0, 1)


class GustModel(nn.Module):
    def __init__(self, stations, features, dim, hidden, quantiles, head):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 2 * dim), nn.SiLU(), nn.LayerNorm(2 * dim), nn.Linear(2 * dim, dim), nn.SiLU())
        self.head = head(stations, dim, hidden, quantiles)
        self.register_buffer("prior", torch.linspace(-1.5, 1.5, quantiles))

    def forward(self, columns):
        return self.prior + self.head(self.encoder(columns))


class Archive:
    """Reforecasts: a common weather state seen through each station's own response."""

    def __init__(self, days, stations, features, device):
        gen = torch.Generator().manual_seed(7)
        weather = torch.randn(days, 1, features, generator=gen)
        local = 0.5 * torch.randn(days, stations, features, generator=gen)
        self.x = (weather + local).to(device)
        response = torch.randn(stations, features, generator=gen) / math.sqrt(features)
        noise = torch.randn(days, stations, generator=gen)
        self.y = (torch.einsum("dsf,sf->ds", weather + local, response) + 0.3 * noise).to(device)

    def batch(self, n):
        day = torch.randint(len(self.x), (n,), device=self.x.device)
        return self.x[day], self.y[day]


def pinball(pred, target, levels):
    err = target.unsqueeze(-1) - pred
    return torch.maximum(levels * err, (levels - 1) * err).mean()


def train(model, archive, levels, steps, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    on_gpu = levels.is_cuda
    losses = []
    for step in range(steps):
        if step == steps // 3:
            if on_gpu:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        x, y = archive.batch(batch)
        loss = pinball(model(x), y, levels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if on_gpu:
        torch.cuda.synchronize()
    return torch.stack(losses), (time.perf_counter() - t0) / (steps - steps // 3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--fix", default="")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.manual_seed(0)
    stations, features, dim, hidden, batch, days = (1500, 64, 256, 64, 256, 600) if args.device == "cuda" else (240, 24, 32, 16, 32, 730)
    levels = torch.tensor([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95], device=args.device)
    archive = Archive(days, stations, features, args.device)
    head = StackedStations if args.fix == "stacked" else PerStation
    model = GustModel(stations, features, dim, hidden, len(levels), head).to(args.device)
    losses, seconds = train(model, archive, levels, args.steps, batch)
    print(f"pinball first {losses[0].item():.4f} last {losses[-10:].mean().item():.4f}")
    print(f"mean step ms {1e3 * seconds:.3f}")


if __name__ == "__main__":
    main()
