"""Keyword spotting on synthetic one-second clips (log-mel front end + small CNN)."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR, N_FFT, HOP, N_MELS = 16000, 1024, 320, 80


def hz_to_mel(f):
    return 2595 * np.log10(1 + f / 700)


def mel_to_hz(m):
    return 700 * (10 ** (m / 2595) - 1)


def mel_filters(sr, n_fft, n_mels):
    points = np.linspace(hz_to_mel(20), hz_to_mel(sr / 2), n_mels + 2)
    bins = np.floor((n_fft + 1) * mel_to_hz(points) / sr).astype(int)
    fb = np.zeros((n_mels, n_fft // 2 + 1), dtype=np.float32)
    for m in range(1, n_mels + 1):
        left, center, right = bins[m - 1], bins[m], bins[m + 1]
        for k in range(left, center):
            fb[m - 1, k] = (k - left) / (center - left)
        for k in range(center, right):
            fb[m - 1, k] = (right - k) / (right - center)
    return fb


class KeywordDataset(Dataset):
    def __init__(self, n=1024, n_classes=12, new_form=False):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, n_classes, n)
        t = np.arange(SR, dtype=np.float32) / SR
        f0 = 200 + 150 * self.labels + rng.normal(0, 15, n)
        self.waves = [(np.sin(2 * np.pi * f * t) * 0.3 + rng.normal(0, 0.2, SR)).astype(np.float32)
                      for f in f0]
        self.window = torch.hann_window(N_FFT)
        self.fb = mel_filters(SR, N_FFT, N_MELS) if new_form else None

    def __len__(self):
        return len(self.waves)

    def features(self, wave):
        fb = self.fb
        if fb is None:
            fb = mel_filters(SR, N_FFT, N_MELS)
        spec = torch.stft(torch.from_numpy(wave), N_FFT, HOP, window=self.window,
                          center=False, return_complex=True)
        power = spec.real ** 2 + spec.imag ** 2
        return torch.log(torch.from_numpy(fb) @ power + 1e-6).T

    def __getitem__(self, i):
        wave = self.waves[i]
        wave = np.roll(wave, (i * 37) % 800)
        return self.features(wave), int(self.labels[i])


class KWSNet(nn.Module):
    def __init__(self, n_classes=12, ch=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, ch, 5, stride=(2, 4), padding=2), nn.BatchNorm2d(ch), nn.ReLU(),
            nn.Conv2d(ch, ch, 3, stride=2, padding=1), nn.BatchNorm2d(ch), nn.ReLU(),
            nn.Conv2d(ch, 2 * ch, 3, padding=1), nn.BatchNorm2d(2 * ch), nn.ReLU())
        self.fc = nn.Linear(2 * ch, n_classes)

    def forward(self, x):
        return self.fc(self.conv(x.unsqueeze(1)).mean((2, 3)))


def batches(loader):
    while True:
        yield from loader


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    ds = KeywordDataset(new_form=args.fix == "v2")
    loader = DataLoader(ds, batch_size=64, shuffle=True, drop_last=True)
    net = KWSNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)

    step = 0
    for feats, labels in batches(loader):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        if step == args.steps:
            break
        logits = net(feats)
        loss = F.cross_entropy(logits, labels, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            acc = (logits.argmax(1) == labels).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} acc {acc:.3f}")
        step += 1
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
