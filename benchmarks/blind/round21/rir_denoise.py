"""Dereverberation: clean clip -> simulated room -> 1-D conv net -> clean clip."""
import argparse
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
SR = 8000


def make_rirs(n, taps, gen):
    t = torch.arange(taps) / SR
    rt60 = 0.08 + 0.3 * torch.rand(n, 1, generator=gen)
    rir = torch.randn(n, taps, generator=gen) * torch.exp(-6.9 * t / rt60)
    rir[:, 0] = 1.0
    return rir / rir.norm(dim=1, keepdim=True)


def make_clips(n, length, gen):
    t = torch.arange(length) / SR
    f0 = 80 + 300 * torch.rand(n, 4, 1, generator=gen)
    amp = torch.rand(n, 4, 1, generator=gen)
    return (amp * torch.sin(2 * torch.pi * f0 * t)).sum(1) / 4


def reverberate(wav, rir, use_fft=False):
    b, n = wav.shape
    k = rir.shape[1]
    if use_fft:
        size = n + k
        out = torch.fft.irfft(torch.fft.rfft(wav, size) * torch.fft.rfft(rir, size), size)
        return out[:, :n]
    padded = F.pad(wav, (k - 1, 0))
    return F.conv1d(padded[None], rir.flip(-1)[:, None], groups=b)[0]


class Dereverb(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.enc = nn.Conv1d(1, ch, 16, stride=8, padding=4)
        self.mid = nn.ModuleList(nn.Conv1d(ch, ch, 3, padding=2 ** i, dilation=2 ** i) for i in range(3))
        self.dec = nn.ConvTranspose1d(ch, 1, 16, stride=8, padding=4)

    def forward(self, x):
        h = F.relu(self.enc(x[:, None]))
        for c in self.mid:
            h = h + F.relu(c(h))
        return self.dec(h)[:, 0]


def main(cfg):
    gen = torch.Generator().manual_seed(11)
    torch.manual_seed(11)
    clips, rirs = make_clips(256, 4000, gen), make_rirs(64, 4000, gen)
    model = Dereverb()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    total, counted = 0.0, 0
    for step in range(cfg.steps):
        start = perf_counter()
        clean = clips[torch.randint(256, (8,), generator=gen)]
        room = rirs[torch.randint(64, (8,), generator=gen)]
        wet = reverberate(clean, room, cfg.fix)
        wet = wet + 0.01 * torch.randn(wet.shape, generator=gen)
        loss = F.l1_loss(model(wet), clean)
        opt.zero_grad()
        loss.backward()
        opt.step()
        value = loss.item()
        if step >= cfg.steps // 3:
            total += perf_counter() - start
            counted += 1
        if step % 150 == 0:
            print(f"[{step}] l1={value:.4f}")
    print(f"loss {value:.5f}")
    print(f"mean step ms {total / counted * 1e3:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=650)
    parser.add_argument("--fix", action="store_true")
    main(parser.parse_args())
