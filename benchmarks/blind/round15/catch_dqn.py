"""DQN on a small 'catch the falling block' game with stacked frames and a replay buffer."""
import argparse
import random
import time
import warnings
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 42
warnings.filterwarnings("ignore")


class Catch:
    """A block falls; move the paddle left/stay/right to be under it."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.row, self.col = 0, int(self.rng.integers(2, SIZE - 2))
        self.paddle = SIZE // 2
        first = self._frame()
        self.frames = deque([first] * 4, maxlen=4)
        return np.stack(self.frames)

    def _frame(self):
        img = np.zeros((SIZE, SIZE), dtype=np.float32)
        img[self.row:self.row + 2, self.col - 1:self.col + 2] = 1.0
        img[-2:, self.paddle - 3:self.paddle + 4] = 0.5
        return img

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + 2 * (action - 1), 3, SIZE - 4))
        self.row += 2
        done = self.row >= SIZE - 2
        reward = float(abs(self.paddle - self.col) <= 3) * 2 - 1 if done else 0.0
        self.frames.append(self._frame())
        return np.stack(self.frames), reward, done


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 16, 6, stride=3), nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2), nn.ReLU())
        self.fc = nn.Sequential(nn.Linear(32 * 25, 128), nn.ReLU(), nn.Linear(128, 3))

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


class Replay:
    def __init__(self, size):
        self.items, self.size, self.at = [], size, 0

    def push(self, item):
        if len(self.items) < self.size:
            self.items.append(item)
        else:
            self.items[self.at] = item
        self.at = (self.at + 1) % self.size

    def sample(self, n):
        return zip(*random.sample(self.items, n))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    random.seed(0)
    rng = np.random.default_rng(0)

    env, replay = Catch(rng), Replay(6000)
    net, target = QNet(), QNet()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    to_batch = (lambda x: torch.from_numpy(np.stack(x))) if args.fix else torch.tensor
    state, score, times, step = env.reset(), deque(maxlen=50), [], -400
    while step < args.steps:
        t0 = time.perf_counter()
        for _ in range(4):
            if rng.random() < 0.2 or step < 0:
                action = int(rng.integers(3))
            else:
                with torch.no_grad():
                    action = int(net(torch.from_numpy(state)[None]).argmax())
            nxt, reward, done = env.step(action)
            replay.push((state, action, reward, nxt, float(done)))
            if done:
                score.append(reward)
            state = env.reset() if done else nxt
        step += 1
        if step <= 0:
            continue
        states, actions, rewards, nexts, dones = replay.sample(64)
        states, nexts = to_batch(states), to_batch(nexts)
        actions, rewards, dones = torch.tensor(actions), torch.tensor(rewards), torch.tensor(dones)
        with torch.no_grad():
            goal = rewards + 0.97 * (1 - dones) * target(nexts).max(1).values
        q = net(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 0:
            target.load_state_dict(net.state_dict())
        times.append(time.perf_counter() - t0)
        if step % 25 == 0 or step == args.steps:
            print(f"step {step} loss {loss.item():.6f} score {np.mean(score):.3f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
