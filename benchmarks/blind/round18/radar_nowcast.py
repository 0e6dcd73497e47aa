"""Rain gauge nowcasting from radar tiles: archives of one day each on disk, a small CNN, Huber loss."""
import argparse
import pathlib
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_archives(folder, days, per_day, size, seed=0):
    """One .npz a day with 'radar' [per_day, 4, size, size] float32 and 'gauge' [per_day] in mm/h."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size
    for day in range(days):
        centre, drift = rng.random((per_day, 2, 1, 1)), rng.normal(0, 0.05, (per_day, 2, 1, 1))
        strength = rng.gamma(1.5, 2.0, (per_day, 1, 1))
        frames = []
        for t in range(4):
            y, x = centre[:, 0] + t * drift[:, 0], centre[:, 1] + t * drift[:, 1]
            frames.append(strength * np.exp(-30 * ((yy - y) ** 2 + (xx - x) ** 2)))
        radar = np.stack(frames, 1).astype(np.float32)
        radar += rng.normal(0, 0.1, radar.shape).astype(np.float32)
        y, x = centre[:, 0] + 6 * drift[:, 0], centre[:, 1] + 6 * drift[:, 1]
        gauge = (strength * np.exp(-30 * ((0.5 - y) ** 2 + (0.5 - x) ** 2))).reshape(-1).astype(np.float32)
        np.savez(folder / f"day{day:03d}.npz", radar=radar, gauge=gauge)


class RadarDays(Dataset):
    def __init__(self, folder, per_day, load_once=False):
        paths = sorted(folder.glob("*.npz"))
        self.days = [np.load(p) for p in paths]
        if load_once:
            self.days = [{key: day[key] for key in day.files} for day in self.days]
        self.per_day = per_day

    def __len__(self):
        return len(self.days) * self.per_day

    def __getitem__(self, index):
        day, i = divmod(index, self.per_day)
        archive = self.days[day]
        tile = np.log1p(np.maximum(archive["radar"][i], 0))
        return torch.from_numpy(tile), float(archive["gauge"][i])


class Nowcaster(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers, cin = [], 4
        for cout in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(cin, cout, 3, stride=2, padding=1), nn.GroupNorm(4, cout), nn.SiLU()]
            cin = cout
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(16 * width, 64), nn.SiLU(), nn.Linear(64, 1), nn.Softplus())

    def forward(self, x):
        return self.head(self.features(x)).squeeze(1)


def forever(loader):
    while True:
        yield from loader


def run(args, folder):
    gpu = args.device == "cuda"
    days, per_day, size, batch, width = (64, 256, 128, 64, 64) if gpu else (24, 96, 32, 24, 16)
    write_archives(folder, days, per_day, size)
    torch.manual_seed(0)
    workers = 2 if args.fix == "workers" else 0
    data = RadarDays(folder, per_day, args.fix == "load_once")
    if workers:
        # an open zip handle cannot be shared between processes
        data.days = [pathlib.Path(day.fid.name) for day in data.days]
    loader = DataLoader(data, batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0,
                        worker_init_fn=open_again if workers else None)
    model = Nowcaster(width).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    stream, losses = forever(loader), []
    for step in range(args.steps):
        if step == args.steps // 3:
            torch.cuda.synchronize() if gpu else None
            start = time.perf_counter()
        tiles, rain = next(stream)
        tiles, rain = tiles.to(args.device), rain.to(args.device, torch.float32)
        loss = nn.functional.huber_loss(model(tiles), rain)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize() if gpu else None
    spent = time.perf_counter() - start
    print(f"huber first {losses[0].item():.5f} last {torch.stack(losses[-20:]).mean().item():.5f}")
    print(f"mean step ms {spent * 1e3 / (args.steps - args.steps // 3):.3f}")


def open_again(_):
    data = torch.utils.data.get_worker_info().dataset
    data.days = [np.load(p) for p in data.days]


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="load_once, workers")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
