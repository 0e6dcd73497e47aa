"""REDQ: soft actor-critic with an ensemble of ten critics; replay memory on the device, several updates per env step."""
import argparse
import copy
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Critics(nn.Module):
    def __init__(self, n, i, h):
        super().__init__()
        self.nets = nn.ModuleList(mlp(i, h, 1) for _ in range(n))

    def forward(self, x, which=None):
        nets = self.nets if which is None else [self.nets[k] for k in which]
        return torch.stack([net(x).squeeze(-1) for net in nets])


class StackedCritics(nn.Module):
    """The same ensemble with the weights of all members in one tensor per layer."""

    def __init__(self, n, i, h):
        super().__init__()
        self.w, self.b = nn.ParameterList(), nn.ParameterList()
        for a, o in ((i, h), (h, h), (h, 1)):
            self.w.append(nn.Parameter((torch.rand(n, a, o) * 2 - 1) * a ** -0.5))
            self.b.append(nn.Parameter((torch.rand(n, 1, o) * 2 - 1) * a ** -0.5))

    def forward(self, x, which=None):
        x = x.expand(self.w[0].size(0), *x.shape)
        for k, (w, b) in enumerate(zip(self.w, self.b)):
            x = torch.baddbmm(b, x, w)
            if k < 2:
                x = x.relu()
        q = x.squeeze(-1)
        return q if which is None else q[which]


class Actor(nn.Module):
    def __init__(self, s, a, h):
        super().__init__()
        self.net, self.a = mlp(s, h, 2 * a), a

    def forward(self, s):
        mu, ls = self.net(s).chunk(2, -1)
        ls = ls.clamp(-20, 2)
        noise = torch.randn_like(mu)
        u = mu + ls.exp() * noise
        act = u.tanh()
        logp = (-0.5 * noise ** 2 - ls - 0.919 - 2 * (0.6931 - u - F.softplus(-2 * u))).sum(-1)
        return act, logp


class Replay:
    def __init__(self, cap, s, a, dev):
        self.s, self.s2 = torch.randn(cap, s, device=dev), torch.randn(cap, s, device=dev)
        self.a = torch.rand(cap, a, device=dev) * 2 - 1
        self.r, self.d = torch.randn(cap, device=dev), (torch.rand(cap, device=dev) < 0.01).float()
        self.cap, self.dev = cap, dev

    def sample(self, n):
        i = torch.randint(0, self.cap, (n,), device=self.dev)
        return self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i]


class Agent:
    def __init__(self, s, a, h, n, dev, fix):
        self.n, self.dev, self.fix = n, dev, fix
        kind = StackedCritics if "stacked" in fix else Critics
        self.critics = kind(n, s + a, h).to(dev)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor = Actor(s, a, h).to(dev)
        self.log_alpha = nn.Parameter(torch.zeros((), device=dev))
        kw = dict(capturable=True) if "cuda_graph" in fix else {}
        self.opt_c = torch.optim.Adam(self.critics.parameters(), 3e-4, **kw)
        self.opt_a = torch.optim.Adam(self.actor.parameters(), 3e-4, **kw)
        self.opt_t = torch.optim.Adam([self.log_alpha], 3e-4, **kw)
        self.graph = None

    def update(self, s, a, r, s2, d):
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            a2, lp2 = self.actor(s2)
            x2 = torch.cat([s2, a2], -1)
            if self.fix & {"stacked", "cuda_graph"}:
                q2 = self.target(x2)[torch.rand(self.n, device=self.dev).argsort()[:2]]
            else:
                q2 = self.target(x2, random.sample(range(self.n), 2))
            y = r + 0.99 * (1 - d) * (q2.min(0).values - alpha * lp2)
        q = self.critics(torch.cat([s, a], -1))
        loss_c = sum(F.mse_loss(qk, y) for qk in q) if "stacked" not in self.fix else (q - y).pow(2).mean(1).sum()
        self.opt_c.zero_grad()
        loss_c.backward()
        self.opt_c.step()

        act, lp = self.actor(s)
        loss_a = (alpha * lp - self.critics(torch.cat([s, act], -1)).mean(0)).mean()
        self.opt_a.zero_grad()
        loss_a.backward()
        self.opt_a.step()

        loss_t = -(self.log_alpha * (lp.detach() - 6.0)).mean()
        self.opt_t.zero_grad()
        loss_t.backward()
        self.opt_t.step()

        with torch.no_grad():
            for p, t in zip(self.critics.parameters(), self.target.parameters()):
                t.mul_(0.995).add_(p, alpha=0.005)
        return loss_c.detach()

    def update_graphed(self, *batch):
        if self.graph is None:
            self.static = [b.clone() for b in batch]
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.update(*self.static)
            torch.cuda.current_stream().wait_stream(side)
            for o in (self.opt_c, self.opt_a, self.opt_t):
                o.zero_grad(set_to_none=True)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = self.update(*self.static)
        for dst, src in zip(self.static, batch):
            dst.copy_(src)
        self.graph.replay()
        return self.loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="stacked, cuda_graph")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = set(filter(None, args.fix.split(",")))
    dev = torch.device("cpu" if args.cpu else "cuda")
    if dev.type == "cpu":
        fix.discard("cuda_graph")
    torch.manual_seed(0)
    random.seed(0)
    h, bs, n, utd = (16, 8, 3, 1) if args.tiny else (256, 256, 10, 4)
    agent = Agent(17, 6, h, n, dev, fix)
    memory = Replay(1000 if args.tiny else 1_000_000, 17, 6, dev)
    step_fn = agent.update_graphed if "cuda_graph" in fix else agent.update
    window = min(args.steps, max(3, args.steps // 3))
    for step in range(args.steps):
        if step == args.steps - window:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        for _ in range(utd):
            loss = step_fn(*memory.sample(bs))
        if step % 100 == 0:
            print(f"env step {step} critic loss {loss.item():.3f}")
    if dev.type == "cuda":
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")


if __name__ == "__main__":
    main()
