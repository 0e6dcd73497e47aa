"""Predict the expression of cells after a drug: a wide conditional MLP in which every layer is given the dose again.

Domain: science (single-cell perturbation), own modules, bf16 autocast, fused AdamW.
Why: dose, time and cell-cycle score are three columns glued to the input of every layer, so each weight is
    [4096, 4099] and each activation has rows of 4099 bf16 values. No row starts on a 16-byte boundary: all three
    products of every layer (forward, input gradient, weight gradient) leave the fast tensor-core kernels.
Trap: the widths in the constructor are 4096 and 2000, both fine; the odd number is made by `torch.cat`. The copies of
    that cat, the casts of autocast and a rare `.item()` are there, and small. The GPU is busy all the time.
Fixes: pad (five columns of zeros beside the three conditions: widths 4104 and 2008, the same function).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["compute", "misaligned-shapes"]]
FIXES = ["pad"]
TRUTH_STEPS = 140


class DosedLinear(nn.Module):
    """A linear layer that sees the conditions beside its input."""

    def __init__(self, inputs, outputs, conditions):
        super().__init__()
        self.linear = nn.Linear(inputs + conditions, outputs)

    def forward(self, hidden, conditions):
        return self.linear(torch.cat([hidden, conditions], dim=1))


class ResponseModel(nn.Module):
    def __init__(self, genes, width, depth, conditions):
        super().__init__()
        self.enter = DosedLinear(genes, width, conditions)
        self.layers = nn.ModuleList(DosedLinear(width, width, conditions) for _ in range(depth))
        self.leave = DosedLinear(width, genes, conditions)

    def forward(self, cells, conditions):
        hidden = F.gelu(self.enter(cells, conditions))
        for layer in self.layers:
            hidden = hidden + F.gelu(layer(hidden, conditions))
        return self.leave(hidden, conditions)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    genes, width, depth, batch = (2000, 4096, 6, 16384) if args.gpu else (200, 128, 2, 256)
    dtype = torch.bfloat16 if args.gpu else torch.float32
    columns = 8 if args.fix == "pad" else 3

    with torch.device(args.device):
        model = ResponseModel(genes, width, depth, columns)
        controls = [torch.randn(batch, genes, dtype=dtype) for _ in range(4)]
        treated = [c + 0.1 * torch.randn_like(c) for c in controls]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    clock = Clock(args.steps)
    for step in range(args.steps):
        cells, target = controls[step % 4], treated[step % 4]
        conditions = torch.zeros(batch, columns, device=args.device, dtype=dtype)
        conditions[:, :3].uniform_(0, 1)
        with torch.autocast(args.device.type, dtype=torch.bfloat16, enabled=args.gpu):
            predicted = model(cells, conditions)
            loss = F.mse_loss(predicted.float(), target.float())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
