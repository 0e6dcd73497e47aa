"""The learner of a double DQN on Atari frames with prioritised replay.

The frames live on the device as uint8. Which transitions to replay is decided by a sum tree and a min tree
over their priorities, kept in Python after the well-known implementation; after each update the new
temporal-difference errors go back into both trees. The actors run elsewhere. A step is one update on 2048
transitions.
"""

import random

import numpy as np
import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["host-work"]
FIXES = {"numpy-trees": "the same trees as numpy arrays, walked and updated for the whole batch at once"}
TRUTH_STEPS = 240

ALPHA, BETA, GAMMA = 0.6, 0.5, 0.99


class Trees:
    def __init__(self, capacity):
        self.capacity = capacity
        self.sums = [0.0] * capacity + [1.0] * capacity
        self.mins = [1.0] * (2 * capacity)
        for node in range(capacity - 1, 0, -1):
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def sample(self, count):
        chosen, weights = [], []
        part = self.sums[1] / count
        largest = (self.mins[1] / self.sums[1] * self.capacity) ** -BETA
        for n in range(count):
            mass = (n + random.random()) * part
            node = 1
            while node < self.capacity:
                node = 2 * node
                if mass > self.sums[node]:
                    mass -= self.sums[node]
                    node += 1
            chosen.append(node - self.capacity)
            weights.append((self.sums[node] / self.sums[1] * self.capacity) ** -BETA / largest)
        return np.array(chosen), np.array(weights, dtype=np.float32)

    def update(self, chosen, errors):
        for index, error in zip(chosen.tolist(), errors.tolist(), strict=True):
            node = index + self.capacity
            self.sums[node] = self.mins[node] = (abs(error) + 1e-3) ** ALPHA
            node //= 2
            while node >= 1:
                self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]
                self.mins[node] = min(self.mins[2 * node], self.mins[2 * node + 1])
                node //= 2


class NumpyTrees:
    def __init__(self, capacity):
        plain = Trees(capacity)
        self.capacity, self.sums, self.mins = capacity, np.array(plain.sums), np.array(plain.mins)

    def sample(self, count):
        mass = (np.arange(count) + np.random.rand(count)) * (self.sums[1] / count)
        node = np.ones(count, dtype=np.int64)
        while node[0] < self.capacity:
            node = 2 * node
            left = self.sums[node]
            right = mass > left
            mass = mass - left * right
            node = node + right
        largest = (self.mins[1] / self.sums[1] * self.capacity) ** -BETA
        weights = (self.sums[node] / self.sums[1] * self.capacity) ** -BETA / largest
        return node - self.capacity, weights.astype(np.float32)

    def update(self, chosen, errors):
        node = chosen + self.capacity
        self.sums[node] = self.mins[node] = (np.abs(errors) + 1e-3) ** ALPHA
        while node[0] > 1:
            node = node // 2
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]
            self.mins[node] = np.minimum(self.mins[2 * node], self.mins[2 * node + 1])


def network(actions):
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, actions),
    )


def main():
    args = arguments(1100, list(FIXES))
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    capacity, batch, actions = (2**17, 2048, 18) if args.gpu else (2**10, 16, 6)
    device = args.device
    frames = torch.randint(256, (capacity + 8, 84, 84), dtype=torch.uint8, device=device)
    taken = torch.randint(actions, (capacity,), device=device)
    rewards = torch.randn(capacity, device=device).clamp_(-1, 1)
    online, target = network(actions).to(device), network(actions).to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True)
    trees = NumpyTrees(capacity) if args.fix == "numpy-trees" else Trees(capacity)
    stack = torch.arange(4, device=device)

    clock = Clock(args.steps)
    for step in range(args.steps):
        chosen, weights = trees.sample(batch)
        index, weight = torch.from_numpy(chosen).to(device), torch.from_numpy(weights).to(device)
        now = frames[index[:, None] + stack].float() / 255
        then = frames[index[:, None] + stack + 1].float() / 255
        with torch.no_grad():
            best = online(then).argmax(1, keepdim=True)
            goal = rewards[index] + GAMMA * target(then).gather(1, best)[:, 0]
        value = online(now).gather(1, taken[index][:, None])[:, 0]
        loss = (weight * F.smooth_l1_loss(value, goal, reduction="none")).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        trees.update(chosen, (value - goal).detach().cpu().numpy())
        if step % 500 == 499:
            target.load_state_dict(online.state_dict())
        clock.tick()
    print(f"loss {loss.item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
