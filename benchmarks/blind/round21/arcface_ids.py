"""ArcFace head on top of a small embedding trunk (identity classification)."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=350)
p.add_argument("--fix", action="store_true")
args = p.parse_args()


class ArcMargin(nn.Module):
    def __init__(self, dim, n_ids, s=30.0, m=0.3):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_ids, dim))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.m = s, m

    def forward(self, emb, y):
        cos = F.linear(F.normalize(emb), F.normalize(self.weight))
        cos = cos.clamp(-1 + 1e-6, 1 - 1e-6)
        if args.fix:
            col = y[:, None]
            own = torch.cos(torch.acos(cos.gather(1, col)) + self.m)
            logits = cos.scatter(1, col, own)
        else:
            theta = torch.acos(cos)
            hit = F.one_hot(y, self.weight.shape[0]).bool()
            logits = torch.where(hit, torch.cos(theta + self.m), cos)
        return F.cross_entropy(self.s * logits, y)


class Trunk(nn.Module):
    def __init__(self, d_in=256, dim=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_in, 256), nn.BatchNorm1d(256), nn.PReLU(),
                                 nn.Linear(256, dim), nn.BatchNorm1d(dim))

    def forward(self, x):
        return self.net(x)


def main():
    torch.manual_seed(3)
    n_ids, batch = 6000, 128
    protos = torch.randn(n_ids, 256)
    trunk, head = Trunk(), ArcMargin(64, n_ids)
    params = list(trunk.parameters()) + list(head.parameters())
    opt = torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, max(args.steps, 1))

    took, last = [], math.nan
    for step in range(args.steps):
        t0 = time.perf_counter()
        y = torch.randint(0, n_ids, (batch,))
        x = protos[y] + 0.3 * torch.randn(batch, 256)
        loss = head(trunk(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 5.0)
        opt.step()
        sched.step()
        last = loss.item()
        took.append(time.perf_counter() - t0)
        if step % 100 == 0:
            print(f"step {step:5d} loss {last:.4f} lr {sched.get_last_lr()[0]:.4f}")
    tail = took[len(took) // 3:]
    print(f"loss {last:.5f}")
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.3f}")


if __name__ == "__main__":
    main()
