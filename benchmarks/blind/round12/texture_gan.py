"""DCGAN-style texture generator with hinge loss and a Frechet feature distance."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, z, c):
        super().__init__()
        def up(i, o):
            return [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
        self.net = nn.Sequential(nn.ConvTranspose2d(z, 8 * c, 4, bias=False), nn.BatchNorm2d(8 * c), nn.ReLU(True),
                                 *up(8 * c, 4 * c), *up(4 * c, 2 * c), *up(2 * c, c),
                                 nn.ConvTranspose2d(c, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Critic(nn.Module):
    def __init__(self, c):
        super().__init__()
        def down(i, o):
            return [nn.Conv2d(i, o, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        self.net = nn.Sequential(*down(3, c), *down(c, 2 * c), *down(2 * c, 4 * c), *down(4 * c, 8 * c), nn.Conv2d(8 * c, 1, 4))

    def forward(self, x):
        return self.net(x).flatten()


class FeatureNet(nn.Module):
    """Fixed random features used for the distance."""

    def __init__(self, c, d):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, c, 5, 2, 2), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.ReLU(),
                                 nn.Conv2d(2 * c, 4 * c, 3, 2, 1), nn.ReLU(), nn.Conv2d(4 * c, d, 3, 2, 1))

    def forward(self, x):
        return self.net(x).mean((2, 3))


def moments(f):
    f = f.double().cpu().numpy()
    return f.mean(0), np.cov(f, rowvar=False)


def frechet(m1, s1, m2, s2):
    w, v = np.linalg.eigh(s1)
    root = (v * np.sqrt(np.clip(w, 0, None))) @ v.T
    mid = np.linalg.eigvalsh(root @ s2 @ root)
    return float(((m1 - m2) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * np.sqrt(np.clip(mid, 0, None)).sum())


@torch.no_grad()
def evaluate(gen, feats, real, z_eval, chunk):
    gen.eval()
    f = torch.cat([feats(gen(z)) for z in z_eval.split(chunk)])
    gen.train()
    return frechet(*real, *moments(f))


def textures(n, side, dev):
    yx = torch.linspace(0, 6.2832, side, device=dev)
    k = torch.randint(1, 6, (n, 3, 2), device=dev)
    ph = 6.2832 * torch.rand(n, 3, 1, 1, device=dev)
    return torch.sin(k[..., 0, None, None] * yx[:, None] + k[..., 1, None, None] * yx + ph)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fix = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    batch, zdim, c, fc, fd, n_eval, pool = (4, 8, 4, 4, 16, 16, 16) if a.tiny else (128, 128, 64, 64, 384, 4096, 4096)
    eval_every = 200 if "rare_eval" in fix else 5
    gen, critic, feats = Generator(zdim, c).to(dev), Critic(c).to(dev), FeatureNet(fc, fd).to(dev).eval()
    opt_g = torch.optim.Adam(gen.parameters(), 2e-4, betas=(0.5, 0.999), fused=True)
    opt_d = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.5, 0.999), fused=True)
    data = textures(pool, 64, dev)
    with torch.no_grad():
        real = moments(torch.cat([feats(x) for x in data.split(256)]))
    z_eval = torch.randn(n_eval, zdim, device=dev)
    best = float("inf")

    n = min(a.steps, 20)
    for step in range(a.steps):
        if step == a.steps - n:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        x = data[torch.randint(0, pool, (batch,), device=dev)]
        with torch.no_grad():
            fake = gen(torch.randn(batch, zdim, device=dev))
        loss_d = F.relu(1 - critic(x)).mean() + F.relu(1 + critic(fake)).mean()
        opt_d.zero_grad(set_to_none=True)
        loss_d.backward()
        opt_d.step()

        critic.requires_grad_(False)
        loss_g = -critic(gen(torch.randn(batch, zdim, device=dev))).mean()
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()
        critic.requires_grad_(True)

        if step % eval_every == 0:
            fd_now = evaluate(gen, feats, real, z_eval, 512)
            if fd_now < best:
                best = fd_now
            print(f"step {step} d {loss_d.item():.3f} g {loss_g.item():.3f} frechet {fd_now:.4f} best {best:.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final {loss_d.item():.5f} {loss_g.item():.5f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
