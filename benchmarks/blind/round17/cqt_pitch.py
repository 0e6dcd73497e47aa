"""Multi-pitch estimation: constant-Q spectrogram of short clips, convolutions along the pitch axis, one sigmoid per semitone."""
import argparse
import functools
import math
import time

import torch
from torch import nn

SR = 16000
FMIN = 55.0
NOTES = 60


def cq_kernels(n_bins, per_octave, n_fft, device):
    """Spectra of windowed complex tones, one row a bin; the longer the lower."""
    q = 1.0 / (2 ** (1 / per_octave) - 1)
    freq = FMIN * 2 ** (torch.arange(n_bins, device=device) / per_octave)
    length = (q * SR / freq).clamp_max(n_fft)
    t = torch.arange(n_fft, device=device) - n_fft // 2
    inside = (t.abs() <= length[:, None] / 2).float()
    window = inside * (0.5 + 0.5 * torch.cos(2 * math.pi * t / length[:, None]))
    phase = 2 * math.pi * freq[:, None] / SR * t
    atoms = torch.polar(window / window.sum(1, keepdim=True), phase)
    return torch.fft.fft(atoms, dim=1)[:, :n_fft // 2 + 1].conj() / n_fft


def constant_q(wave, n_bins, per_octave, n_fft, hop, kernels=cq_kernels):
    frames = wave.unfold(1, n_fft, hop)
    spec = torch.fft.rfft(frames)
    basis = kernels(n_bins, per_octave, n_fft, wave.device)
    return torch.log1p(1e3 * (spec @ basis.t()).abs())


class PitchNet(nn.Module):
    def __init__(self, per_octave, n_fft, hop, width, fix):
        super().__init__()
        self.per_semitone = per_octave // 12
        self.transform = functools.partial(constant_q, n_bins=NOTES * self.per_semitone, per_octave=per_octave, n_fft=n_fft, hop=hop)
        if fix == "cache":
            self.transform.keywords["kernels"] = functools.lru_cache(cq_kernels)
        self.norm = nn.BatchNorm2d(1)
        self.net = nn.Sequential(
            nn.Conv2d(1, width, (3, 7), padding=(1, 3)), nn.ReLU(),
            nn.Conv2d(width, width, (1, self.per_semitone), stride=(1, self.per_semitone)), nn.ReLU(),
            nn.Conv2d(width, width, (3, 13), padding=(1, 6)), nn.ReLU(),
            nn.Conv2d(width, 1, 1))

    def forward(self, wave):
        with torch.no_grad():
            cq = self.transform(wave)
        return self.net(self.norm(cq.unsqueeze(1))).squeeze(1)       # batch, frames, notes


def chords(n, samples):
    """A few harmonic tones a clip, with a decaying series of overtones."""
    g = torch.Generator().manual_seed(8)
    roll = torch.zeros(n, NOTES)
    wave = 0.01 * torch.randn(n, samples, generator=g)
    t = torch.arange(samples) / SR
    for _ in range(3):
        note = torch.randint(NOTES, (n,), generator=g)
        roll[torch.arange(n), note] = 1.0
        f0 = FMIN * 2 ** (note / 12)
        for h in range(1, 5):
            phase = 6.2832 * torch.rand(n, 1, generator=g)
            wave += 0.6 ** h * torch.sin(2 * math.pi * h * f0[:, None] * t + phase)
    return wave, roll


def loader(wave, roll, batch, device):
    wave, roll = wave.to(device), roll.to(device)
    while True:
        i = torch.randint(len(wave), (batch,), device=device)
        gain = 0.3 + torch.rand(batch, 1, device=device)
        yield wave[i] * gain, roll[i]


def main(args):
    torch.manual_seed(0)
    gpu = args.device == "cuda"
    per_octave, n_fft, hop, width, batch = (60, 32768, 512, 64, 64) if gpu else (60, 8192, 1024, 12, 8)
    wave, roll = chords(256, n_fft + 7 * hop)
    model = PitchNet(per_octave, n_fft, hop, width, args.fix).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(8.0, device=args.device))
    marks = {}
    for step, (x, y) in zip(range(args.steps), loader(wave, roll, batch, args.device)):
        if step == args.steps // 3:
            if gpu:
                torch.cuda.synchronize()
            marks["start"] = time.perf_counter()
        logits = model(x)
        loss = criterion(logits, y.unsqueeze(1).expand_as(logits))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if gpu:
        torch.cuda.synchronize()
    marks["end"] = time.perf_counter()
    print(f"loss {loss.item():.4f}")
    print(f"mean step ms {(marks['end'] - marks['start']) / (args.steps - args.steps // 3) * 1e3:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fix", default="")
    parser.add_argument("--device", default="cpu")
    main(parser.parse_args())
