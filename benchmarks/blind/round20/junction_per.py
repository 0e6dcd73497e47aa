"""Traffic lights at one junction: double DQN with prioritised replay, a queue model for the traffic."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXES = ("sum_tree", "kept_powers")


class Junction:
    """Many copies of a junction with eight lanes; a phase serves two of them."""

    def __init__(self, copies, rng):
        self.rng, self.queues = rng, rng.integers(0, 6, size=(copies, 8)).astype(np.float32)
        self.phase = np.zeros(copies, dtype=np.int64)
        self.rate = np.linspace(0.05, 0.4, 8)

    def state(self):
        return np.concatenate([self.queues / 20, np.eye(4, dtype=np.float32)[self.phase]], 1)

    def step(self, action):
        rows = np.arange(len(action))
        lost = (action != self.phase).astype(np.float32)
        for lane in (2 * action, 2 * action + 1):
            self.queues[rows, lane] -= np.minimum(self.queues[rows, lane], 2 - lost)
        self.queues += self.rng.random(self.queues.shape) < self.rate
        np.minimum(self.queues, 40, out=self.queues)
        self.phase = action
        return -self.queues.sum(1) / 40 - 0.1 * lost


class PrioritisedReplay:
    """Proportional prioritisation (Schaul et al. 2016): a transition is drawn with p_i^alpha / sum p^alpha."""

    def __init__(self, capacity, width, rng, alpha=0.6):
        self.rng, self.alpha, self.size, self.capacity, self.head = rng, alpha, 0, capacity, 0
        self.state, self.next = np.zeros((2, capacity, width), np.float32)
        self.action, self.reward = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
        self.priorities = np.zeros(capacity, np.float64)
        self.top = 1.0

    def set(self, index, priority):
        self.priorities[index] = priority
        self.top = max(self.top, float(np.max(priority)))

    def add(self, state, action, reward, following):
        index = (self.head + np.arange(len(action))) % self.capacity
        self.state[index], self.action[index], self.reward[index], self.next[index] = state, action, reward, following
        self.head, self.size = (self.head + len(action)) % self.capacity, min(self.size + len(action), self.capacity)
        self.set(index, np.full(len(index), self.top))

    def draw(self, count):
        scaled = self.priorities[:self.size] ** self.alpha
        probability = scaled / scaled.sum()
        index = self.rng.choice(self.size, size=count, p=probability)
        return index, probability[index]

    def sample(self, count, beta=0.4):
        index, probability = self.draw(count)
        weight = (self.size * probability) ** -beta
        arrays = (self.state[index], self.action[index], self.reward[index], self.next[index],
                  (weight / weight.max()).astype(np.float32))
        return index, [torch.from_numpy(a) for a in arrays]


class KeptPowers(PrioritisedReplay):
    """Powers kept beside the priorities; the distribution is still worked out anew for each batch."""

    def set(self, index, priority):
        super().set(index, priority)
        self.powers = getattr(self, "powers", np.zeros(self.capacity))
        self.powers[index] = np.asarray(priority) ** self.alpha

    def draw(self, count):
        sums = np.cumsum(self.powers[:self.size])
        index = np.searchsorted(sums, self.rng.random(count) * sums[-1], side="right")
        return index, self.powers[index] / sums[-1]


class SumTree(PrioritisedReplay):
    """A binary tree of sums over the powers; a draw walks from the root, all draws of a batch at once."""

    def __init__(self, capacity, *args, **kwargs):
        super().__init__(capacity, *args, **kwargs)
        self.depth = (capacity - 1).bit_length()
        self.tree = np.zeros(2 << self.depth, np.float64)

    def set(self, index, priority):
        super().set(index, priority)
        node = np.asarray(index) + (1 << self.depth)
        self.tree[node] = np.asarray(priority) ** self.alpha
        for _ in range(self.depth):
            node = np.unique(node >> 1)
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def draw(self, count):
        node, left = np.ones(count, np.int64), self.rng.random(count) * self.tree[1]
        for _ in range(self.depth):
            node = 2 * node
            right = left >= self.tree[node]
            left -= np.where(right, self.tree[node], 0)
            node += right
        return node - (1 << self.depth), self.tree[node] / self.tree[1]


def q_net(width):
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


def learn(online, target, optimizer, batch, gamma=0.97):
    state, action, reward, following, weight = batch
    with torch.no_grad():
        best = online(following).argmax(1, keepdim=True)
        goal = reward + gamma * target(following).gather(1, best).squeeze(1)
    value = online(state).gather(1, action[:, None]).squeeze(1)
    loss = (weight * F.smooth_l1_loss(value, goal, reduction="none")).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item(), (value - goal).detach().abs().numpy() + 1e-3


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--fix", choices=FIXES)
    ap.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = ap.parse_args()
    capacity, warm, copies, width = (1 << 20, 900_000, 16, 128) if args.size == "cpu" else (4096, 2000, 8, 32)

    torch.manual_seed(2)
    road = Junction(copies, np.random.default_rng(2))
    kind = {None: PrioritisedReplay, "kept_powers": KeptPowers, "sum_tree": SumTree}[args.fix]
    memory = kind(capacity, 12, np.random.default_rng(5))
    old = Junction(warm // 20, np.random.default_rng(3))            # a recorded controller fills the memory
    for _ in range(20):
        before, action = old.state(), old.rng.integers(4, size=warm // 20)
        memory.add(before, action, old.step(action), old.state())
    memory.set(np.arange(memory.size), old.rng.exponential(0.3, size=memory.size) + 1e-3)

    online, target = q_net(width), q_net(width)
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4, fused=True)
    took, losses = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        if step % 50 == 0:
            target.load_state_dict(online.state_dict())
        before = road.state()
        with torch.no_grad():
            action = online(torch.from_numpy(before)).argmax(1).numpy()
        explore = road.rng.random(copies) < 0.1
        action = np.where(explore, road.rng.integers(4, size=copies), action)
        memory.add(before, action, road.step(action), road.state())
        index, batch = memory.sample(256)
        loss, error = learn(online, target, optimizer, batch)
        memory.set(index, error)
        losses.append(loss)
        took.append(time.perf_counter() - start)
    print(f"cars waiting {road.queues.sum(1).mean():.2f}")
    print(f"mean loss {np.mean(losses):.6f}")
    print(f"mean step ms {1e3 * np.mean(took[args.steps // 3:]):.3f}")


if __name__ == "__main__":
    main()
