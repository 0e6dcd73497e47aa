"""Actor-critic on a two-link pendulum: a rollout of Python environments, then eleven updates.

Truth: overhead / host-work. Each of 128 environments integrates its own pendulum in plain Python; a
rollout of 32 moves takes most of the round, while the policy needs a forward call a move and the device
waits. Only one optimizer step in eleven has a rollout before it. Written in numpy for all environments
at once the same physics takes a fraction.
"""

import math
import random

import numpy as np
import torch
from fixclock import Clock, arguments, device_of
from torch import nn

WALLS = [["overhead", "host-work"]]
ALSO = []
FIXES = ["vectorised"]
PERIOD = 11  # updates in a round
SUBSTEPS, DT, GRAVITY = 4, 0.05, 9.8
LIMIT = 4 * math.pi


class Pendulum:
    """Two links, torque on the second joint. One environment."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.reset()

    def reset(self) -> list[float]:
        self.state = [self.dice.uniform(-0.1, 0.1) for _ in range(4)]
        self.moves = 0
        return self.observation()

    def observation(self) -> list[float]:
        a, b, va, vb = self.state
        return [math.cos(a), math.sin(a), math.cos(b), math.sin(b), va, vb]

    def slope(self, state: list[float], torque: float) -> list[float]:
        a, b, va, vb = state
        cos_b, sin_b = math.cos(b), math.sin(b)
        d1 = 1.25 + 0.25 + cos_b + 2.0
        d2 = 0.25 + 0.5 * cos_b + 1.0
        phi2 = 0.5 * GRAVITY * math.cos(a + b - math.pi / 2)
        phi1 = -0.5 * vb * vb * sin_b - vb * va * sin_b + 1.5 * GRAVITY * math.cos(a - math.pi / 2) + phi2
        acc_b = (torque + d2 / d1 * phi1 - 0.5 * va * va * sin_b - phi2) / (1.25 - d2 * d2 / d1)
        return [va, vb, -(d2 * acc_b + phi1) / d1, acc_b]

    def step(self, action: int) -> tuple[list[float], float, bool]:
        torque = float(action - 1)
        for _ in range(SUBSTEPS):
            s = self.state
            k1 = self.slope(s, torque)
            k2 = self.slope([x + DT / 2 * k for x, k in zip(s, k1, strict=True)], torque)
            k3 = self.slope([x + DT / 2 * k for x, k in zip(s, k2, strict=True)], torque)
            k4 = self.slope([x + DT * k for x, k in zip(s, k3, strict=True)], torque)
            moved = [
                x + DT / 6 * (p + 2 * q + 2 * r + t) for x, p, q, r, t in zip(s, k1, k2, k3, k4, strict=True)
            ]
            self.state = [*moved[:2], *(max(-LIMIT, min(LIMIT, v)) for v in moved[2:])]
        self.moves += 1
        height = -math.cos(self.state[0]) - math.cos(self.state[0] + self.state[1])
        over = height > 1.0 or self.moves >= 500
        return (self.reset() if over else self.observation()), height, over


class Pendulums:
    """A list of them, stepped one after the other."""

    def __init__(self, count: int) -> None:
        self.members = [Pendulum(seed) for seed in range(count)]

    def reset(self) -> np.ndarray:
        return np.array([member.reset() for member in self.members], np.float32)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        moved = [member.step(action) for member, action in zip(self.members, actions.tolist(), strict=True)]
        seen, rewards, over = zip(*moved, strict=True)
        return np.array(seen, np.float32), np.array(rewards, np.float32), np.array(over)


class VectorPendulums:
    """The same physics for all of them at once."""

    def __init__(self, count: int) -> None:
        self.dice = np.random.default_rng(0)
        self.count = count

    def reset(self) -> np.ndarray:
        self.state = self.dice.uniform(-0.1, 0.1, (4, self.count))
        self.moves = np.zeros(self.count, int)
        return self.observation()

    def observation(self) -> np.ndarray:
        a, b, va, vb = self.state
        return np.stack([np.cos(a), np.sin(a), np.cos(b), np.sin(b), va, vb], 1).astype(np.float32)

    def slope(self, state: np.ndarray, torque: np.ndarray) -> np.ndarray:
        a, b, va, vb = state
        cos_b, sin_b = np.cos(b), np.sin(b)
        d1 = 1.25 + 0.25 + cos_b + 2.0
        d2 = 0.25 + 0.5 * cos_b + 1.0
        phi2 = 0.5 * GRAVITY * np.cos(a + b - math.pi / 2)
        phi1 = -0.5 * vb * vb * sin_b - vb * va * sin_b + 1.5 * GRAVITY * np.cos(a - math.pi / 2) + phi2
        acc_b = (torque + d2 / d1 * phi1 - 0.5 * va * va * sin_b - phi2) / (1.25 - d2 * d2 / d1)
        return np.stack([va, vb, -(d2 * acc_b + phi1) / d1, acc_b])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        torque = actions - 1.0
        for _ in range(SUBSTEPS):
            s = self.state
            k1 = self.slope(s, torque)
            k2 = self.slope(s + DT / 2 * k1, torque)
            k3 = self.slope(s + DT / 2 * k2, torque)
            k4 = self.slope(s + DT * k3, torque)
            self.state = s + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            self.state[2:] = self.state[2:].clip(-LIMIT, LIMIT)
        self.moves += 1
        height = -np.cos(self.state[0]) - np.cos(self.state[0] + self.state[1])
        over = (height > 1.0) | (self.moves >= 500)
        self.state[:, over] = self.dice.uniform(-0.1, 0.1, (4, int(over.sum())))
        self.moves[over] = 0
        return self.observation(), height.astype(np.float32), over


class Policy(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, 3), nn.Linear(width, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(seen)
        return self.actor(hidden), self.critic(hidden)[:, 0]


def returns(rewards: list[np.ndarray], over: list[np.ndarray], discount: float = 0.99) -> np.ndarray:
    """Discounted sums, backwards in time."""
    found, ahead = [], np.zeros_like(rewards[0])
    for reward, ended in zip(reversed(rewards), reversed(over), strict=True):
        ahead = reward + discount * ahead * ~ended
        found.append(ahead)
    return np.concatenate(found[::-1])


def main() -> None:
    chosen = arguments(FIXES, steps=220)
    device = device_of(chosen.size)
    count, moves, width, minibatch = (128, 32, 512, 1024) if chosen.size == "gpu" else (8, 8, 16, 16)
    torch.manual_seed(0)
    worlds = VectorPendulums(count) if chosen.fix == "vectorised" else Pendulums(count)
    policy = Policy(width).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    clock = Clock(chosen, PERIOD, PERIOD)
    seen = worlds.reset()
    while True:
        history: list[tuple[torch.Tensor, torch.Tensor]] = []
        rewards, over = [], []
        for _ in range(moves):
            with torch.no_grad():
                there = torch.from_numpy(seen).to(device)
                actions = torch.distributions.Categorical(logits=policy(there)[0]).sample()
            history.append((there, actions))
            seen, reward, ended = worlds.step(actions.cpu().numpy())
            rewards.append(reward)
            over.append(ended)
        states, actions = (torch.cat(parts) for parts in zip(*history, strict=True))
        goals = torch.from_numpy(returns(rewards, over)).to(device)
        for _ in range(PERIOD):
            rows = torch.randint(len(states), (minibatch,), device=device)
            logits, values = policy(states[rows])
            advantage = goals[rows] - values
            chances = logits.log_softmax(1).gather(1, actions[rows, None])[:, 0]
            loss = advantage.square().mean() - (chances * advantage.detach()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if clock.done():
                return


if __name__ == "__main__":
    main()
