"""Fits a message-passing potential for liquid water in a periodic box to energies and forces.

Frames come from a thermostatted run of the reference force field; the loss is the usual weighted sum of an
energy term (per atom) and a force term, with forces the negative gradient of the predicted energy.
"""

import math

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

FIXES = ["summed-energy", "fused-adam"]
STEPS = 18
ENERGY_WEIGHT, FORCE_WEIGHT = 1.0, 25.0


class Radial(nn.Module):
    """Gaussians of the distance under a cosine cutoff."""

    def __init__(self, count, cutoff):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0.5, cutoff, count))
        self.gamma = (count / cutoff) ** 2 / 2

    def forward(self, distance):
        envelope = 0.5 * (torch.cos(math.pi * distance / self.cutoff) + 1) * (distance < self.cutoff)
        return torch.exp(-self.gamma * (distance[..., None] - self.centres) ** 2), envelope[..., None]


class Interaction(nn.Module):
    def __init__(self, width, radial):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(radial, width), nn.SiLU(), nn.Linear(width, width))
        self.inner = nn.Linear(width, width, bias=False)
        self.outer = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, basis, envelope):
        weights = self.filter(basis) * envelope
        message = (weights * self.inner(h)[:, None]).sum(2)
        return h + self.outer(message)


class Potential(nn.Module):
    def __init__(self, width, layers, radial, cutoff, box):
        super().__init__()
        self.box = box
        self.species = nn.Embedding(2, width)
        self.radial = Radial(radial, cutoff)
        self.layers = nn.ModuleList(Interaction(width, radial) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU(), nn.Linear(width // 2, 1))

    def forward(self, species, positions):
        delta = positions[:, :, None] - positions[:, None]
        delta = delta - self.box * torch.round(delta / self.box).detach()
        self_pair = torch.eye(positions.shape[1], device=positions.device)
        distance = (delta.square().sum(-1) + self_pair).sqrt()
        basis, envelope = self.radial(distance)
        envelope = envelope * (1 - self_pair)[..., None]
        h = self.species(species)
        for layer in self.layers:
            h = layer(h, basis, envelope)
        return self.readout(h).sum((1, 2))


def predict(model, species, positions, fix):
    """Energies (B,) and forces (B, N, 3) of a batch of frames."""
    positions = positions.detach().requires_grad_(True)
    energy = model(species, positions)
    if fix == "summed-energy":
        (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
        return energy, -gradient
    forces = []
    for i in range(len(energy)):
        (gradient,) = torch.autograd.grad(energy[i], positions, create_graph=True)
        forces.append(-gradient[i])
    return energy, torch.stack(forces)


def reference_frames(count, atoms, box, generator):
    """Perturbed lattices with the energies and forces of soft repulsive spheres."""
    side = math.ceil(atoms ** (1 / 3))
    grid = torch.stack(torch.meshgrid(*[torch.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:atoms]
    positions = (grid + 0.25 * torch.randn(count, atoms, 3, generator=generator)) * (box / side)
    delta = positions[:, :, None] - positions[:, None]
    delta = delta - box * torch.round(delta / box)
    distance = (delta.square().sum(-1) + torch.eye(atoms)).sqrt()
    overlap = (3.0 - distance).clamp(min=0) * (1 - torch.eye(atoms))
    energy = 0.25 * overlap.square().sum((1, 2))
    forces = (overlap[..., None] * delta / distance[..., None]).sum(2)
    return positions, energy, forces


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(1)
    frames, batch, atoms, width, layers, radial = (96, 12, 81, 128, 3, 32) if args.gpu else (8, 3, 12, 16, 2, 8)
    box = 12.0 if args.gpu else 6.0
    generator = torch.Generator().manual_seed(1)
    positions, energies, forces = (t.to(args.device) for t in reference_frames(frames, atoms, box, generator))
    species = (torch.arange(atoms, device=args.device) % 3 > 0).long().expand(batch, -1)

    model = Potential(width, layers, radial, box / 2, box).to(args.device)
    fused = True if args.fix == "fused-adam" else None
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    draws = torch.Generator(args.device).manual_seed(1)
    clock = Clock(args.steps)
    for _ in range(args.steps):
        pick = torch.randint(frames, (batch,), generator=draws, device=args.device)
        energy, force = predict(model, species, positions[pick], args.fix)
        loss = ENERGY_WEIGHT * F.mse_loss(energy / atoms, energies[pick] / atoms)
        loss = loss + FORCE_WEIGHT * F.mse_loss(force, forces[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
