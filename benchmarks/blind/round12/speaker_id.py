"""Speaker identification on random crops of long recordings."""
import argparse
import os
import shutil
import tempfile
import time
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR = 16000


def write_corpus(root, n, seconds):
    rng = np.random.default_rng(0)
    base = (rng.standard_normal(seconds * SR) * 3000).astype(np.int16)
    paths = []
    for i in range(n):
        x = np.roll(base, 7919 * i) // np.int16(1 + i % 3)
        paths.append(os.path.join(root, f"spk{i:03d}.wav"))
        with wave.open(paths[-1], "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(SR)
            f.writeframes(x.tobytes())
    return paths


class Crops(Dataset):
    def __init__(self, paths, length, total, partial=False):
        self.paths, self.length, self.total, self.partial = paths, length, total, partial

    def __len__(self):
        return self.total

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        spk = int(rng.integers(len(self.paths)))
        with wave.open(self.paths[spk], "rb") as f:
            start = int(rng.integers(f.getnframes() - self.length))
            if self.partial:
                f.setpos(start)
                x = np.frombuffer(f.readframes(self.length), np.int16).astype(np.float32) / 32768.0
            else:
                x = np.frombuffer(f.readframes(f.getnframes()), np.int16).astype(np.float32) / 32768.0
                x = x[start:start + self.length]
        x = x * np.float32(10 ** (rng.uniform(-6, 6) / 20))
        return torch.from_numpy(x), spk


class LogMel(nn.Module):
    def __init__(self, n_fft=512, hop=160, mels=80):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("win", torch.hann_window(n_fft))
        hz = 700 * (10 ** (torch.linspace(0, 2840, mels + 2) / 2595) - 1)
        f = torch.linspace(0, SR / 2, n_fft // 2 + 1)
        up = (f[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
        down = (hz[2:, None] - f[None]) / (hz[2:] - hz[1:-1])[:, None]
        self.register_buffer("fb", torch.minimum(up, down).clamp(min=0))

    def forward(self, x):
        s = torch.stft(x, self.n_fft, self.hop, window=self.win, return_complex=True).abs().square()
        m = torch.log(torch.matmul(self.fb, s) + 1e-6)
        return m - m.mean(-1, keepdim=True)


class ResBlock(nn.Module):
    def __init__(self, c, dil):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(c, c, 3, padding=dil, dilation=dil), nn.Conv1d(c, c, 1)
        self.bn1, self.bn2 = nn.BatchNorm1d(c), nn.BatchNorm1d(c)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class SpeakerNet(nn.Module):
    def __init__(self, c, speakers):
        super().__init__()
        self.mel, self.inp = LogMel(), nn.Conv1d(80, c, 5, padding=2)
        self.blocks = nn.Sequential(*(ResBlock(c, d) for d in (1, 2, 3, 4)))
        self.att, self.emb = nn.Conv1d(c, c, 1), nn.Linear(2 * c, 192)
        self.cls = nn.Parameter(torch.randn(speakers, 192) * 0.1)

    def forward(self, wav):
        h = self.blocks(self.inp(self.mel(wav)))
        w = F.softmax(self.att(h), -1)
        mu = (w * h).sum(-1)
        sd = ((w * h * h).sum(-1) - mu * mu).clamp(min=1e-5).sqrt()
        return F.linear(F.normalize(self.emb(torch.cat((mu, sd), 1))), F.normalize(self.cls))


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
    speakers, seconds, crop, batch, c, workers = (4, 8, SR, 4, 16, 1) if a.tiny else (24, 300, 2 * SR, 32, 512, 6)
    root = tempfile.mkdtemp()
    try:
        data = Crops(write_corpus(root, speakers, seconds), crop, a.steps * batch, "partial_read" in fix)
        loader = DataLoader(data, batch, shuffle=False, num_workers=workers, pin_memory=dev.type == "cuda",
                            drop_last=True, prefetch_factor=2)
        net = SpeakerNet(c, speakers).to(dev)
        opt = torch.optim.AdamW(net.parameters(), 1e-3, fused=True)
        n = min(a.steps, max(3, a.steps // 2))
        for step, (wav, spk) in enumerate(loader):
            if step == a.steps - n:
                if dev.type == "cuda":
                    torch.cuda.synchronize()
                t0 = time.perf_counter()
            wav, spk = wav.to(dev, non_blocking=True), spk.to(dev, non_blocking=True)
            cos = net(wav)
            loss = F.cross_entropy(30 * (cos - 0.2 * F.one_hot(spk, speakers)), spk)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        if dev.type == "cuda":
            torch.cuda.synchronize()
        dt = time.perf_counter() - t0
        print(f"final loss {loss.item():.5f}")
        print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
