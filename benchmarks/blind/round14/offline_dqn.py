"""Double DQN from logged Atari-like play (offline replay, dueling head)."""
import argparse
import copy
import random
import time
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cudnn.allow_tf32 = True
torch.backends.cuda.matmul.allow_tf32 = True
Transition = namedtuple("Transition", "state action reward next_state done")


class Dueling(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                                  nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten())
        self.value = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 1))
        self.adv = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions))

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class ReplayMemory:
    def __init__(self, capacity, device):
        self.data = deque(maxlen=capacity)
        self.device = device

    def load(self, frames, actions, rewards, dones):
        for i in range(len(frames) - 4):
            self.data.append(Transition(frames[i:i + 4], actions[i], rewards[i], frames[i + 1:i + 5], dones[i]))

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.data, n)))
        scale = lambda f: torch.tensor(f, dtype=torch.float32) / 255
        state = torch.stack([scale(f) for f in batch.state])
        nxt = torch.stack([scale(f) for f in batch.next_state])
        action, reward = torch.tensor(np.array(batch.action)), torch.tensor(np.array(batch.reward))
        done = torch.tensor(np.array(batch.done), dtype=torch.float32)
        return tuple(t.to(self.device) for t in (state, action, reward, nxt, done))


class CompactMemory(ReplayMemory):
    """Same samples; bytes are gathered into a pinned buffer and scaled on the device."""

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.data, n)))
        small = [torch.from_numpy(np.stack(v)) for v in batch]
        if self.device.type == "cuda":
            small = [t.pin_memory() for t in small]
        state, action, reward, nxt, done = (t.to(self.device, non_blocking=True) for t in small)
        return state.float() / 255, action, reward, nxt.float() / 255, done.float()


class DeviceMemory(ReplayMemory):
    """The log as tensors on the device; a sample is an index."""

    def load(self, frames, actions, rewards, dones):
        self.frames, self.actions, self.rewards, self.dones = (
            torch.from_numpy(v).to(self.device) for v in (frames, actions, rewards, dones))
        self.order = range(len(frames) - 4)

    def sample(self, n):
        i = torch.tensor(random.sample(self.order, n), device=self.device)
        stack = self.frames[i[:, None] + torch.arange(5, device=self.device)].float() / 255
        return stack[:, :4], self.actions[i], self.rewards[i], stack[:, 1:], self.dones[i].float()


def play_log(n, actions, seed=0):
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (n, 84, 84), dtype=np.uint8)
    return (frames, rng.integers(0, actions, n), rng.standard_normal(n).astype(np.float32), rng.random(n) < 0.01)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    fix = a.fix.split(",")
    dev = torch.device("cpu" if a.cpu else "cuda")
    torch.manual_seed(1)
    random.seed(1)
    size, batch, actions = (200, 8, 6) if a.tiny else (30_000, 256, 18)
    online = Dueling(actions).to(dev)
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), 1e-4, eps=1.5e-4, fused=not a.cpu)
    kind = DeviceMemory if "device_replay" in fix else CompactMemory if "byte_batches" in fix else ReplayMemory
    memory = kind(1_000_000, dev)
    memory.load(*play_log(size, actions))
    sync = torch.cuda.synchronize if dev.type == "cuda" else (lambda: None)
    tail = max(1, a.steps // 2)
    for step in range(a.steps):
        if step == a.steps - tail:
            sync()
            t0 = time.perf_counter()
        s, act, r, s2, done = memory.sample(batch)
        with torch.no_grad():
            best = online(s2).argmax(1, keepdim=True)
            y = r + 0.99 * (1 - done) * target(s2).gather(1, best).squeeze(1)
        q = online(s).gather(1, act[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 500 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {loss.item():.4f}")
    sync()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.5f}")


if __name__ == "__main__":
    main()
