"""Inference with a gated recurrent cell written as a Python loop over time.

Truth: overhead / launch-bound. 96 time steps of a handful of tiny ops each; cuDNN's GRU runs the
same recurrence in a few calls.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["cudnn_gru"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, width = (16, 96, 256) if size == "gpu" else (2, 8, 16)
    torch.set_float32_matmul_precision("high")
    gru = nn.GRU(width, width, batch_first=True).to(device)
    frames = torch.randn(batch, length, width, device=device)

    def cell(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        gates_x = nn.functional.linear(x, gru.weight_ih_l0, gru.bias_ih_l0).chunk(3, 1)
        gates_h = nn.functional.linear(h, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3, 1)
        reset = torch.sigmoid(gates_x[0] + gates_h[0])
        update = torch.sigmoid(gates_x[1] + gates_h[1])
        new = torch.tanh(gates_x[2] + reset * gates_h[2])
        return new + update * (h - new)

    @torch.no_grad()
    def step() -> torch.Tensor:
        if fix == "cudnn_gru":
            return gru(frames)[0]
        h = torch.zeros(batch, width, device=device)
        for t in range(length):
            h = cell(frames[:, t], h)
        return h

    return step


if __name__ == "__main__":
    main(make)
