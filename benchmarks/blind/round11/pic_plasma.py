"""Two-dimensional electrostatic particle-in-cell code (two-stream instability), periodic box."""
import argparse
import math
import time

import torch


class Plasma:
    def __init__(self, n, grid, dev, fix):
        g = torch.Generator(device=dev).manual_seed(5)
        self.n, self.m, self.fix = n, grid, fix
        self.L = float(grid)
        self.pos = torch.rand(n, 2, device=dev, generator=g) * self.L
        self.vel = torch.randn(n, 2, device=dev, generator=g) * 0.3
        self.vel[: n // 2, 0] += 3.0
        self.vel[n // 2:, 0] -= 3.0
        self.pos[:, 0] += 0.5 * torch.sin(2 * math.pi * self.pos[:, 0] / self.L * 4)
        self.pos.remainder_(self.L)
        k = 2 * math.pi * torch.fft.fftfreq(grid, device=dev)
        self.kx, self.ky = k[:, None], k[None, : grid // 2 + 1].abs()
        self.k2 = self.kx ** 2 + self.ky ** 2
        self.k2[0, 0] = 1.0
        self.q = -self.m ** 2 / n
        self.push = torch.compile(self._push) if "compile_push" in fix and dev.type == "cuda" else self._push

    def corners(self, pos):
        i = pos.floor()
        f = pos - i
        i = i.long() % self.m
        j = (i + 1) % self.m
        fx, fy = f[:, 0], f[:, 1]
        return ((i[:, 0], i[:, 1], (1 - fx) * (1 - fy)), (j[:, 0], i[:, 1], fx * (1 - fy)),
                (i[:, 0], j[:, 1], (1 - fx) * fy), (j[:, 0], j[:, 1], fx * fy))

    def deposit(self):
        rho = torch.zeros(self.m, self.m, device=self.pos.device)
        if "index_add" in self.fix:
            flat = rho.view(-1)
            for ix, iy, w in self.corners(self.pos):
                flat.index_add_(0, ix * self.m + iy, w)
        else:
            for ix, iy, w in self.corners(self.pos):
                rho.index_put_((ix, iy), w, accumulate=True)
        return rho * self.q + 1.0

    def solve(self, rho):
        r = torch.fft.rfft2(rho) / self.k2
        r[0, 0] = 0
        ex = torch.fft.irfft2(-1j * self.kx * r, s=rho.shape)
        ey = torch.fft.irfft2(-1j * self.ky * r, s=rho.shape)
        return torch.stack([ex, ey], -1)

    def _push(self, pos, vel, field, dt):
        e = 0
        for ix, iy, w in self.corners(pos):
            e = e + field[ix, iy] * w[:, None]
        vel = vel - dt * e
        return (pos + dt * vel) % self.L, vel

    def step(self, dt):
        field = self.solve(self.deposit())
        self.pos, self.vel = self.push(self.pos, self.vel, field, dt)
        return field


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="index_add, compile_push")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    dev = torch.device("cpu" if a.cpu else "cuda")
    fix = set(filter(None, a.fix.split(",")))
    sim = Plasma(*((2000, 16) if a.tiny else (8_000_000, 512)), dev, fix)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    window = min(a.steps, max(3, a.steps // 3))
    energy = []
    with torch.no_grad():
        for t in range(a.steps):
            if t == a.steps - window:
                sync()
                t0 = time.perf_counter()
            field = sim.step(0.05)
            energy.append(field.square().sum())
            if t % 100 == 99:
                print(f"t={t * 0.05:.2f} field energy {torch.stack(energy[-100:]).mean().item():.4g}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")
