# Feature distillation: align student layers to teacher layers with linear CKA.
import argparse, time
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


def center(z):
    return z - z.mean(dim=0, keepdim=True)


def linear_cka(x, y, fix=False):
    x, y = center(x), center(y)
    if fix:
        hsic = (y.t() @ x).pow(2).sum()
        return hsic / ((x.t() @ x).norm() * (y.t() @ y).norm())
    kx = x @ x.t()
    ky = y @ y.t()
    return (kx * ky).sum() / (kx.norm() * ky.norm())


class Net(nn.Module):
    def __init__(self, width, depth, n_in=40, n_out=10):
        super().__init__()
        self.stem = nn.Linear(n_in, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        self.out = nn.Linear(width, n_out)

    def forward(self, x):
        h = self.stem(x)
        feats = []
        for b in self.blocks:
            h = h + b(h)
            feats.append(h)
        return self.out(h), feats


def run(steps, fix):
    torch.manual_seed(0)
    teacher = Net(96, 3).eval().requires_grad_(False)
    student = Net(32, 3)
    opt = torch.optim.AdamW(student.parameters(), lr=2e-3)
    pool = torch.randn(20000, 40)
    g = torch.Generator().manual_seed(1)
    times, hist = [], []
    for it in range(steps):
        tic = time.time()
        xb = pool[torch.randint(0, len(pool), (640,), generator=g)]
        with torch.no_grad():
            t_logits, t_feats = teacher(xb)
        s_logits, s_feats = student(xb)
        kd = nn.functional.kl_div(s_logits.log_softmax(-1), t_logits.softmax(-1), reduction="batchmean")
        cka = sum(1 - linear_cka(s, t, fix) for s, t in zip(s_feats, t_feats)) / len(s_feats)
        loss = kd + cka
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(loss.item())
        times.append(time.time() - tic)
        if it % 200 == 0:
            print(it, "kd %.4f cka %.4f" % (kd.item(), cka.item()))
    print("loss", round(hist[-1], 5))
    print("mean step ms", round(1000 * float(np.mean(times[steps // 3:])), 3))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--fix", action="store_true")
    a = ap.parse_args()
    run(a.steps, a.fix)
