"""Soft actor-critic on a vectorised point-mass control task with large replay batches."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class VecEnv:
    def __init__(self, n, obs, act, rng):
        self.n, self.rng = n, rng
        self.A = (rng.standard_normal((obs, obs)) * 0.9 / np.sqrt(obs)).astype(np.float32)
        self.B = (rng.standard_normal((act, obs)) * 0.3).astype(np.float32)
        self.s = rng.standard_normal((n, obs)).astype(np.float32)

    def step(self, a):
        s = self.s
        nxt = np.tanh(s @ self.A + a @ self.B)
        rew = (-np.square(nxt[:, :8]).sum(1) - 0.01 * np.square(a).sum(1)).astype(np.float32)
        done = self.rng.random(self.n) < 0.005
        self.s = np.where(done[:, None], self.rng.standard_normal(s.shape).astype(np.float32), nxt)
        return s, rew, nxt, done


class ReplayMemory:
    def __init__(self, capacity, seed):
        self.capacity, self.data, self.pos = capacity, [], 0
        self.rng = np.random.default_rng(seed)

    def push_many(self, s, a, r, s2, d):
        for tr in zip(s, a, r, s2, d):
            if len(self.data) < self.capacity:
                self.data.append(tr)
            else:
                self.data[self.pos] = tr
            self.pos = (self.pos + 1) % self.capacity

    def sample(self, n, dev):
        picks = [self.data[i] for i in self.rng.integers(0, len(self.data), n)]
        s, a, r, s2, d = zip(*picks)
        return (torch.as_tensor(np.array(s), device=dev), torch.as_tensor(np.array(a), device=dev),
                torch.as_tensor(np.array(r, dtype=np.float32), device=dev),
                torch.as_tensor(np.array(s2), device=dev),
                torch.as_tensor(np.array(d, dtype=np.float32), device=dev))


class ArrayMemory:
    def __init__(self, capacity, seed, obs, act, dev):
        self.store = [torch.zeros(capacity, *w, device=dev) for w in ((obs,), (act,), (), (obs,), ())]
        self.capacity, self.pos, self.size = capacity, 0, 0
        self.rng = np.random.default_rng(seed)

    def push_many(self, *cols):
        n = len(cols[0])
        at = torch.as_tensor((self.pos + np.arange(n)) % self.capacity, device=self.store[0].device)
        for buf, c in zip(self.store, cols):
            buf.index_copy_(0, at, torch.as_tensor(c, device=buf.device).float())
        self.pos, self.size = (self.pos + n) % self.capacity, min(self.size + n, self.capacity)

    def sample(self, n, dev):
        idx = torch.as_tensor(self.rng.integers(0, self.size, n), device=dev)
        return [b.index_select(0, idx) for b in self.store]


def mlp(i, o, h):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Actor(nn.Module):
    def __init__(self, obs, act, h):
        super().__init__()
        self.net = mlp(obs, 2 * act, h)

    def forward(self, s):
        mu, ls = self.net(s).chunk(2, -1)
        ls = ls.clamp(-5, 2)
        u = mu + ls.exp() * torch.randn_like(mu)
        a = torch.tanh(u)
        logp = (-0.5 * ((u - mu) / ls.exp()).square() - ls - 0.9189385 - 2 * (0.6931472 - u - F.softplus(-2 * u))).sum(-1)
        return a, logp


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fix = set(filter(None, a.fix.split(",")))
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    obs, act, hid, batch, envs, warm = (12, 3, 16, 32, 4, 64) if a.tiny else (376, 17, 512, 4096, 64, 60_000)
    env = VecEnv(envs, obs, act, np.random.default_rng(0))
    cap = 1000 if a.tiny else 100_000
    memory = ArrayMemory(cap, 1, obs, act, dev) if "array_memory" in fix else ReplayMemory(cap, 1)
    actor = Actor(obs, act, hid).to(dev)
    q1, q2, t1, t2 = (mlp(obs + act, 1, hid).to(dev) for _ in range(4))
    t1.load_state_dict(q1.state_dict())
    t2.load_state_dict(q2.state_dict())
    q_params = [*q1.parameters(), *q2.parameters()]
    t_params = [*t1.parameters(), *t2.parameters()]
    opt_a = torch.optim.Adam(actor.parameters(), 3e-4, fused=True)
    opt_q = torch.optim.Adam(q_params, 3e-4, fused=True)
    alpha, gamma, tau = 0.1, 0.99, 0.005
    rng = np.random.default_rng(2)
    for _ in range(warm // envs):
        u = rng.uniform(-1, 1, (envs, act)).astype(np.float32)
        s, r, s2, d = env.step(u)
        memory.push_many(s, u, r, s2, d)

    n = min(a.steps, 30)
    for step in range(a.steps):
        if step == a.steps - n:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        with torch.no_grad():
            u = actor(torch.as_tensor(env.s, device=dev))[0].cpu().numpy()
        s, r, s2, d = env.step(u)
        memory.push_many(s, u, r, s2, d)

        s, u, r, s2, d = memory.sample(batch, dev)
        with torch.no_grad():
            u2, lp2 = actor(s2)
            x2 = torch.cat((s2, u2), 1)
            y = r + gamma * (1 - d) * (torch.min(t1(x2), t2(x2)).squeeze(1) - alpha * lp2)
        x = torch.cat((s, u), 1)
        loss_q = F.mse_loss(q1(x).squeeze(1), y) + F.mse_loss(q2(x).squeeze(1), y)
        opt_q.zero_grad(set_to_none=True)
        loss_q.backward()
        opt_q.step()

        for w in q_params:
            w.requires_grad_(False)
        pi, lp = actor(s)
        xp = torch.cat((s, pi), 1)
        loss_a = (alpha * lp - torch.min(q1(xp), q2(xp)).squeeze(1)).mean()
        opt_a.zero_grad(set_to_none=True)
        loss_a.backward()
        opt_a.step()
        for w in q_params:
            w.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(t_params, q_params, tau)
        if step % 100 == 0:
            print(f"step {step} q {loss_q.item():.4f} pi {loss_a.item():.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final loss {loss_q.item():.5f} {loss_a.item():.5f}")
    print(f"MEAN_STEP_MS {dt / n * 1e3:.3f}")


if __name__ == "__main__":
    main()
