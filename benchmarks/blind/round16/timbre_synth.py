"""Timbre autoencoder: a TCN controls a harmonic + filtered-noise synthesiser, trained on multi-resolution spectra."""
import argparse
import dataclasses
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Config:
    sample_rate: int = 16000
    hop: int = 64
    frames: int = 1000
    batch: int = 16
    harmonics: int = 100
    noise_bands: int = 65
    width: int = 384
    layers: int = 8
    fft_sizes: tuple = (2048, 1024, 512, 256, 128, 64)


class TCNBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(1, ch)
        self.conv = nn.Conv1d(ch, ch, 3, padding=dilation, dilation=dilation)
        self.out = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        return x + self.out(F.gelu(self.conv(self.norm(x))))


class Controller(nn.Module):
    """f0 and loudness per frame -> harmonic distribution, overall amplitude, noise filter."""

    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Conv1d(2, cfg.width, 1)
        self.blocks = nn.Sequential(*[TCNBlock(cfg.width, 2 ** (i % 6)) for i in range(cfg.layers)])
        self.heads = nn.Conv1d(cfg.width, cfg.harmonics + 1 + cfg.noise_bands, 1)
        self.split = (cfg.harmonics, 1, cfg.noise_bands)

    def forward(self, f0, loud):
        x = torch.stack([torch.log2(f0.clamp(min=20.0) / 440.0), loud], 1)
        y = self.heads(self.blocks(self.embed(x))).transpose(1, 2)
        y = 2.0 * torch.sigmoid(y) ** math.log(10.0) + 1e-7
        return y.split(self.split, -1)


def upsample(x, hop):
    """Frame-rate controls (B, F, C) to audio rate (B, F * hop, C), linear between frames."""
    nxt = torch.cat([x[:, 1:], x[:, -1:]], 1)
    w = (torch.arange(hop, device=x.device, dtype=x.dtype) / hop).view(hop, 1)
    return torch.lerp(x.unsqueeze(2), nxt.unsqueeze(2), w).flatten(1, 2)


def harmonic_synth(f0, amps, cfg, phase="bank"):
    # f0 (B, F, 1), amps (B, F, K)
    ratios = torch.arange(1, cfg.harmonics + 1, device=f0.device, dtype=f0.dtype)
    amps = amps * (f0 * ratios < cfg.sample_rate / 2)
    omega = upsample(f0, cfg.hop) * (2.0 * math.pi / cfg.sample_rate)
    if phase == "fundamental":
        phases = torch.cumsum(omega, 1) * ratios
    else:
        phases = torch.cumsum(omega * ratios, 1)
    return (torch.sin(phases) * upsample(amps, cfg.hop)).sum(-1)


def noise_synth(mags, cfg):
    B, n, bands = mags.shape
    ir = torch.fft.irfft(mags, n=2 * (bands - 1))
    ir = torch.roll(ir, bands - 1, -1) * torch.hann_window(ir.shape[-1], device=ir.device)
    noise = torch.rand(B, n, cfg.hop, device=mags.device) * 2 - 1
    size = 256
    y = torch.fft.irfft(torch.fft.rfft(noise, size) * torch.fft.rfft(ir, size), size)
    y = F.fold(y.transpose(1, 2), (1, (n - 1) * cfg.hop + size), (1, size), stride=(1, cfg.hop))
    return y[:, 0, 0, bands - 1:bands - 1 + n * cfg.hop]


def spectral_loss(x, y, cfg):
    total = 0.0
    for n in cfg.fft_sizes:
        win = torch.hann_window(n, device=x.device)
        a, b = [torch.stft(s, n, n // 4, window=win, return_complex=True).abs() for s in (x, y)]
        total = total + (a - b).abs().mean() + (torch.log(a + 1e-5) - torch.log(b + 1e-5)).abs().mean()
    return total


def phrases(cfg, device):
    """Vibrato tones with decaying partials, played at random pitch."""
    t_frame = torch.arange(cfg.frames, device=device) * cfg.hop / cfg.sample_rate
    t = torch.arange(cfg.frames * cfg.hop, device=device) / cfg.sample_rate
    while True:
        base = 110.0 * 2 ** (2 * torch.rand(cfg.batch, 1, device=device))
        f0 = base * (1 + 0.01 * torch.sin(2 * math.pi * 5.0 * t_frame))
        loud = torch.exp(-1.5 * (t_frame % 1.0)).expand(cfg.batch, -1)
        tone = sum(torch.sin(2 * math.pi * base * k * t) / k for k in range(1, 5)) * torch.exp(-1.5 * (t % 1.0))
        yield f0, loud, 0.2 * tone


def run(cfg, steps, device, fix):
    torch.manual_seed(5)
    net = Controller(cfg).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    phase = "fundamental" if "fundamental" in fix else "bank"
    history = []
    stream = phrases(cfg, device)
    for it in range(steps):
        if it == steps // 2:
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
        f0, loud, audio = next(stream)
        dist, amp, mags = net(f0, loud)
        amps = amp * dist / dist.sum(-1, keepdim=True)
        out = harmonic_synth(f0.unsqueeze(-1), amps, cfg, phase) + 0.05 * noise_synth(mags, cfg)
        loss = spectral_loss(out, audio, cfg)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 3.0)
        opt.step()
        history.append(loss.detach())
    if device == "cuda":
        torch.cuda.synchronize()
    print("MEAN_STEP_MS %.3f" % ((time.perf_counter() - start) / (steps - steps // 2) * 1e3))
    print("loss %.5f" % torch.stack(history[-5:]).mean().item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fix", default="")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    opts = parser.parse_args()
    conf = Config()
    if opts.tiny:
        conf = Config(frames=60, batch=2, harmonics=20, width=32, layers=2, fft_sizes=(512, 128))
    torch.backends.cuda.matmul.allow_tf32 = True
    run(conf, opts.steps, "cpu" if opts.cpu else "cuda", opts.fix.split(","))
