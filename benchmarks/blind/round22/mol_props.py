"""Multi-task property prediction from 1024-bit molecular fingerprints, bf16 autocast."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Fingerprints:
    def __init__(self, n, bits, tasks, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.x = (torch.rand(n, bits, generator=self.gen) < 0.08).to(torch.bfloat16)
        w = torch.randn(bits, tasks, generator=self.gen) / 9
        self.y = torch.tanh(self.x.float() @ w)

    def rows(self, n):
        return torch.randint(0, len(self.x), (n,), generator=self.gen)

    def batch(self, i):
        return self.x.index_select(0, i), self.y.index_select(0, i)


class PropertyNet(nn.Module):
    def __init__(self, bits, width, depth, tasks):
        super().__init__()
        dims = [bits] + [width] * depth
        self.hidden = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])
        self.out = nn.Linear(width, tasks)

    def forward(self, x):
        for lin in self.hidden:
            x = F.relu(lin(x))
        return self.out(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=1536)
    ap.add_argument("--width", type=int, default=1024)
    ap.add_argument("--depth", type=int, default=3)
    ap.add_argument("--tasks", type=int, default=24)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--rows", type=int, default=12_000)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    data = Fingerprints(args.rows, 1024, args.tasks, 1)
    net = PropertyNet(1024, args.width, args.depth, args.tasks)
    opt = torch.optim.SGD(net.parameters(), lr=args.lr, fused=True)
    plan = [data.rows(args.batch) for _ in range(args.steps)] if args.fix else None
    times, shown = [], 20
    for step in range(1, args.steps + 1):
        t0 = time.perf_counter()
        x, y = data.batch(plan[step - 1] if plan else data.rows(args.batch))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = net(x)
        loss = F.mse_loss(pred.float(), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % shown == 0:
            print(f"step {step} mse {loss.item():.5f}")
    tail = times[len(times) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
