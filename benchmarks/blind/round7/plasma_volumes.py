"""Trains a one-step surrogate of a plasma simulation from snapshots of eight fields on a 128^3 grid.

The simulation's snapshots sit in host memory as one float32 array; a batch is four consecutive states and
their successors, a slice of five snapshots. The surrogate cuts the grid into 4^3 patches and predicts the
change of each with a residual MLP (bfloat16 autocast, fused AdamW). A step is one batch.
"""

import numpy as np
import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["copy-exposed"]
FIXES = {
    "pinned": "snapshots in pinned memory, the next slice copied beside the step on another stream",
    "resident": "puts all snapshots on the device before training",
}
TRUTH_STEPS = 110


def simulate(snapshots, fields, grid):
    """Made-up snapshots: a drifting noise field."""
    generator = np.random.default_rng(0)
    first = generator.standard_normal((fields, grid, grid, grid), dtype=np.float32)
    states = np.empty((snapshots, *first.shape), dtype=np.float32)
    for n in range(snapshots):
        states[n, ..., : grid - n] = first[..., n:]
        states[n, ..., grid - n :] = first[..., :n]
    return torch.from_numpy(states)


def patches(x, p=4):
    b, f, d, h, w = x.shape
    x = x.view(b, f, d // p, p, h // p, p, w // p, p).permute(0, 2, 4, 6, 1, 3, 5, 7)
    return x.reshape(b, -1, f * p**3)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Surrogate(nn.Module):
    def __init__(self, patch, width, depth):
        super().__init__()
        self.enter, self.leave = nn.Linear(patch, width), nn.Linear(width, patch)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x)))


class Slices:
    """Slices of `length` snapshots on the device, as plain copies or one ahead on a stream of its own."""

    def __init__(self, states, length, device, fix):
        self.states, self.length, self.device = states, length, device
        self.ahead = fix == "pinned" and device.type == "cuda"
        if fix == "resident":
            self.states = states.to(device)
        elif self.ahead:
            self.states = states.pin_memory()
            self.stream, self.step = torch.cuda.Stream(), 0
            self.buffer = self.fetch()

    def slice(self, step):
        start = step * 3 % (len(self.states) - self.length + 1)
        return self.states[start : start + self.length]

    def fetch(self):
        with torch.cuda.stream(self.stream):
            copy = self.slice(self.step).to(self.device, non_blocking=True)
        self.step += 1
        return copy

    def next(self, step):
        if not self.ahead:
            return self.slice(step).to(self.device)
        current = torch.cuda.current_stream()
        current.wait_stream(self.stream)
        ready = self.buffer
        ready.record_stream(current)
        self.buffer = self.fetch()
        return ready


def main():
    args = arguments(480, list(FIXES))
    torch.manual_seed(0)
    fields, grid, snapshots, batch, width, depth = (
        (8, 128, 16, 4, 512, 3) if args.gpu else (2, 16, 8, 2, 32, 2)
    )
    slices = Slices(simulate(snapshots, fields, grid), batch + 1, args.device, args.fix)
    model = Surrogate(fields * 4**3, width, depth).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    clock = Clock(args.steps)
    for step in range(args.steps):
        states = patches(slices.next(step))
        before, change = states[:-1], states[1:] - states[:-1]
        with torch.autocast(args.device.type, torch.bfloat16):
            loss = F.mse_loss(model(before).float(), change)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    print(f"loss {loss.item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
