"""Physics-informed network for steady 2-D incompressible flow in a unit box."""
import argparse
import time

import torch
import torch.nn as nn

RE = 50.0


class FlowNet(nn.Module):
    def __init__(self, width=96, depth=4):
        super().__init__()
        dims = [2] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:]))
        self.out = nn.Linear(width, 3)

    def forward(self, xy):
        h = xy
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.out(h)


def grad(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def fields(net, xy):
    u, v, p = net(xy).unbind(1)
    return u, v, p


def continuity(net, xy):
    u, v, _ = fields(net, xy)
    return grad(u, xy)[:, 0] + grad(v, xy)[:, 1]


def momentum_x(net, xy):
    u, v, p = fields(net, xy)
    du = grad(u, xy)
    u_xx, u_yy = grad(du[:, 0], xy)[:, 0], grad(du[:, 1], xy)[:, 1]
    return u * du[:, 0] + v * du[:, 1] + grad(p, xy)[:, 0] - (u_xx + u_yy) / RE


def momentum_y(net, xy):
    u, v, p = fields(net, xy)
    dv = grad(v, xy)
    v_xx, v_yy = grad(dv[:, 0], xy)[:, 0], grad(dv[:, 1], xy)[:, 1]
    return u * dv[:, 0] + v * dv[:, 1] + grad(p, xy)[:, 1] - (v_xx + v_yy) / RE


def energy(net, xy):
    u, v, p = fields(net, xy)
    e = 0.5 * (u * u + v * v) + p
    de = grad(e, xy)
    return (u * de[:, 0] + v * de[:, 1]).clamp(min=0)


def residuals_split(net, xy):
    return continuity(net, xy), momentum_x(net, xy), momentum_y(net, xy), energy(net, xy)


def residuals_v2(net, xy):
    u, v, p = fields(net, xy)
    du, dv, dp = grad(u, xy), grad(v, xy), grad(p, xy)
    u_xx, u_yy = grad(du[:, 0], xy)[:, 0], grad(du[:, 1], xy)[:, 1]
    v_xx, v_yy = grad(dv[:, 0], xy)[:, 0], grad(dv[:, 1], xy)[:, 1]
    mx = u * du[:, 0] + v * du[:, 1] + dp[:, 0] - (u_xx + u_yy) / RE
    my = u * dv[:, 0] + v * dv[:, 1] + dp[:, 1] - (v_xx + v_yy) / RE
    de = u[:, None] * du + v[:, None] * dv + dp
    return du[:, 0] + dv[:, 1], mx, my, (u * de[:, 0] + v * de[:, 1]).clamp(min=0)


def boundary(n):
    s = torch.rand(n, 1)
    top = torch.cat([s, torch.ones_like(s)], 1)
    walls = torch.cat([torch.cat([s, torch.zeros_like(s)], 1),
                       torch.cat([torch.zeros_like(s), s], 1),
                       torch.cat([torch.ones_like(s), s], 1)])
    xy = torch.cat([top, walls])
    uv = torch.zeros(len(xy), 2)
    uv[:n, 0] = 1.0
    return xy, uv


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)
    residuals = residuals_v2 if args.fix == "v2" else residuals_split

    net = FlowNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        xy = torch.rand(1536, 2, requires_grad=True)
        pde = sum(r.pow(2).mean() for r in residuals(net, xy))
        bxy, buv = boundary(64)
        bc = (net(bxy)[:, :2] - buv).pow(2).mean()
        loss = pde + 10 * bc
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"step {step} pde {pde.item():.5f} bc {bc.item():.5f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
