"""Trains an emulator of sub-grid physics: the state of an atmospheric column in, its tendencies out.

A column holds 9 variables on 60 levels and 17 surface values; the emulator predicts 6 tendencies on each
level and 8 surface fluxes. The net is a residual MLP whose width and depth came out of a hyper-parameter
search. Everything is in bfloat16, with a fused AdamW. A step is 16384 columns.
"""

import torch
from common import Clock, arguments
from torch import nn
from torch.nn import functional as F

WALLS = ["misaligned-shapes"]
FIXES = {
    "pad": "rounds the searched width and the inputs up to a multiple of 64 (zero columns for the inputs)"
}
TRUTH_STEPS = 180

INPUTS, OUTPUTS = 9 * 60 + 17, 6 * 60 + 8


def rounded(n, multiple=64):
    return -(-n // multiple) * multiple


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.linear(self.norm(x)))


class Emulator(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        return self.leave(self.norm(self.blocks(self.enter(x))))


class Columns:
    """A few batches of standardised columns with a made-up smooth response."""

    def __init__(self, batch, inputs, device, count=3):
        teacher = torch.randn(INPUTS, OUTPUTS, device=device) / INPUTS**0.5
        self.batches = []
        for _ in range(count):
            x = torch.randn(batch, INPUTS, device=device)
            y = torch.tanh(x @ teacher)
            x = F.pad(x, (0, inputs - INPUTS))
            self.batches.append((x.bfloat16(), y.bfloat16()))

    def __getitem__(self, step):
        return self.batches[step % len(self.batches)]


def main():
    args = arguments(750, list(FIXES))
    torch.manual_seed(0)
    width, depth, batch = (2867, 8, 16384) if args.gpu else (61, 2, 64)
    inputs = INPUTS
    if args.fix == "pad":
        width, inputs = rounded(width), rounded(inputs)
    with torch.device(args.device):
        model = Emulator(inputs, width, depth).to(torch.bfloat16)
    columns = Columns(batch, inputs, args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01, fused=True)
    losses = torch.zeros(args.steps, device=args.device)

    clock = Clock(args.steps)
    for step in range(args.steps):
        x, y = columns[step]
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses[step] = loss.detach()
        clock.tick()
    print(f"loss {losses[0].item():.4f} -> {losses[-1].item():.4f}")
    clock.report()


if __name__ == "__main__":
    main()
