"""Molecular dynamics of liquid argon with a learned pair potential: forces by autograd, velocity-Verlet
integration in a periodic box, energies kept for the log."""

from collections import defaultdict

import numpy as np
import torch
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-work"]]
FIXES = {
    "device-list": "the neighbour list is built on the device",
    "tf32": "float32 matrix products may use TF32",
}
TRUTH_STEPS = 150
RENEW = 10


class PairPotential(nn.Module):
    def __init__(self, cutoff, basis, hidden):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0.5, cutoff, basis))
        self.net = nn.Sequential(
            nn.Linear(basis, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)
        )

    def forward(self, positions, box, first, second):
        apart = positions.index_select(0, first) - positions.index_select(0, second)
        apart = apart - box * torch.round(apart / box)
        distance = apart.square().sum(1).add(1e-9).sqrt()
        switch = (1 - (distance / self.cutoff).clamp(max=1) ** 2) ** 2
        features = torch.exp(-4 * (distance.unsqueeze(1) - self.centres) ** 2)
        core = (0.8 / distance) ** 12
        return (switch * (self.net(features).squeeze(1) * 0.01 + core)).sum() / 2


def cell_list(positions, box, reach):
    """Pairs closer than `reach`, from cells of that size."""
    wrapped = np.mod(positions, box)
    count = max(int(box // reach), 1)
    home = np.minimum((wrapped / box * count).astype(int), count - 1).tolist()
    members = defaultdict(list)
    for atom, (i, j, k) in enumerate(home):
        members[i, j, k].append(atom)
    around = [(a, b, c) for a in (-1, 0, 1) for b in (-1, 0, 1) for c in (-1, 0, 1)]
    first, second = [], []
    for atom, (i, j, k) in enumerate(home):
        near = []
        for cell in {((i + a) % count, (j + b) % count, (k + c) % count) for a, b, c in around}:
            near.extend(members[cell])
        near = np.array(near)
        apart = wrapped[near] - wrapped[atom]
        apart -= box * np.round(apart / box)
        close = near[((apart**2).sum(1) < reach**2) & (near != atom)]
        first.append(np.full(len(close), atom))
        second.append(close)
    return np.concatenate(first), np.concatenate(second)


def device_list(positions, box, reach):
    found = []
    for start in range(0, len(positions), 2048):
        apart = positions[start : start + 2048, None] - positions[None]
        apart -= box * torch.round(apart / box)
        first, second = (apart.square().sum(-1) < reach**2).nonzero(as_tuple=True)
        first = first + start
        other = first != second
        found.append((first[other], second[other]))
    return torch.cat([f for f, _ in found]), torch.cat([s for _, s in found])


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(11)
    side, spacing, cutoff, skin = (16, 1.1, 2.2, 0.3) if args.gpu else (5, 1.1, 1.6, 0.2)
    if args.fix == "tf32":
        torch.set_float32_matmul_precision("high")
    device, box = args.device, side * spacing
    axis = torch.arange(side, device=device) * spacing
    positions = torch.cartesian_prod(axis, axis, axis) + 0.05 * torch.randn(side**3, 3, device=device)
    velocities = 0.1 * torch.randn_like(positions)
    potential = PairPotential(cutoff, 24, 64).to(device).requires_grad_(False)
    energies, dt = [], 0.002

    def forces(positions):
        positions = positions.detach().requires_grad_()
        energy = potential(positions, box, first, second)
        (slope,) = torch.autograd.grad(energy, positions)
        return -slope, energy.detach()

    force = torch.zeros_like(positions)
    clock = Clock(args.steps, period=RENEW if args.gpu else 1)
    for step in range(args.steps):
        if step % RENEW == 0:
            if args.fix == "device-list":
                first, second = device_list(positions, box, cutoff + skin)
            else:
                pairs = cell_list(positions.cpu().numpy(), box, cutoff + skin)
                first, second = (torch.from_numpy(p).to(device) for p in pairs)
        velocities = velocities + 0.5 * dt * force
        positions = positions + dt * velocities
        force, energy = forces(positions)
        force = force.clamp(-50, 50)
        velocities = velocities + 0.5 * dt * force
        energies.append(energy)
        clock.tick()
    clock.report()
    print("pairs", len(first), "energy", f"{torch.stack(energies)[-1].item():.3f}")


if __name__ == "__main__":
    main()
