"""Driven dynamics of a block of states under a dense CI Hamiltonian: Chebyshev propagation in double precision.

i d/dt psi = (H0 + f(t) d) psi, H0 real symmetric, d diagonal. psi is kept as real columns [Re | Im], so that every
application of H is one real matrix product. Phases build up over 1e5 steps, hence float64 throughout (norm to 1e-11).
"""
import argparse
import math
import time

import numpy as np
import torch


def bessel(k, z, points=400):
    """J_k(z) from its integral; the trapezoid rule is exact to rounding for a periodic integrand"""
    tau = (np.arange(points) + 0.5) * math.pi / points
    return float(np.mean(np.cos(k * tau - z * np.sin(tau))))


class Chebyshev:
    def __init__(self, radius, dt, tol=1e-13):
        z = radius * dt
        self.coef = []
        k = 0
        while True:
            c = (1.0 if k == 0 else 2.0) * bessel(k, z)
            if k > z and abs(c) < tol:
                break
            self.coef.append(c)
            k += 1

    def step(self, h, psi, work):
        """psi <- exp(-i h dt) psi; h already divided by its radius"""
        half = psi.shape[1] // 2
        older, newer, out = work
        older.copy_(psi)
        torch.mm(h, psi, out=newer)
        torch.mul(psi, self.coef[0], out=out)
        for k in range(1, len(self.coef)):
            c = self.coef[k] * (1, -1, -1, 1)[k % 4]
            if k % 2 == 0:
                out.add_(newer, alpha=c)
            else:
                # odd terms carry a factor -i (c has its remaining sign): Re gains Im, Im loses Re
                out[:, :half].add_(newer[:, half:], alpha=-c)
                out[:, half:].add_(newer[:, :half], alpha=c)
            if k + 1 < len(self.coef):
                older.addmm_(h, newer, beta=-1.0, alpha=2.0)
                older, newer = newer, older
        return out


def hamiltonian(n, device, gen):
    a = torch.randn(n, n, dtype=torch.float64, device=device, generator=gen)
    h = (a + a.t()) / math.sqrt(2.0 * n)
    h += torch.diag(torch.linspace(-0.3, 0.3, n, dtype=torch.float64, device=device))
    return h


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="", help="unused, kept for the job runner")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    device = torch.device("cpu" if args.cpu else "cuda")
    n, states = (128, 16) if args.tiny else (8192, 1024)
    gen = torch.Generator(device).manual_seed(0)
    h0 = hamiltonian(n, device, gen)
    dipole = torch.linspace(-1.0, 1.0, n, dtype=torch.float64, device=device)
    dt, field, omega = 0.2, 0.1, 0.7
    radius = 2.0 + 0.3 + field + 0.1  # semicircle, on-site terms, drive, margin
    prop = Chebyshev(radius, dt)

    psi = torch.zeros(n, 2 * states, dtype=torch.float64, device=device)
    psi[:, :states] = torch.linalg.qr(torch.randn(n, states, dtype=torch.float64, device=device, generator=gen))[0]
    buffers = [torch.empty_like(psi) for _ in range(4)]
    h = h0 / radius
    diag0 = h.diagonal().clone()
    trace = []

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    mark = args.steps // 2
    for i in range(args.steps):
        if i == mark:
            sync()
            t0 = time.perf_counter()
        f = field * math.sin(omega * (i + 0.5) * dt)
        h.diagonal().copy_(diag0 + (f / radius) * dipole)
        new = prop.step(h, psi, buffers[:3])
        psi, buffers = new, [b for b in [psi] + buffers if b is not new]
        density = psi.square().sum(1)
        trace.append((torch.dot(dipole, density) / states).item())
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / (args.steps - mark) * 1e3:.3f}")
    norm = psi.square().sum() / states
    print(f"dipole {trace[-1]:+.8f} norm-1 {norm.item() - 1.0:+.2e} terms {len(prop.coef)}")


if __name__ == "__main__":
    main()
