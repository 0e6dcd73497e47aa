"""Learner of a distributed DQN (Ape-X style): prioritised replay, double Q, dueling head, vector observations."""
import argparse
import copy
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ALPHA, EPS, GAMMA, NSTEP = 0.6, 1e-3, 0.99, 3


class SumTree:
    """Leaves hold priorities, every inner node the sum of its two children."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.nodes = np.zeros(2 * capacity - 1)

    def set(self, slot, priority):
        i = slot + self.capacity - 1
        delta, self.nodes[i] = priority - self.nodes[i], priority
        while i > 0:
            i = (i - 1) // 2
            self.nodes[i] += delta

    def find(self, value):
        i, left = 0, 1
        while left < len(self.nodes):
            i = left
            if value > self.nodes[left]:
                value, i = value - self.nodes[left], left + 1
            left = 2 * i + 1
        return i - self.capacity + 1, self.nodes[i]

    def set_many(self, slots, priorities):
        for s, p in zip(slots, priorities):
            self.set(s, p)

    def find_many(self, values):
        slots, p = zip(*(self.find(v) for v in values))
        return np.array(slots), np.array(p)


class ArraySumTree(SumTree):
    """The same tree, all queries taken down (or up) one level at a time."""

    def set_many(self, slots, priorities):
        i = np.asarray(slots) + self.capacity - 1
        self.nodes[i] = priorities
        while i[0] > 0:
            i = (i - 1) // 2
            self.nodes[i] = self.nodes[2 * i + 1] + self.nodes[2 * i + 2]

    def find_many(self, values):
        v, i = np.array(values), np.zeros(len(values), dtype=np.int64)
        for _ in range(int(np.log2(self.capacity))):
            left = 2 * i + 1
            right = v > self.nodes[left]
            v -= np.where(right, self.nodes[left], 0.0)
            i = left + right
        return i - self.capacity + 1, self.nodes[i]


class Replay:
    def __init__(self, capacity, obs_dim, actions, device, tree):
        g = torch.Generator(device).manual_seed(0)
        self.obs = torch.randn(capacity, obs_dim, device=device, generator=g)
        self.nxt = self.obs + 0.1 * torch.randn(capacity, obs_dim, device=device, generator=g)
        self.act = torch.randint(actions, (capacity,), device=device, generator=g)
        self.rew = self.obs[:, :8].mean(1) + 0.1 * self.act
        self.done = (torch.rand(capacity, device=device, generator=g) < 0.01).float()
        self.capacity, self.device, self.tree, self.head, self.top = capacity, device, tree, 0, 1.0
        self.rng = np.random.default_rng(0)
        tree.nodes[capacity - 1:] = self.rng.uniform(0.1, 1.0, capacity)
        for a in (2 ** k - 1 for k in reversed(range(int(np.log2(capacity))))):
            tree.nodes[a:2 * a + 1] = tree.nodes[2 * a + 1:4 * a + 3].reshape(-1, 2).sum(1)

    def extend(self, obs, nxt):
        """Transitions from the actors enter with the largest priority seen."""
        h, n = self.head, len(obs)
        self.obs[h:h + n], self.nxt[h:h + n] = obs, nxt
        self.head = (h + n) % self.capacity
        self.tree.set_many(np.arange(h, h + n), np.full(n, self.top))

    def sample(self, n, beta):
        total = self.tree.nodes[0]
        slots, p = self.tree.find_many((np.arange(n) + self.rng.random(n)) * total / n)
        w = (self.capacity * p / total) ** -beta
        w, i = torch.from_numpy(w / w.max()).float().to(self.device), torch.from_numpy(slots).to(self.device)
        return slots, w, self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i]

    def update(self, slots, td):
        p = (td + EPS) ** ALPHA
        self.top = max(self.top, p.max())
        self.tree.set_many(slots, p)


class Dueling(nn.Module):
    def __init__(self, obs_dim, actions, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.Linear(width, 1 + actions)

    def forward(self, x):
        v, a = self.heads(self.body(x)).tensor_split([1], dim=1)
        return v + a - a.mean(1, keepdim=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    dev = torch.device("cpu" if args.cpu else "cuda")
    capacity, obs_dim, actions, width, batch = (1024, 16, 4, 32, 32) if args.tiny else (2 ** 18, 96, 18, 1024, 512)
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    torch.manual_seed(0)
    tree = (ArraySumTree if "vector_tree" in args.fix.split(",") else SumTree)(capacity)
    replay = Replay(capacity, obs_dim, actions, dev, tree)
    online = Dueling(obs_dim, actions, width).to(dev)
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), 1e-4, eps=1.5e-4, fused=dev.type == "cuda")
    for step in range(args.steps):
        if step == args.steps // 2:
            sync()
            t0 = time.perf_counter()
        replay.extend(*torch.randn(2, 16, obs_dim, device=dev))
        slots, w, obs, act, rew, nxt, done = replay.sample(batch, beta=0.4)
        q = online(obs).gather(1, act[:, None]).squeeze(1)
        with torch.no_grad():
            best = online(nxt).argmax(1, keepdim=True)
            goal = rew + (1 - done) * GAMMA ** NSTEP * target(nxt).gather(1, best).squeeze(1)
        loss = (w * F.smooth_l1_loss(q, goal, reduction="none")).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        replay.update(slots, (q.detach() - goal).abs().cpu().numpy().astype(np.float64))
        if step % 500 == 499:
            target.load_state_dict(online.state_dict())
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / (args.steps - args.steps // 2) * 1e3:.3f}")
    print(f"loss {loss.item():.6f} total_priority {replay.tree.nodes[0]:.3f}")


if __name__ == "__main__":
    main()
