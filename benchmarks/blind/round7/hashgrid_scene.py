"""Fits a multi-resolution hash grid with a small MLP to a laser scan, in plain PyTorch.

The scan comes in chunks of half a million points; each point looks up the eight corners of its cell at
eight resolutions in a table of four features an entry (hashed where the grid is larger than the table),
interpolates, and the MLP turns the features into a signed distance. The points of a scan never change, so
the slots and weights of their corners are computed once a chunk and kept. A step is one chunk.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["gather-scatter"]
FIXES = {
    "index-select": "looks corners up with index_select, whose backward adds in place of sorting the indices"
}
TRUTH_STEPS = 500

PRIMES = (1, 2654435761, 805459861)


class Level(nn.Module):
    def __init__(self, resolution, entries, features, select):
        super().__init__()
        self.resolution, self.select = resolution, select
        self.dense = (resolution + 1) ** 3 <= entries
        self.entries = (resolution + 1) ** 3 if self.dense else entries
        self.table = nn.Parameter(torch.empty(self.entries, features).uniform_(-1e-2, 1e-2))
        corners = [[(n >> axis) & 1 for n in range(8)] for axis in range(3)]
        self.register_buffer("corners", torch.tensor(corners))

    def slots(self, cell):
        x, y, z = (cell[:, axis, None] + self.corners[axis] for axis in range(3))
        if self.dense:
            side = self.resolution + 1
            return (x * side + y) * side + z
        return (x * PRIMES[0] ^ y * PRIMES[1] ^ z * PRIMES[2]) % self.entries

    @torch.no_grad()
    def locate(self, points):
        """The slots [n, 8] and interpolation weights [n, 8, 1] of the corners around each point."""
        scaled = points * self.resolution
        cell = scaled.floor().clamp_(max=self.resolution - 1)
        part = scaled - cell
        weight = 1
        for axis in range(3):
            near = part[:, axis, None]
            weight = weight * torch.where(self.corners[axis] == 1, near, 1 - near)
        return self.slots(cell.long()), weight[..., None]

    def forward(self, slots, weight):
        if self.select:
            values = self.table.index_select(0, slots.flatten()).view(*slots.shape, -1)
        else:
            values = self.table[slots]
        return (values * weight).sum(dim=1)


class Field(nn.Module):
    def __init__(self, levels, base, growth, entries, features, width, select):
        super().__init__()
        self.levels = nn.ModuleList(
            Level(int(base * growth**n), entries, features, select) for n in range(levels)
        )
        self.mlp = nn.Sequential(nn.Linear(features * levels, width), nn.ReLU(), nn.Linear(width, 1))

    def locate(self, points):
        return [level.locate(points) for level in self.levels]

    def forward(self, located):
        found = [level(slots, weight) for level, (slots, weight) in zip(self.levels, located, strict=True)]
        return self.mlp(torch.cat(found, dim=1))[:, 0]


def distance(p):
    shell = (p - 0.5).norm(dim=1)
    return torch.sin(24 * shell) * torch.exp(-4 * shell) + 0.3 * torch.sin(40 * p[:, 0]) * torch.cos(
        31 * p[:, 1]
    )


def main():
    args = arguments(2200, list(FIXES))
    torch.manual_seed(0)
    points, chunks, levels, base, entries, features, width = (
        (2**19, 4, 8, 16, 2**19, 4, 64) if args.gpu else (512, 2, 3, 4, 256, 4, 16)
    )
    field = Field(levels, base, 1.7, entries, features, width, args.fix == "index-select").to(args.device)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3, eps=1e-15, fused=True)
    scan = []
    for _ in range(chunks):
        where = torch.rand(points, 3, device=args.device)
        scan.append((field.locate(where), distance(where)))

    clock = Clock(args.steps)
    for step in range(args.steps):
        located, wanted = scan[step % chunks]
        loss = F.mse_loss(field(located), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    print(f"loss {loss.item():.5f}")
    clock.report()


if __name__ == "__main__":
    main()
