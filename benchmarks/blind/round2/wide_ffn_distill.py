"""Distilling a dense feed-forward stack (three residual blocks, 8192 -> 32768 -> 8192) on 8192 token states a step, bf16
weights, fused SGD with momentum, loss read every step, ids from a DataLoader with real work in its workers.

Why: 97 % of the step is matmuls of 8192 and more in every dimension at the rate the device has; nothing else reaches 5 %.
Traps: `loss.item()` every step; a loader that is busy, and just fast enough; a log line every 20 steps.
No fix; the proof is the FLOP/s printed at the end.
"""

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["compute", "at-the-roof"]]
FIXES = []
TRUTH_STEPS = 45


class Documents(Dataset):
    """One item is one batch of ids; sorting stands for the packing of documents."""

    def __init__(self, count, tokens, vocab, work):
        self.count, self.tokens, self.vocab, self.work = count, tokens, vocab, work

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        lengths = np.sort(rng.integers(1, 4096, self.work))
        ids = rng.integers(0, self.vocab, self.tokens) + int(lengths[0] > 5000)
        return torch.from_numpy(ids)


class Residual(nn.Module):
    def __init__(self, d, wide):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, wide, bias=False), nn.Linear(wide, d, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def main():
    args = arguments(240, FIXES)
    d, wide, blocks, tokens, vocab, work = (8192, 32768, 3, 8192, 16384, 5_000_000) if args.gpu else (64, 256, 2, 32, 100, 1000)
    torch.manual_seed(0)
    with torch.device(args.device):
        table = torch.randn(vocab, d).bfloat16()
        student = nn.Sequential(*(Residual(d, wide) for _ in range(blocks))).bfloat16()
        goal = torch.randn(tokens, d).bfloat16()
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3, momentum=0.9, fused=True)
    data = Documents(args.steps + 1, tokens, vocab, work)
    loader = DataLoader(data, batch_size=None, num_workers=4 if args.gpu else 1, pin_memory=args.gpu, prefetch_factor=4)
    clock, losses = Clock(args.steps), []
    for step, ids in enumerate(loader):
        if step == args.steps:
            break
        x = F.embedding(ids.to(args.device, non_blocking=True), table)
        loss = F.mse_loss(student(x), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 19:
            print(f"step {step + 1}: {sum(losses[-20:]) / 20:.4f}")
        clock.tick()
    matmuls = 2 * tokens * d * wide * 2 * (3 * blocks)
    print(f"achieved {matmuls / clock.mean_ms / 1e9:.0f} TFLOP/s")
    clock.report()


if __name__ == "__main__":
    main()
