"""Linear TD(lambda) policy evaluation with tile coding, continuing task, many actors."""
import argparse
import time

import torch

torch.set_num_threads(1)


class TileCoder:
    def __init__(self, tilings=16, bins=32, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.tilings, self.bins = tilings, bins
        self.shift = torch.rand(tilings, 2, generator=g) / bins
        self.base = torch.arange(tilings) * bins * bins
        self.size = tilings * bins * bins

    def __call__(self, s):
        cell = (((s[:, None] + self.shift) % 1.0) * self.bins).long().clamp_(max=self.bins - 1)
        return self.base + cell[..., 0] * self.bins + cell[..., 1]


class Drift:
    """Noisy rotation on a torus; reward is a bump in the middle."""

    def __init__(self, n, seed=1):
        self.g = torch.Generator().manual_seed(seed)
        self.s = torch.rand(n, 2, generator=self.g)

    def step(self):
        v = torch.stack([torch.sin(6.28 * self.s[:, 1]), torch.cos(6.28 * self.s[:, 0])], 1)
        self.s = (self.s + 0.02 * v + 0.06 * torch.randn(self.s.shape, generator=self.g)) % 1.0
        return torch.exp(-20 * ((self.s - 0.5) ** 2).sum(1))


def evaluate(steps, actors=48, gamma=0.95, lam=0.8, alpha=0.02):
    env, phi = Drift(actors), TileCoder()
    w = torch.zeros(phi.size)
    trace = torch.zeros(actors, phi.size)
    ones = torch.ones(actors, phi.tilings)
    cur = phi(env.s)
    times, err = [], 0.0
    for t in range(steps):
        t0 = time.perf_counter()
        r = env.step()
        nxt = phi(env.s)
        delta = r + gamma * w[nxt].sum(1) - w[cur].sum(1)
        trace.mul_(gamma * lam)
        trace.scatter_add_(1, cur, ones)
        w += alpha / actors * (delta @ trace)
        cur = nxt
        err = 0.99 * err + 0.01 * delta.square().mean().item()
        times.append(time.perf_counter() - t0)
        if t % 300 == 0:
            print(f"t={t} msve={err:.5f} |w|={w.norm():.3f}")
    return err, times


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1800)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    if args.fix:
        torch.set_flush_denormal(True)
    err, times = evaluate(args.steps)
    times = times[len(times) // 3:]
    print(f"loss {err:.6f}")
    print(f"mean step ms {1e3 * sum(times) / len(times):.3f}")
