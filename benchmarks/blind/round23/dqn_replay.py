"""Double DQN on a synthetic inventory-control environment."""
import argparse
import copy
import random
import time
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "state action reward next_state done")


class InventoryEnv:
    """Stock levels of a few hundred items; the action picks a reorder policy."""

    def __init__(self, n_items=512, n_actions=8, horizon=200, seed=0):
        self.rng = np.random.default_rng(seed)
        self.n_items, self.n_actions, self.horizon = n_items, n_actions, horizon
        self.effect = self.rng.normal(0, 0.3, (n_actions, n_items)).astype(np.float32)
        self.reset()

    def reset(self):
        self.t = 0
        self.stock = self.rng.normal(0, 1, self.n_items).astype(np.float32)
        return self.stock

    def step(self, action):
        demand = self.rng.normal(0, 0.1, self.n_items).astype(np.float32)
        self.stock = 0.95 * self.stock + self.effect[action] - demand
        self.t += 1
        reward = -float(np.abs(self.stock).mean())
        return self.stock, reward, self.t >= self.horizon


class ReplayBuffer:
    def __init__(self, capacity, new_form=False):
        self.memory = deque(maxlen=capacity)
        self.new_form = new_form

    def push(self, *args):
        self.memory.append(Transition(*args))

    def __len__(self):
        return len(self.memory)

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        if self.new_form:
            state = torch.from_numpy(np.stack(batch.state))
            next_state = torch.from_numpy(np.stack(batch.next_state))
        else:
            state = torch.tensor(batch.state, dtype=torch.float32)
            next_state = torch.tensor(batch.next_state, dtype=torch.float32)
        action = torch.tensor(batch.action).unsqueeze(1)
        reward = torch.tensor(batch.reward)
        done = torch.tensor(batch.done, dtype=torch.float32)
        return state, action, reward, next_state, done


class QNet(nn.Module):
    def __init__(self, obs, actions, hidden=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.ReLU(),
                                  nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.adv = nn.Linear(hidden, actions)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    random.seed(0)
    torch.manual_seed(0)

    env = InventoryEnv()
    policy = QNet(env.n_items, env.n_actions)
    target = copy.deepcopy(policy)
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    buffer = ReplayBuffer(20000, new_form=args.fix == "v2")
    gamma, batch_size = 0.98, 384

    state = env.reset()
    for _ in range(1000):
        action = random.randrange(env.n_actions)
        nxt, reward, done = env.step(action)
        buffer.push(state, action, reward, nxt, done)
        state = env.reset() if done else nxt

    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        eps = max(0.05, 1.0 - step / 200)
        for _ in range(4):
            if random.random() < eps:
                action = random.randrange(env.n_actions)
            else:
                with torch.no_grad():
                    action = policy(torch.from_numpy(state)[None]).argmax(1).item()
            nxt, reward, done = env.step(action)
            buffer.push(state, action, reward, nxt, done)
            state = env.reset() if done else nxt

        s, a, r, s2, d = buffer.sample(batch_size)
        q = policy(s).gather(1, a).squeeze(1)
        with torch.no_grad():
            best = policy(s2).argmax(1, keepdim=True)
            y = r + gamma * (1 - d) * target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        opt.step()
        if step % 100 == 0:
            target.load_state_dict(policy.state_dict())
            print(f"step {step} loss {loss.item():.5f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
