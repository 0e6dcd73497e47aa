"""Transient search in a sky survey.

Nine dithered exposures of a field are combined into a reference by their pixelwise median, which keeps cosmic
rays out; the newest exposure minus the reference is then scored cell by cell for sources that were not there
before.
"""

import torch
from common import Clock, arguments

WALLS = [["compute", "slow-kernels"]]
FIXES = {
    "exchange_network": "median of nine by a fixed network of nineteen min/max exchanges over whole frames"
}
TRUTH_STEPS = 300
EXPOSURES = 9
EXCHANGES = [
    (1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3),
    (5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2),
]  # fmt: skip


def combine(stack):
    return torch.median(stack, dim=0).values


def combine_by_exchange(stack):
    """Devillard's network: after these exchanges the middle frame holds the median."""
    frames = list(stack.unbind(0))
    for low, high in EXCHANGES:
        a, b = frames[low], frames[high]
        frames[low], frames[high] = torch.minimum(a, b), torch.maximum(a, b)
    return frames[4]


def score(newest, reference, cell):
    """The strongest positive residual of every cell, in units of the frame's noise."""
    residual = newest - reference
    noise = residual.std()
    rows, columns = (side // cell for side in residual.shape)
    return residual.view(rows, cell, columns, cell).amax((1, 3)) / noise


def field(size, device):
    sky = 100 + torch.rand(size, size, device=device).pow(40) * 5000
    stack = sky + torch.randn(EXPOSURES, size, size, device=device) * 10
    stack[0, :: size // 8, :: size // 8] += 4000
    stack[-1, size // 3, size // 3] += 400
    return stack


@torch.inference_mode()
def main():
    args = arguments(1800, list(FIXES))
    size, cell = (4096, 64) if args.gpu else (128, 16)
    torch.manual_seed(0)
    fields = [field(size, args.device) for _ in range(4)]
    reference_of = combine_by_exchange if args.fix == "exchange_network" else combine
    found = torch.zeros(len(fields), size // cell, size // cell, device=args.device)
    clock = Clock(args.steps)
    for step in range(args.steps):
        stack = fields[step % len(fields)]
        found[step % len(fields)] = score(stack[-1], reference_of(stack), cell)
        clock.tick()
    clock.report()
    print("candidates", int((found > 5).sum()))


if __name__ == "__main__":
    main()
