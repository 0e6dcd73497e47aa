"""Trains the controller of a differentiable additive synthesiser on violin notes.

From a pitch and a loudness curve (250 frames a clip) a small net predicts the strengths of 100 harmonics a
frame. The synthesiser interpolates them to 16 kHz, drops harmonics above the Nyquist frequency, normalises,
shapes and sums 100 sinusoids a sample; the loss compares spectrograms at three scales. A step is a batch of
32 clips of four seconds.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["unfused-pointwise"]
FIXES = {"compile": "torch.compile on the synthesiser function"}
TRUTH_STEPS = 450

RATE = 16000


def synthesise(strength, loudness, pitch, ramp, numbers):
    """strength [b, frames + 1, k], loudness and pitch [b, frames, hop] -> audio [b, frames * hop]."""
    before, after = strength[:, :-1, None, :], strength[:, 1:, None, :]
    strength = before + (after - before) * ramp[:, None]
    frequency = pitch[..., None] * numbers
    strength = strength * (frequency < RATE / 2)
    strength = strength / (strength.sum(-1, keepdim=True) + 1e-5)
    cycles = torch.cumsum(pitch.flatten(1) / RATE, dim=1).view_as(pitch) % 1.0
    waves = torch.sin(2 * torch.pi * cycles[..., None] * numbers)
    tilt = torch.exp(-frequency / 6000.0)
    shaped = waves * strength * tilt * loudness[..., None]
    return shaped.sum(-1).flatten(1)


class Controller(nn.Module):
    def __init__(self, width, harmonics):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(2, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, harmonics, 1),
        )

    def forward(self, curves):
        raw = self.net(curves).transpose(1, 2)
        return F.softplus(F.pad(raw, (0, 0, 0, 1), mode="replicate"))


def spectral_loss(audio, target, scales=(2048, 512, 128)):
    loss = 0
    for n in scales:
        window = torch.hann_window(n, device=audio.device)
        a, b = (torch.stft(s, n, n // 4, window=window, return_complex=True).abs() for s in (audio, target))
        loss = loss + F.l1_loss(a, b) + F.l1_loss((a + 1e-5).log(), (b + 1e-5).log())
    return loss


def main():
    args = arguments(1800, list(FIXES), cpu_steps=4)
    torch.manual_seed(0)
    batch, frames, hop, harmonics, width = (32, 250, 256, 100, 256) if args.gpu else (2, 32, 128, 8, 16)
    device = args.device
    controller = Controller(width, harmonics).to(device)
    optimizer = torch.optim.Adam(controller.parameters(), lr=1e-3, fused=True)
    ramp = torch.arange(hop, device=device) / hop
    numbers = torch.arange(1, harmonics + 1, device=device, dtype=torch.float32)
    synth = synthesise
    if args.fix == "compile":
        synth = torch.compile(synthesise, backend="inductor" if args.gpu else "eager")

    notes = []
    for _ in range(3):
        pitch = (200 + 500 * torch.rand(batch, 1, 1, device=device)).expand(batch, frames, hop).contiguous()
        vibrato = torch.sin(torch.arange(frames * hop, device=device) / 400).view(frames, hop)
        pitch = pitch * (1 + 0.004 * vibrato)
        loud = torch.rand(batch, frames, 1, device=device).expand(batch, frames, hop).contiguous()
        target = loud.flatten(1) * torch.sin(2 * torch.pi * torch.cumsum(pitch.flatten(1) / RATE, 1))
        notes.append((pitch, loud, target))

    clock = Clock(args.steps)
    for step in range(args.steps):
        pitch, loud, target = notes[step % len(notes)]
        curves = torch.stack([pitch[..., 0] / 700, loud[..., 0]], dim=1)
        audio = synth(controller(curves), loud, pitch, ramp, numbers)
        loss = spectral_loss(audio, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    print(f"loss {loss.item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
