"""Hindcast of sea-ice concentration with an axis-mixing net over an ensemble of 32 members.

A 64 x 64 grid of 512 features a member. Every block mixes along longitude, then along latitude, each with
one learned matrix, then over the features; the state is fed back as the next day's input. Weights and state
are bfloat16. A step is one day of the whole ensemble.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["layout-copies"]
FIXES = {
    "batched": "multiplies the mixing matrices from the left as batched products, with no rearranged copies"
}
TRUTH_STEPS = 400


class Mixing(nn.Module):
    """Mixes the grid along one axis: x[b, y, x, c] -> sum over that axis with weight[new, old]."""

    def __init__(self, size, axis, batched):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.axis, self.batched = axis, batched

    def forward(self, x):
        if self.batched:
            return self.product(x)
        if self.axis == 2:
            x = x.permute(0, 1, 3, 2).contiguous()
            return F.linear(x, self.weight).permute(0, 1, 3, 2).contiguous()
        x = x.permute(0, 2, 3, 1).contiguous()
        return F.linear(x, self.weight).permute(0, 3, 1, 2).contiguous()

    def product(self, x):
        b, h, w, c = x.shape
        flat = x.view(b * h, w, c) if self.axis == 2 else x.view(b, h, w * c)
        weight = self.weight.expand(len(flat), *self.weight.shape)
        return torch.bmm(weight, flat).view(b, h, w, c)


class Block(nn.Module):
    def __init__(self, height, width, channels, batched):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.along_x = Mixing(width, 2, batched)
        self.along_y = Mixing(height, 1, batched)
        self.features = nn.Linear(channels, channels)

    def forward(self, x):
        mixed = self.along_y(self.along_x(self.norm(x)))
        return x + self.features(F.gelu(mixed))


class Hindcast(nn.Module):
    def __init__(self, height, width, channels, depth, batched):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(height, width, channels, batched) for _ in range(depth)])
        self.norm = nn.LayerNorm(channels)
        self.ice = nn.Linear(channels, 8)

    def forward(self, state):
        state = self.norm(self.blocks(state))
        return state, torch.sigmoid(self.ice(state)[..., 0])


def main():
    args = arguments(1600, list(FIXES))
    torch.manual_seed(0)
    members, height, width, channels, depth = (32, 64, 64, 512, 12) if args.gpu else (2, 8, 8, 16, 2)
    model = Hindcast(height, width, channels, depth, args.fix == "batched")
    model = model.to(args.device, torch.bfloat16).eval()
    state = torch.randn(members, height, width, channels, device=args.device, dtype=torch.bfloat16)
    extent = torch.zeros(args.steps, device=args.device)

    clock = Clock(args.steps)
    with torch.inference_mode():
        for day in range(args.steps):
            state, ice = model(state)
            extent[day] = ice.mean(dtype=torch.float32)
            clock.tick()
    print(f"ice extent {extent[0].item():.4f} -> {extent[-1].item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
