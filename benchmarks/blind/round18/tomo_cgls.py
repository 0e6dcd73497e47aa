"""Tomographic reconstruction by CGLS on a measured (dense) system matrix of a small scanner."""
import argparse
import time

import torch


def system_matrix(rays, pixels, device, seed=0):
    """Calibrated response of every ray to every pixel: a broad profile with scatter, float32."""
    g = torch.Generator(device=device).manual_seed(seed)
    side = int(pixels ** 0.5)
    a = torch.rand(rays, side * side, generator=g, device=device).mul_(0.05)
    grid = torch.linspace(-1, 1, side, device=device)
    yy, xx = (v.reshape(-1) for v in torch.meshgrid(grid, grid, indexing="ij"))
    angle = torch.rand(rays, generator=g, device=device) * torch.pi
    offset = torch.rand(rays, generator=g, device=device) * 2 - 1
    for part in torch.arange(rays, device=device).split(512):
        distance = xx * angle[part, None].cos() + yy * angle[part, None].sin() - offset[part, None]
        a[part] += torch.exp(-(distance * side / 3) ** 2)
    return a


def phantom(side, device):
    grid = torch.linspace(-1, 1, side, device=device)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    image = torch.zeros(side, side, device=device)
    for cy, cx, r, value in ((0, 0, 0.8, 1.0), (0.2, 0.3, 0.2, -0.5), (-0.3, -0.2, 0.3, 0.4), (0.4, -0.4, 0.1, 0.8)):
        image += value * ((yy - cy) ** 2 + (xx - cx) ** 2 < r * r)
    return image.reshape(-1)


class CGLS:
    """min |A x - b|^2 by conjugate gradients on the normal equations; one forward and one back projection an iteration."""

    def __init__(self, a, b):
        self.a, self.b = a, b
        self.restart()

    def restart(self):
        self.x = torch.zeros(self.a.shape[1], device=self.a.device)
        self.r = self.b.clone()
        self.s = self.a.t() @ self.r
        self.p = self.s.clone()
        self.gamma = self.s.dot(self.s)

    def iterate(self):
        q = self.a @ self.p
        alpha = self.gamma / q.dot(q)
        self.x += alpha * self.p
        self.r -= alpha * q
        self.s = self.a.t() @ self.r
        fresh = self.s.dot(self.s)
        self.p = self.s + (fresh / self.gamma) * self.p
        self.gamma = fresh


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--restart", type=int, default=100, help="iterations between restarts, against lost orthogonality")
    ap.add_argument("--fix", default="")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    gpu = args.device == "cuda"
    rays, side = (120_000, 256) if gpu else (16_384, 64)
    a = system_matrix(rays, side * side, args.device)
    truth = phantom(side, args.device)
    torch.manual_seed(0)
    b = a @ truth
    b += 0.01 * b.std() * torch.randn(rays, device=args.device)
    solver = CGLS(a, b)
    for step in range(args.steps):
        if step == args.steps // 3:
            torch.cuda.synchronize() if gpu else None
            start = time.perf_counter()
        if step and step % args.restart == 0:
            best = solver.x
            solver.b = b - a @ best
            solver.restart()
        solver.iterate()
    torch.cuda.synchronize() if gpu else None
    spent = time.perf_counter() - start
    print(f"residual {solver.r.norm().item() / b.norm().item():.6f}")
    print(f"mean step ms {spent * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
