"""Policy-gradient placement of macros on a chip.

A transformer reads the macros and gives the mean position of each; a handful of placements are drawn from it,
the half-perimeter wirelength of every placement is its cost, and REINFORCE moves the policy towards shorter
wires.
"""

import random

import torch
from common import Clock, arguments
from torch import nn

WALLS = [["overhead", "host-work"]]
FIXES = {"tensor_cost": "wirelength of all placements as one gather and a max minus a min on the device"}
TRUTH_STEPS = 50
SIGMA, MOST_PINS = 0.05, 8


class Policy(nn.Module):
    def __init__(self, features, width, depth):
        super().__init__()
        self.embed = nn.Linear(features, width)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, macros):
        return torch.sigmoid(self.head(self.body(self.embed(macros))))


def make_nets(macros, count):
    rng = random.Random(0)
    return [rng.sample(range(macros), rng.randint(2, MOST_PINS)) for _ in range(count)]


def wirelength(placement, nets):
    """Half-perimeter wirelength of one placement: a list of [x, y]."""
    total = 0.0
    for net in nets:
        xs = [placement[pin][0] for pin in net]
        ys = [placement[pin][1] for pin in net]
        total += max(xs) - min(xs) + max(ys) - min(ys)
    return total / len(nets)


def costs_one_by_one(placements, nets):
    costs = [wirelength(placement, nets) for placement in placements.tolist()]
    return torch.tensor(costs, device=placements.device)


def pin_table(nets, device):
    """Nets as rows of equal length; short ones repeat their first pin, which moves neither max nor min."""
    return torch.tensor([net + [net[0]] * (MOST_PINS - len(net)) for net in nets], device=device)


def costs_at_once(placements, table):
    pins = placements[:, table]
    return (pins.amax(2) - pins.amin(2)).sum(-1).mean(1)


def main():
    args = arguments(260, list(FIXES))
    macros, nets, samples, width, depth = (512, 1600, 16, 512, 4) if args.gpu else (32, 40, 4, 64, 1)
    torch.manual_seed(0)
    netlist = make_nets(macros, nets)
    table = pin_table(netlist, args.device)
    policy = Policy(24, width, depth).to(args.device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4, fused=args.gpu)
    features = torch.randn(samples, macros, 24, device=args.device)
    baseline = torch.zeros((), device=args.device)
    clock = Clock(args.steps)
    for _ in range(args.steps):
        with torch.autocast(args.device.type, torch.bfloat16):
            mean = policy(features).float()
        with torch.no_grad():
            drawn = (mean + SIGMA * torch.randn_like(mean)).clamp(0, 1)
            at_once = args.fix == "tensor_cost"
            cost = costs_at_once(drawn, table) if at_once else costs_one_by_one(drawn, netlist)
            advantage = (baseline - cost) / (cost.std() + 1e-6)
            baseline.lerp_(cost.mean(), 0.1)
        likelihood = -((drawn - mean) ** 2).mean((1, 2)) / (2 * SIGMA**2)
        loss = -(advantage * likelihood).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    print("wirelength", float(baseline))


if __name__ == "__main__":
    main()
