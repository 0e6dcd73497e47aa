"""Keyword spotting on far-field audio: log-free front end (trainable PCEN on mel energies) and a depthwise-separable CNN."""
import argparse
import math
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    sr: int = 16000
    seconds: float = 4.0
    n_fft: int = 512
    hop: int = 160
    mels: int = 40
    batch: int = 16
    width: int = 32
    blocks: int = 3
    words: int = 12


def mel_matrix(cfg):
    hz = torch.linspace(0, cfg.sr / 2, cfg.n_fft // 2 + 1)
    top = 2595 * math.log10(1 + (cfg.sr / 2) / 700)
    edges = 700 * (10 ** (torch.linspace(2595 * math.log10(1 + 60 / 700), top, cfg.mels + 2) / 2595) - 1)
    up = (hz[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[None, 2:] - hz[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(up, down).clamp_min(0)


class MelEnergy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.register_buffer("window", torch.hann_window(cfg.n_fft))
        self.register_buffer("fb", mel_matrix(cfg))

    @torch.no_grad()
    def forward(self, wave):
        spec = torch.stft(wave, self.cfg.n_fft, self.cfg.hop, window=self.window, return_complex=True)
        power = spec.real.square() + spec.imag.square()
        return (power.transpose(1, 2) @ self.fb).transpose(1, 2)      # batch, mels, frames


class PCEN(nn.Module):
    """Per-channel energy normalisation, every constant trained; the smoother starts from the first frame."""

    def __init__(self, mels, fix):
        super().__init__()
        self.fix = fix
        self.log_s = nn.Parameter(torch.tensor(math.log(0.04)))
        self.log_alpha = nn.Parameter(torch.full((mels, 1), math.log(0.96)))
        self.log_delta = nn.Parameter(torch.full((mels, 1), math.log(2.0)))
        self.log_r = nn.Parameter(torch.full((mels, 1), math.log(0.5)))

    def smooth(self, energy):
        s = self.log_s.exp()
        if self.fix == "closed_form":
            t = torch.arange(energy.shape[-1], device=energy.device)
            lag = (t[None, :] - t[:, None]).clamp_min(0)
            gain = torch.where(t[:, None] == 0, torch.ones_like(s), s)
            weight = (gain * torch.exp(lag * torch.log1p(-s))).triu()
            return energy @ weight
        level = energy[..., 0]
        out = [level]
        for frame in energy.unbind(-1)[1:]:
            level = (1 - s) * level + s * frame
            out.append(level)
        return torch.stack(out, -1)

    def forward(self, energy):
        smooth = self.smooth(energy)
        alpha, delta, r = self.log_alpha.exp(), self.log_delta.exp(), self.log_r.exp()
        gain = torch.exp(-alpha * torch.log(smooth + 1e-6))
        return (energy * gain + delta).pow(r) - delta.pow(r)


class Separable(nn.Sequential):
    def __init__(self, ch):
        super().__init__(nn.Conv2d(ch, ch, 3, padding=1, groups=ch, bias=False), nn.Conv2d(ch, ch, 1, bias=False),
                         nn.BatchNorm2d(ch), nn.ReLU(inplace=True))


class Spotter(nn.Module):
    def __init__(self, cfg, fix):
        super().__init__()
        self.mel, self.pcen = MelEnergy(cfg), PCEN(cfg.mels, fix)
        self.stem = nn.Sequential(nn.Conv2d(1, cfg.width, (10, 8), (4, 4), (4, 3), bias=False),
                                  nn.BatchNorm2d(cfg.width), nn.ReLU(inplace=True))
        self.body = nn.Sequential(*[Separable(cfg.width) for _ in range(cfg.blocks)])
        self.out = nn.Linear(cfg.width, cfg.words)

    def forward(self, wave):
        x = self.pcen(self.mel(wave))
        return self.out(self.body(self.stem(x[:, None])).mean((2, 3)))


def recordings(cfg, n, device):
    """Each word is a pair of gliding tones; loudness and background vary from clip to clip."""
    g = torch.Generator().manual_seed(3)
    t = torch.arange(int(cfg.sr * cfg.seconds)) / cfg.sr
    label = torch.randint(cfg.words, (n,), generator=g)
    f0 = 200 + 90 * label[:, None]
    glide = 40 * torch.rand(n, 1, generator=g)
    tone = torch.sin(2 * math.pi * (f0 * t + glide * t ** 2)) + 0.5 * torch.sin(2 * math.pi * (2.5 * f0 * t))
    loud = 10 ** (-1.5 * torch.rand(n, 1, generator=g))
    return (loud * (tone + 0.7 * torch.randn(n, len(t), generator=g))).to(device), label.to(device)


def fit(cfg, steps, fix, device):
    torch.manual_seed(0)
    waves, labels = recordings(cfg, 256, device)
    net = Spotter(cfg, fix).to(device)
    opt = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=1e-3, fused=True)
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    began = None
    for i in range(steps):
        if i == steps // 3:
            wait()
            began = time.perf_counter()
        pick = torch.randint(len(waves), (cfg.batch,), device=device)
        loss = F.cross_entropy(net(waves[pick]), labels[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
    wait()
    return loss.item(), 1e3 * (time.perf_counter() - began) / (steps - steps // 3)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fix", default="")
    cli.add_argument("--device", default="cpu")
    opts = cli.parse_args()
    config = Config(batch=256, width=128, blocks=6) if opts.device == "cuda" else Config()
    final, ms = fit(config, opts.steps, opts.fix, opts.device)
    print(f"last loss {final:.4f}")
    print(f"mean step ms {ms:.3f}")
