"""Train a small sound-event tagger on clips that are placed in random rooms on the fly."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SR = 16000
CLIP = 16000
IR_LEN = 6000
CLASSES = 12


def make_clips(n, gen):
    t = torch.arange(CLIP) / SR
    labels = torch.randint(0, CLASSES, (n,), generator=gen)
    base = 180.0 * 1.3 ** labels.float()
    onset = torch.rand(n, 1, generator=gen) * 0.4
    env = torch.exp(-6 * (t[None] - onset).clamp(min=0)) * (t[None] >= onset)
    wave = torch.sin(2 * torch.pi * base[:, None] * t[None]) * env
    wave = wave + 0.3 * torch.sin(4 * torch.pi * base[:, None] * t[None]) * env
    wave = wave + 0.05 * torch.randn(n, CLIP, generator=gen)
    return wave, labels


def make_rooms(n, gen):
    t = torch.arange(IR_LEN) / SR
    rt = 0.05 + 0.1 * torch.rand(n, 1, generator=gen)
    ir = torch.randn(n, IR_LEN, generator=gen) * torch.exp(-t[None] / rt)
    ir[:, 0] = 4.0
    return ir / ir.norm(dim=1, keepdim=True)


def mel_matrix(n_fft, n_mels):
    def hz_to_mel(f):
        return 2595 * torch.log10(1 + f / 700)
    top = hz_to_mel(torch.tensor(SR / 2))
    edges = 700 * (10 ** (torch.linspace(0, top, n_mels + 2) / 2595) - 1)
    freqs = torch.linspace(0, SR / 2, n_fft // 2 + 1)
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return torch.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid)).clamp(min=0)


class Room:
    """Places every clip of a batch in its own room."""

    def __init__(self, rooms, spectral):
        self.rooms = rooms
        self.spectral = spectral

    def __call__(self, wave, which):
        ir = self.rooms[which]
        if self.spectral:
            n = 1 << (wave.shape[1] + IR_LEN - 2).bit_length()
            wet = torch.fft.irfft(torch.fft.rfft(wave, n) * torch.fft.rfft(ir, n), n)
            return wet[:, :wave.shape[1]]
        b = wave.shape[0]
        padded = F.pad(wave, (IR_LEN - 1, 0)).unsqueeze(0)
        wet = F.conv1d(padded, ir.flip(-1).unsqueeze(1), groups=b)
        return wet.squeeze(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.register_buffer("mel", mel_matrix(512, 64))
        layers, c = [], 1
        for out in (16, 32, 64):
            layers += [nn.Conv2d(c, out, 3, padding=1, bias=False), nn.BatchNorm2d(out),
                       nn.ReLU(inplace=True), nn.MaxPool2d(2)]
            c = out
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(c, CLASSES)

    def forward(self, wave):
        spec = torch.stft(wave, 512, 256, window=self.window, return_complex=True)
        mel = torch.log(self.mel @ spec.abs().square() + 1e-4)
        return self.head(self.body(mel.unsqueeze(1)).mean((2, 3)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)

    clips, labels = make_clips(512, gen)
    room = Room(make_rooms(64, gen), spectral=args.fix)
    model = Tagger()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        pick = torch.randint(0, len(clips), (16,), generator=gen)
        which = torch.randint(0, 64, (16,), generator=gen)
        wave = room(clips[pick], which)
        loss = F.cross_entropy(model(wave), labels[pick])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.5f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
