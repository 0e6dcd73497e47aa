"""Leading axes of ancestry of a cohort: power iteration on the dense kinship matrix of 65536 people.

The matrix is built once from standardised genotypes and stays on the device. Axis after axis is found by
power iteration (48 rounds each), kept orthogonal to the axes found before. A step is one round: a product
of the matrix with a vector, the projection and the norm.
"""

import torch
from common import Clock, arguments

WALLS = ["memory-roof"]
FIXES = {"half": "stores the kinship matrix in bfloat16, half the bytes to read"}
TRUTH_STEPS = 1200

ROUNDS = 48


def kinship(people, variants, populations, device):
    """G G^T / m of genotypes 0, 1, 2 whose frequencies differ between populations."""
    base = torch.rand(1, variants, device=device) * 0.8 + 0.1
    frequency = (base + 0.06 * torch.randn(populations, variants, device=device)).clamp_(0.02, 0.98)
    group = torch.arange(people, device=device) % populations
    probability = frequency[group]
    genotypes = (torch.rand_like(probability) < probability).float() + (
        torch.rand_like(probability) < probability
    )
    genotypes -= genotypes.mean(0)
    genotypes /= genotypes.std(0) + 1e-6
    matrix = genotypes @ genotypes.T
    return matrix.div_(variants)


class Axes:
    """The axes found so far and the one being iterated."""

    def __init__(self, matrix, count):
        self.matrix = matrix
        people = len(matrix)
        self.found = torch.zeros(people, count, device=matrix.device)
        self.values = torch.zeros(count, device=matrix.device)
        self.number = 0
        self.restart()

    def restart(self):
        self.vector = torch.randn(len(self.matrix), device=self.matrix.device)
        self.vector /= self.vector.norm()

    def round(self):
        product = torch.mv(self.matrix, self.vector.to(self.matrix.dtype)).float()
        product -= self.found @ (self.found.T @ product)
        self.values[self.number] = length = product.norm()
        self.vector = product / length

    def keep(self):
        self.found[:, self.number] = self.vector
        self.number = (self.number + 1) % self.found.shape[1]
        if self.number == 0:
            self.found.zero_()
        self.restart()


def main():
    args = arguments(5500, list(FIXES))
    torch.manual_seed(0)
    people, variants, populations, count = (65536, 1024, 12, 20) if args.gpu else (256, 64, 4, 3)
    matrix = kinship(people, variants, populations, args.device)
    if args.fix == "half":
        matrix = matrix.to(torch.bfloat16)
    axes = Axes(matrix, count)

    clock = Clock(args.steps)
    for step in range(args.steps):
        axes.round()
        if (step + 1) % ROUNDS == 0:
            axes.keep()
        clock.tick()
    print("largest values", [round(v, 3) for v in axes.values[:4].tolist()])
    clock.report()


if __name__ == "__main__":
    main()
