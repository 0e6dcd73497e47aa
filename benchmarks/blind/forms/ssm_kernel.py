import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
L, H, MODES = 1024, 16, 16


class SSM(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_decay = nn.Parameter(torch.randn(H, MODES) - 4)
        self.freq = nn.Parameter(torch.randn(H, MODES))
        self.c = nn.Parameter(torch.randn(H, MODES) / MODES)
        self.mix = nn.Linear(H, H)
        self.spectrum = None

    def kernel_spectrum(self):
        rate = torch.complex(-self.log_decay.exp(), self.freq)
        waves = torch.exp(rate[..., None] * torch.arange(L))
        return torch.fft.rfft((self.c[..., None] * waves).real.sum(1), n=2 * L)

    def forward(self, x):
        spectrum = self.spectrum
        if spectrum is None:
            spectrum = self.kernel_spectrum()
        y = torch.fft.irfft(torch.fft.rfft(x, n=2 * L) * spectrum, n=2 * L)[..., :L]
        return x + self.mix(torch.relu(y).transpose(1, 2)).transpose(1, 2)


model = nn.Sequential(SSM(), SSM()).eval()
signal = torch.randn(32, 2, H, L)
times = []
with torch.no_grad():
    if args.fix:
        for layer in model:
            layer.spectrum = layer.kernel_spectrum()
    for step in range(args.steps):
        t0 = time.perf_counter()
        out = model(signal[step % 32])
        times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(out.square().mean().item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
