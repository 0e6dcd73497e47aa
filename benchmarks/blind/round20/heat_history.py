"""Heat load of a district, day ahead: an MLP with calendar inputs, run in stages, with a history for the dashboard."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXES = ("append_lines", "every_20")


def heat_load(days, stations, seed=41):
    """Hourly load and outdoor temperature of every substation: yearly and daily rhythm, weather, weekends."""
    rng = np.random.default_rng(seed)
    hour = np.arange(days * 24)
    year, day = 2 * np.pi * hour / 8766, 2 * np.pi * hour / 24
    weather = np.convolve(rng.normal(size=len(hour) + 71), np.exp(-np.arange(72) / 24), "valid") / 3
    outdoor = 8 - 10 * np.cos(year) - 3 * np.cos(day - 0.6) + 3 * weather
    size = rng.lognormal(0, 0.5, size=(stations, 1))
    weekend = (hour // 24 % 7 > 4) * 0.15
    load = size * (np.maximum(17 - outdoor, 0) * (1 - weekend) + 3 + np.sin(2 * day))
    load += 0.3 * rng.normal(size=load.shape)
    return torch.from_numpy((load / size).astype(np.float32)), torch.from_numpy(outdoor.astype(np.float32) / 10)


class Forecaster(nn.Module):
    """A week of load and temperature, and tomorrow's forecast, to the 24 values of tomorrow."""

    def __init__(self, width, depth):
        super().__init__()
        self.inner = nn.Linear(168 + 192, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(),
                                                  nn.Linear(2 * width, width)) for _ in range(depth))
        self.out = nn.Linear(width, 24)

    def forward(self, past, outdoor):
        h = self.inner(torch.cat([past, outdoor], 1))
        for block in self.blocks:
            h = h + block(h)
        return past[:, -24:] + self.out(h)


class History:
    """Everything the dashboard draws, one record a step; it survives a restart."""

    def __init__(self, path):
        self.path = Path(path)
        self.records = json.loads(self.path.read_text()) if self.path.exists() else []

    def add(self, **values):
        self.records.append({k: round(float(v), 6) for k, v in values.items()})
        self.save()

    def save(self):
        part = self.path.with_suffix(".part")
        with open(part, "w") as file:
            json.dump(self.records, file)
        part.replace(self.path)          # the dashboard must never see half a file

    def close(self):
        self.save()


class HistoryEvery(History):
    def add(self, **values):
        self.records.append({k: round(float(v), 6) for k, v in values.items()})
        if len(self.records) % 20 == 0:
            self.save()


class HistoryLines(History):
    """One line for each record, appended."""

    def __init__(self, path):
        super().__init__(path)
        self.file = self.path.with_suffix(".jsonl").open("w")
        self.file.writelines(json.dumps(r) + "\n" for r in self.records)

    def add(self, **values):
        self.file.write(json.dumps({k: round(float(v), 6) for k, v in values.items()}) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


def first_stage(path, steps):
    """Stands for the run of last week, which this one continues."""
    rng = np.random.default_rng(0)
    loss = 0.2 + np.exp(-np.arange(steps) / 900) + 0.02 * rng.random(steps)
    records = [{"step": i, "loss": round(v, 6), "mae": round(1.1 * v, 6), "lr": 1e-3, "grad_norm": round(0.7 * v, 6),
                "seconds": round(0.02 * i, 6)} for i, v in enumerate(loss.tolist())]
    Path(path).write_text(json.dumps(records))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fix", choices=FIXES)
    parser.add_argument("--size", choices=("cpu", "small"), default="cpu")
    parser.add_argument("--run", default=None, help="folder of the run")
    args = parser.parse_args()
    days, stations, width, batch, earlier = (400, 120, 192, 256, 4000) if args.size == "cpu" else (60, 8, 32, 16, 100)
    folder = tempfile.TemporaryDirectory()
    path = Path(args.run or folder.name) / "history.json"
    first_stage(path, earlier)

    torch.manual_seed(10)
    gen = torch.Generator().manual_seed(10)
    load, outdoor = heat_load(days, stations)
    model = Forecaster(width, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    history = {None: History, "append_lines": HistoryLines, "every_20": HistoryEvery}[args.fix](path)
    week, ahead = torch.arange(168), torch.arange(192)
    clock, total = [time.perf_counter()], 0.0
    for step in range(args.steps):
        station = torch.randint(stations, (batch, 1), generator=gen)
        start = 24 * torch.randint(days - 8, (batch, 1), generator=gen)
        past, target = load[station, start + week], load[station, start + 168 + ahead[:24]]
        forecast = model(past, outdoor[start + ahead])
        loss = F.smooth_l1_loss(forecast, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mae = (forecast.detach() - target).abs().mean()
        history.add(step=earlier + step, loss=loss.item(), mae=mae.item(), lr=1e-3, grad_norm=norm.item(),
                    seconds=clock[-1] - clock[0])
        total += loss.item()
        clock.append(time.perf_counter())
    history.close()
    first = args.steps // 3
    print(f"last mae {mae.item():.4f}, {len(history.records)} records")
    print(f"mean loss {total / args.steps:.6f}")
    print(f"mean step ms {1e3 * (clock[-1] - clock[first]) / (args.steps - first):.3f}")


if __name__ == "__main__":
    main()
