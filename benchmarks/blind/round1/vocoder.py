"""Training the generator of a neural vocoder (BigVGAN-like: Snake activations, dilated residual 1-d convolutions).

Why: Snake, x + sin(ax)^2 / a, is five elementwise kernels forward and about twice as many backward over tensors of
hundreds of megabytes, 48 times a pass; the convolutions between them are narrow (32 to 256 channels) and take less.
Trap: by the names of its modules this is a convolution network, and the GPU is fully busy.
Fix: compile_act: `torch.compile` of the activation alone (one kernel forward).
"""

import math

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"]]
FIXES = ["compile_act"]
TRUTH_STEPS = 90


def snake(x, alpha):
    return x + (1.0 / (alpha + 1e-9)) * torch.sin(alpha * x) ** 2


class Snake(nn.Module):
    act = staticmethod(snake)

    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return Snake.act(x, self.alpha)


class ResBlock(nn.Module):
    def __init__(self, channels, dilations=(1, 3, 5, 7)):
        super().__init__()
        self.rounds = nn.ModuleList(
            nn.Sequential(Snake(channels), nn.Conv1d(channels, channels, 3, padding=d, dilation=d),
                          Snake(channels), nn.Conv1d(channels, channels, 3, padding=1))
            for d in dilations)

    def forward(self, x):
        for r in self.rounds:
            x = x + r(x)
        return x


class Generator(nn.Module):
    def __init__(self, mels, width, rates):
        super().__init__()
        self.pre = nn.Conv1d(mels, width, 7, padding=3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for i, rate in enumerate(rates):
            self.ups.append(nn.ConvTranspose1d(width >> i, width >> (i + 1), 2 * rate, rate, padding=rate // 2))
            self.blocks.append(ResBlock(width >> (i + 1)))
        self.last, self.post = Snake(width >> len(rates)), nn.Conv1d(width >> len(rates), 1, 7, padding=3)

    def forward(self, mel):
        x = self.pre(mel)
        for up, block in zip(self.ups, self.blocks):
            x = block(up(x))
        return torch.tanh(self.post(self.last(x)))


def spectral_loss(fake, real, sizes):
    loss = 0.0
    for n in sizes:
        window = torch.hann_window(n, device=fake.device)
        a, b = (torch.stft(y.squeeze(1), n, n // 4, window=window, return_complex=True).abs() for y in (fake, real))
        loss = loss + F.l1_loss(a, b)
    return loss


def main():
    args = arguments(320, FIXES)
    if args.fix == "compile_act" and args.gpu:
        Snake.act = staticmethod(torch.compile(snake, dynamic=True))
    mels, width, rates, batch, frames = (100, 512, (8, 8, 2, 2), 64, 128) if args.gpu else (8, 32, (2, 2), 2, 16)
    model = Generator(mels, width, rates).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.8, 0.99), fused=True)
    mel = torch.randn(batch, mels, frames, device=args.device)
    real = torch.randn(batch, 1, frames * math.prod(rates), device=args.device).clamp(-1, 1)
    clock = Clock(args.steps)
    for step in range(args.steps):
        with torch.autocast(args.device.type, torch.bfloat16):
            fake = model(mel)
        loss = spectral_loss(fake.float(), real, (1024, 256) if args.gpu else (16,))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 80 == 0:
            print(f"{step}: spectral {loss.item():.3f}")
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
