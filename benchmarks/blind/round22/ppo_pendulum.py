"""PPO on a batch of numpy pendulums."""
import argparse
import time

import numpy as np
import torch
from torch import nn


class Pendulums:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.th = rng.uniform(-np.pi, np.pi, n)
        self.om = rng.uniform(-1, 1, n)
        self.t = rng.integers(0, 200, n)

    def obs(self):
        return np.stack([np.cos(self.th), np.sin(self.th), self.om / 8], 1).astype(np.float32)

    def step(self, u):
        u = np.clip(u, -2, 2)
        ang = (self.th + np.pi) % (2 * np.pi) - np.pi
        rew = -(ang ** 2 + 0.1 * self.om ** 2 + 0.001 * u ** 2)
        self.om = np.clip(self.om + (15 * np.sin(self.th) + 3 * u) * 0.05, -8, 8)
        self.th = self.th + self.om * 0.05
        self.t += 1
        done = self.t >= 200
        self.th[done] = self.rng.uniform(-np.pi, np.pi, done.sum())
        self.om[done] = self.rng.uniform(-1, 1, done.sum())
        self.t[done] = 0
        return rew.astype(np.float32), done.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self, obs=3, h=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 1))
        self.v = nn.Sequential(nn.Linear(obs, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.pi(x).squeeze(-1), self.v(x).squeeze(-1)


@torch.no_grad()
def act(net, obs, eps, batched):
    x = torch.from_numpy(obs)
    if batched:
        mu, v = net(x)
    else:
        pairs = [net(x[i]) for i in range(len(x))]
        mu = torch.stack([p[0] for p in pairs])
        v = torch.stack([p[1] for p in pairs])
    a = mu + net.log_std.exp() * eps
    return a, -0.5 * eps ** 2 - net.log_std, v


def gae(rew, done, val, last, gamma=0.97, lam=0.95):
    adv, run = torch.zeros_like(rew), torch.zeros_like(last)
    for t in reversed(range(len(rew))):
        nxt = last if t == len(rew) - 1 else val[t + 1]
        run = rew[t] + gamma * nxt * (1 - done[t]) - val[t] + gamma * lam * (1 - done[t]) * run
        adv[t] = run
    return adv


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--envs", type=int, default=32)
    p.add_argument("--horizon", type=int, default=12)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--fix", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = Pendulums(args.envs, np.random.default_rng(0))
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    gen = torch.Generator().manual_seed(9)
    times = []
    for it in range(args.steps):
        t0 = time.perf_counter()
        buf = {k: [] for k in ("obs", "act", "logp", "val", "rew", "done")}
        for _ in range(args.horizon):
            obs = env.obs()
            a, lp, v = act(net, obs, torch.randn(args.envs, generator=gen), args.fix)
            rew, done = env.step(a.numpy())
            for k, val in zip(buf, (torch.from_numpy(obs), a, lp, v, torch.from_numpy(rew), torch.from_numpy(done))):
                buf[k].append(val)
        d = {k: torch.stack(v) for k, v in buf.items()}
        with torch.no_grad():
            last = net(torch.from_numpy(env.obs()))[1]
        adv = gae(d["rew"], d["done"], d["val"], last)
        ret = adv + d["val"]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(args.epochs):
            mu, v = net(d["obs"])
            logp = -0.5 * ((d["act"] - mu) / net.log_std.exp()) ** 2 - net.log_std
            ratio = (logp - d["logp"]).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * (v - ret).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        times.append(time.perf_counter() - t0)
        if (it + 1) % 20 == 0:
            print(f"update {it + 1} reward {d['rew'].mean():.4f} loss {loss.item():.5f}")
    tail = times[len(times) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
