"""A volume fitted by a sine network.

Domain: scientific imaging (implicit neural representation); own functional code without modules.
Why: six 512-wide layers over 131072 points are more than a teraflop of float32 matrix products a step, and float32 matmuls
     run on the plain cores unless TF32 is allowed, which PyTorch does not do by default.
Trap: between the products stand sines and their cosines over tensors of 268 MB, a long list of pointwise kernels; no
      module, no autocast and no linear layer names the matmuls.
Fixes: tf32 (`torch.set_float32_matmul_precision("high")`).
"""

import math

import torch

from common import Clock, arguments

WALLS = [["compute", "fast-path-off"]]
FIXES = ["tf32"]
TRUTH_STEPS = 350


def parameters(width, layers, device):
    sizes = [3] + [width] * layers + [1]
    made = []
    for at, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        bound = 1 / inputs if at == 0 else math.sqrt(6 / inputs) / 30
        made.append(torch.empty(inputs, outputs, device=device).uniform_(-bound, bound).requires_grad_())
        made.append(torch.zeros(outputs, device=device).requires_grad_())
    return made


def field(points, made):
    value = points
    for at in range(0, len(made) - 2, 2):
        value = torch.sin(30 * torch.addmm(made[at + 1], value, made[at]))
    return torch.addmm(made[-1], value, made[-2])


def density(points):
    x, y, z = points.unbind(1)
    return (torch.sin(9 * x * y) * torch.cos(7 * z) + torch.exp(-4 * (x * x + y * y + z * z))).unsqueeze(1)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    if args.fix == "tf32":
        torch.set_float32_matmul_precision("high")
    points_a_step, width, layers = (131_072, 512, 7) if args.gpu else (2048, 64, 3)
    made = parameters(width, layers, args.device)
    optimizer = torch.optim.Adam(made, lr=1e-4, fused=True)

    clock = Clock(args.steps)
    for step in range(args.steps):
        points = torch.rand(points_a_step, 3, device=args.device) * 2 - 1
        loss = (field(points, made) - density(points)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"{step} {loss.item():.5f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
