"""Propagates a set of laser beams through a turbulent atmosphere: phase screens and angular-spectrum steps.

Used to estimate scintillation at a receiver. All beams of a draw share the screens; a step is one draw of the
atmosphere with every beam propagated through it.
"""

import math

import torch
from common import Clock, arguments

FIXES = []
STEPS = 36


def frequencies(n, spacing, device):
    f = torch.fft.fftfreq(n, spacing, device=device)
    return f[:, None].square() + f.square()


def transfer_function(f2, wavelength, distance):
    """Paraxial free-space propagation, with an absorbing edge in the spectrum, as complex64.

    It carries the 1/n^2 of the inverse transform, which is then taken without a scale.
    """
    phase = -math.pi * wavelength * distance * f2.double()
    band = torch.exp(-((f2 / f2.max() * 1.8) ** 8)) / f2.numel()
    return torch.polar(band.double(), phase).to(torch.complex64)


def screen_pool(count, f2, r0, generator):
    """Unit-modulus screens exp(i phi) with a von Karman spectrum."""
    outer = 1 / 20.0
    amplitude = 0.49 * r0 ** (-5 / 3) * (f2 + outer**2) ** (-11 / 6)
    amplitude[0, 0] = 0
    spacing = float(f2[0, 1].sqrt())
    pool = []
    for _ in range(count):
        noise = torch.randn(*f2.shape, dtype=torch.complex64, generator=generator, device=f2.device)
        phase = torch.fft.ifft2(noise * amplitude.sqrt(), norm="forward").real * spacing
        pool.append(torch.polar(torch.ones_like(phase), phase))
    return pool


class Path:
    def __init__(self, n, spacing, wavelength, length, screens, device, generator):
        f2 = frequencies(n, spacing, device)
        self.hop = transfer_function(f2, wavelength, length / screens)
        self.pool = screen_pool(2 * screens, f2, 0.12, generator)
        self.screens = screens

    def propagate(self, field, draw):
        for i in range(self.screens):
            field = field * self.pool[(draw * 3 + i) % len(self.pool)]
            field = torch.fft.fft2(field)
            field *= self.hop
            field = torch.fft.ifft2(field, norm="forward")
        return field


def beams(count, n, spacing, device):
    """Gaussian beams of different waists and pointings."""
    x = (torch.arange(n, device=device) - n / 2) * spacing
    fields = []
    for i in range(count):
        waist, shift = 0.05 + 0.01 * (i % 4), 0.02 * (i // 4)
        fields.append(torch.exp(-((x[:, None] - shift) ** 2 + x**2) / waist**2))
    return torch.stack(fields).to(torch.complex64)


@torch.inference_mode()
def main():
    args = arguments(STEPS, FIXES)
    n, count, screens = (4096, 12, 5) if args.gpu else (64, 3, 3)
    spacing = 1.2 / n
    generator = torch.Generator(args.device).manual_seed(13)
    path = Path(n, spacing, 1.55e-6, 5000.0, screens, args.device, generator)
    launched = beams(count, n, spacing, args.device)
    centre = slice(n // 2 - n // 16, n // 2 + n // 16)
    received = torch.zeros(args.steps, count, device=args.device)
    clock = Clock(args.steps)
    for draw in range(args.steps):
        field = path.propagate(launched, draw)
        aperture = torch.view_as_real(field[:, centre, centre])
        received[draw] = aperture.square().sum((1, 2, 3))
        clock.tick()
    clock.report()
    power = received * spacing**2
    index = power.var(0, unbiased=False) / power.mean(0) ** 2
    print(f"mean power {power.mean().item():.6e} scintillation index {index.mean().item():.5f}")


if __name__ == "__main__":
    main()
