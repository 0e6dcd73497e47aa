"""PINN for unsteady 2-D incompressible flow (Taylor-Green initial state)."""
import argparse
import time

import torch
import torch.nn as nn

torch.set_num_threads(1)
NU = 0.02


class Field(nn.Module):
    """(x, y, t) -> u, v, p"""

    def __init__(self, hidden=48, layers=4):
        super().__init__()
        mods, width = [], 3
        for _ in range(layers):
            mods += [nn.Linear(width, hidden), nn.Tanh()]
            width = hidden
        self.f = nn.Sequential(*mods, nn.Linear(hidden, 3))

    def forward(self, z):
        return self.f(z).split(1, dim=1)


def grad(out, z):
    return torch.autograd.grad(out, z, torch.ones_like(out), create_graph=True)[0]


def diff(out, z, i):
    return grad(out, z)[:, i:i + 1]


def momentum(u, v, p, z, w, axis):
    w_t, w_x, w_y = diff(w, z, 2), diff(w, z, 0), diff(w, z, 1)
    lap = diff(diff(w, z, 0), z, 0) + diff(diff(w, z, 1), z, 1)
    return w_t + u * w_x + v * w_y + diff(p, z, axis) - NU * lap


def residuals(u, v, p, z):
    mass = diff(u, z, 0) + diff(v, z, 1)
    return mass, momentum(u, v, p, z, u, 0), momentum(u, v, p, z, v, 1)


def residuals_v2(u, v, p, z):
    gu, gv, gp = grad(u, z), grad(v, z), grad(p, z)
    out = [gu[:, 0:1] + gv[:, 1:2]]
    for axis, g in enumerate((gu, gv)):
        w_x, w_y, w_t = g.split(1, dim=1)
        lap = diff(w_x, z, 0) + diff(w_y, z, 1)
        out.append(w_t + u * w_x + v * w_y + gp[:, axis:axis + 1] - NU * lap)
    return out


def taylor_green(xy):
    x, y = (3.14159 * xy).split(1, dim=1)
    return torch.cat([-torch.cos(x) * torch.sin(y), torch.sin(x) * torch.cos(y)], 1)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=420)
    ap.add_argument("--fix", action="store_true")
    cfg = ap.parse_args()
    pde = residuals_v2 if cfg.fix else residuals

    torch.manual_seed(42)
    net = Field()
    optim = torch.optim.Adam(net.parameters(), lr=1e-3)
    ms = []
    for k in range(cfg.steps):
        t0 = time.perf_counter()
        z = torch.rand(400, 3, requires_grad=True)
        xy0 = torch.rand(128, 2)
        res = pde(*net(z), z)
        u0, v0, _ = net(torch.cat([xy0, torch.zeros(128, 1)], 1))
        ic = (torch.cat([u0, v0], 1) - taylor_green(xy0)).square().mean()
        loss = sum(r.square().mean() for r in res) + 10 * ic
        optim.zero_grad()
        loss.backward()
        optim.step()
        ms.append(1e3 * (time.perf_counter() - t0))
        if k % 100 == 0:
            print(f"{k:6d}  loss {loss.item():.3e}  ic {ic.item():.3e}")
    ms = ms[len(ms) // 3:]
    print(f"loss {loss.item():.6f}")
    print(f"mean step ms {sum(ms) / len(ms):.3f}")
