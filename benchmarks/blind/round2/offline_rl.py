"""Offline reinforcement learning (TD3+BC, 1024-wide nets, batch 1024) from episodes kept as Python objects, with a
`gc.collect()` after every update, put there when somebody chased a memory leak.

Why: the collector walks every one of several hundred thousand live objects each step while the device waits.
Trap: with three networks and two Adams it smells of launch overhead, which is the smaller part.
Fixes: no_collect: the call removed. freeze: `gc.freeze()` once after loading, the call kept.
"""

import copy
import gc
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "gc-pause"]]
FIXES = ["no_collect", "freeze"]
TRUTH_STEPS = 75


@dataclass(slots=True)
class Transition:
    episode: int
    t: int
    info: dict


class Episodes:
    def __init__(self, count, obs, act):
        rng = np.random.default_rng(0)
        self.records = [Transition(i // 1000, i % 1000, {"tags": [i], "return": None}) for i in range(count)]
        self.obs = rng.standard_normal((count, obs), dtype=np.float32)
        self.act = np.tanh(rng.standard_normal((count, act), dtype=np.float32))
        self.reward = rng.standard_normal(count, dtype=np.float32)
        self.rng = rng

    def sample(self, batch, device):
        index = self.rng.integers(0, len(self.records) - 1, batch)
        last = np.fromiter((self.records[i].t == 999 for i in index), np.float32, batch)
        parts = (self.obs[index], self.act[index], self.reward[index], self.obs[index + 1], last)
        return [torch.from_numpy(p).pin_memory().to(device, non_blocking=True) if device.type == "cuda"
                else torch.from_numpy(p) for p in parts]


def net(inputs, hidden, outputs):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def main():
    args = arguments(220, FIXES)
    torch.set_float32_matmul_precision("high")
    count, hidden, batch, obs, act = (200_000, 1024, 1024, 60, 12) if args.gpu else (5000, 32, 16, 8, 2)
    data = Episodes(count, obs, act)
    actor, q1, q2 = (m.to(args.device) for m in (net(obs, hidden, act), net(obs + act, hidden, 1), net(obs + act, hidden, 1)))
    targets = [copy.deepcopy(m) for m in (actor, q1, q2)]
    actor_opt = torch.optim.Adam(actor.parameters(), lr=3e-4)
    critic_opt = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=3e-4)
    if args.fix == "freeze":
        gc.collect()
        gc.freeze()
    clock = Clock(args.steps)
    for step in range(args.steps):
        s, a, r, s2, done = data.sample(batch, args.device)
        with torch.no_grad():
            noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
            a2 = (targets[0](s2).tanh() + noise).clamp(-1, 1)
            both = torch.cat([s2, a2], -1)
            y = r + 0.99 * (1 - done) * torch.min(targets[1](both), targets[2](both)).squeeze(-1)
        both = torch.cat([s, a], -1)
        critic_loss = F.mse_loss(q1(both).squeeze(-1), y) + F.mse_loss(q2(both).squeeze(-1), y)
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()
        pi = actor(s).tanh()
        q = q1(torch.cat([s, pi], -1))
        actor_loss = -2.5 * q.mean() / q.abs().mean().detach() + F.mse_loss(pi, a)
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()
        with torch.no_grad():
            for old, new in zip(targets, (actor, q1, q2)):
                torch._foreach_lerp_(list(old.parameters()), list(new.parameters()), 0.005)
        if args.fix != "no_collect":
            gc.collect()
        clock.tick()
    print("critic", critic_loss.item())
    clock.report()


if __name__ == "__main__":
    main()
