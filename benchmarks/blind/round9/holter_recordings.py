"""Trains an arrhythmia classifier on long Holter recordings: workers stream crops from the recordings,
resample them to the model's rate, take out baseline wander and mains hum, and normalise the leads."""

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WALLS = [["data", "loader-starved"]]
FIXES = {
    "split-rows": "every worker draws crops from all recordings",
    "fused-adam": "AdamW in one fused kernel",
}
TRUTH_STEPS = 36
LEADS, RATE, NEW_RATE, HUM = 12, 360, 500, 50.0


class HolterCrops(IterableDataset):
    def __init__(self, recordings, seconds, split_rows):
        self.recordings, self.seconds, self.split_rows = recordings, seconds, split_rows

    def __iter__(self):
        worker = get_worker_info()
        mine, seed = self.recordings, 0
        if worker is not None:
            seed = worker.id
            if not self.split_rows:
                mine = self.recordings[worker.id :: worker.num_workers]
        random = np.random.default_rng(seed)
        while mine:
            for signal in mine:
                first = random.integers(0, signal.shape[1] - self.seconds * RATE)
                yield self.prepare(signal[:, first : first + self.seconds * RATE], random)

    def prepare(self, crop, random):
        stretch = random.uniform(0.95, 1.05)
        old = np.arange(crop.shape[1]) / RATE
        new = np.arange(self.seconds * NEW_RATE) / NEW_RATE * stretch
        leads = np.stack([np.interp(new, old, lead) for lead in crop])
        spectrum = np.fft.rfft(leads, axis=1)
        frequency = np.fft.rfftfreq(leads.shape[1], 1 / NEW_RATE)
        keep = (frequency > 0.5) & (frequency < 120) & (np.abs(frequency - HUM) > 1)
        clean = np.fft.irfft(spectrum * keep, n=leads.shape[1], axis=1)
        low, middle, high = np.percentile(clean, [2, 50, 98], axis=1, keepdims=True)
        clean = np.clip((clean - middle) / (high - low + 1e-6), -3, 3)
        return clean.astype(np.float32), int(random.integers(0, 9))


class BeatNet(nn.Module):
    def __init__(self, width, classes=9):
        super().__init__()
        sizes = [LEADS, width, width * 2, width * 2, width * 4, width * 4]
        self.convs = nn.ModuleList(nn.Conv1d(a, b, 9, stride=2, padding=4) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in sizes[1:])
        self.classify = nn.Linear(sizes[-1], classes)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return self.classify(x.mean(2))


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(13)
    batch, seconds, width, workers, hours = (64, 10, 128, 10, 1.0) if args.gpu else (4, 4, 8, 3, 0.02)
    random = np.random.default_rng(13)
    length = int(hours * 3600 * RATE)
    recordings = [random.standard_normal((LEADS, length), dtype=np.float32) for _ in range(2)]
    crops = HolterCrops(recordings, seconds, args.fix == "split-rows")
    loader = DataLoader(crops, batch_size=batch, num_workers=workers, pin_memory=args.gpu, prefetch_factor=2)

    model = BeatNet(width).to(args.device)
    fused = True if args.fix == "fused-adam" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)

    clock = Clock(args.steps)
    for step, (signals, beats) in enumerate(loader, 1):
        signals = signals.to(args.device, non_blocking=True)
        beats = beats.to(args.device, non_blocking=True)
        with torch.autocast(args.device.type, dtype=torch.bfloat16, enabled=args.gpu):
            loss = F.cross_entropy(model(signals), beats)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
        if step == args.steps:
            break
    clock.report()


if __name__ == "__main__":
    main()
