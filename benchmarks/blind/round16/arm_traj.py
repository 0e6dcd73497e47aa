"""Batched trajectory optimisation for a 7-dof arm among spherical obstacles (gradient descent on joint paths)."""
import argparse
import math
import time

import torch

# a, d, alpha of the modified DH table (Panda)
DH = [(0.0, 0.333, 0.0), (0.0, 0.0, -math.pi / 2), (0.0, 0.316, math.pi / 2), (0.0825, 0.0, math.pi / 2),
      (-0.0825, 0.384, -math.pi / 2), (0.0, 0.0, math.pi / 2), (0.088, 0.107, math.pi / 2)]
LIMITS = torch.tensor([2.8973, 1.7628, 2.8973, 3.0718, 2.8973, 3.7525, 2.8973])


class Arm:
    def __init__(self, spheres_per_link, device):
        self.static = []
        for a, d, al in DH:
            ca, sa = math.cos(al), math.sin(al)
            rot = torch.tensor([[1, 0, 0], [0, ca, -sa], [0, sa, ca]], device=device)
            off = torch.tensor([a, -sa * d, ca * d], device=device)
            self.static.append((rot, off))
        g = torch.Generator().manual_seed(3)
        n = spheres_per_link
        self.local = (torch.rand(7, n, 3, generator=g) * 0.16 - 0.08).to(device)
        self.radius = (torch.rand(7, n, generator=g) * 0.03 + 0.04).to(device)

    def fk(self, q):
        """q (..., 7) -> sphere centres (..., 7 * n, 3) and the flange position."""
        c, s = torch.cos(q), torch.sin(q)
        zero, one = torch.zeros_like(c), torch.ones_like(c)
        rz = torch.stack([c, -s, zero, s, c, zero, zero, zero, one], -1).unflatten(-1, (3, 3))
        rot, pos, out = None, None, []
        for j, (r0, off) in enumerate(self.static):
            local = r0 @ rz[..., j, :, :]
            if rot is None:
                rot, pos = local, off.expand(*q.shape[:-1], 3)
            else:
                pos = pos + rot @ off
                rot = rot @ local
            out.append(self.local[j] @ rot.transpose(-1, -2) + pos.unsqueeze(-2))
        return torch.cat(out, -2), pos


def clearance(centres, obstacles):
    """Distance of every sphere centre to every obstacle centre."""
    diff = centres.unsqueeze(-2) - obstacles
    return diff.norm(dim=-1)


def clearance_mm(centres, obstacles):
    return torch.cdist(centres.reshape(-1, 3), obstacles).view(*centres.shape[:-1], -1)


def collision_cost(centres, radius, obstacles, obs_radius, margin, dist=clearance):
    gap = dist(centres, obstacles) - (radius[:, None] + obs_radius)
    return torch.relu(margin - gap).square().sum((-1, -2)).mean(-1)


class PathProblem:
    def __init__(self, seeds, horizon, n_obs, device):
        lim = LIMITS.to(device)
        self.start = (torch.rand(1, 1, 7, device=device) - 0.5) * lim
        self.goal = (torch.rand(1, 1, 7, device=device) - 0.5) * lim
        t = torch.linspace(0, 1, horizon, device=device).view(1, -1, 1)
        bend = torch.sin(math.pi * t) * torch.randn(seeds, 1, 7, device=device) * 0.5
        self.q = (self.start + (self.goal - self.start) * t + bend).requires_grad_()
        p = torch.randn(n_obs, 3, device=device)
        self.obstacles = p / p.norm(dim=-1, keepdim=True) * (0.5 + 0.5 * torch.rand(n_obs, 1, device=device))
        self.obs_radius = 0.04 + 0.08 * torch.rand(n_obs, device=device)
        self.lim = lim
        self.opt = torch.optim.Adam([self.q], lr=0.02)


def solve_iteration(prob, arm, cost_fn):
    centres, tip = arm.fk(prob.q)
    hit = cost_fn(centres, arm.radius.flatten(), prob.obstacles, prob.obs_radius, 0.05)
    vel = prob.q.diff(dim=1)
    smooth = vel.square().sum((-1, -2)) + 4.0 * vel.diff(dim=1).square().sum((-1, -2))
    ends = (prob.q[:, :1] - prob.start).square().sum((-1, -2)) + (prob.q[:, -1:] - prob.goal).square().sum((-1, -2))
    bounds = torch.relu(prob.q.abs() - prob.lim).square().sum((-1, -2))
    path = tip.diff(dim=1).square().sum((-1, -2))
    cost = 20.0 * hit + smooth + 50.0 * ends + 10.0 * bounds + path
    prob.opt.zero_grad()
    cost.sum().backward()
    prob.opt.step()
    return cost.detach()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--fix", type=str, default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    fixes = set(a.fix.split(","))
    device = torch.device("cpu") if a.cpu else torch.device("cuda")
    torch.manual_seed(11)
    seeds, horizon, n_obs, per_link, iters = (8, 8, 10, 4, 8) if a.tiny else (1024, 48, 128, 8, 50)

    def cost_fn(*xs):
        return collision_cost(*xs, dist=clearance_mm if "cdist" in fixes else clearance)
    if "compiled" in fixes:
        cost_fn = torch.compile(cost_fn, dynamic=False)
    arm = Arm(per_link, device)
    done = 0
    while done < a.steps:
        problem = PathProblem(seeds, horizon, n_obs, device)
        for _ in range(min(iters, a.steps - done)):
            if done == a.steps // 2:
                if not a.cpu:
                    torch.cuda.synchronize()
                began = time.perf_counter()
            cost = solve_iteration(problem, arm, cost_fn)
            done += 1
    if not a.cpu:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - began) / (a.steps - a.steps // 2) * 1e3:.3f}")
    print(f"best path cost {cost.min().item():.5f} mean {cost.mean().item():.5f}")


if __name__ == "__main__":
    main()
