"""A transcription model whose character error rate is computed every ten steps in plain Python.

Truth: overhead / host-work. The forward pass over the held-out batch is short; the edit distance of 64
pairs of strings, a loop over 128 by 128 cells each, keeps the host for hundreds of milliseconds in
which nothing is queued. Row by row in numpy for all pairs it takes a few percent of that.
"""

import numpy as np
import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-work"]]
ALSO = []
FIXES = ["numpy_metric", "no_evaluation"]
PERIOD = 10


def edit_distance(said: list[int], meant: list[int]) -> int:
    above = list(range(len(meant) + 1))
    for i, a in enumerate(said, 1):
        row = [i]
        for j, b in enumerate(meant, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]


def error_rate(said: list[list[int]], meant: list[list[int]]) -> float:
    wrong = sum(edit_distance(a, b) for a, b in zip(said, meant, strict=True))
    return wrong / sum(len(b) for b in meant)


def error_rate_numpy(said: np.ndarray, meant: np.ndarray) -> float:
    """The same for strings of one length, all pairs at once: an insertion's chain is a running minimum."""
    places = np.arange(meant.shape[1] + 1)
    above = np.broadcast_to(places, (len(meant), len(places)))
    for i in range(said.shape[1]):
        row = np.empty_like(above)
        row[:, 0] = i + 1
        row[:, 1:] = np.minimum(above[:, 1:] + 1, above[:, :-1] + (said[:, i : i + 1] != meant))
        above = np.minimum.accumulate(row - places, 1) + places
    return above[:, -1].sum() / meant.size


class Scribe(nn.Module):
    def __init__(self, letters: int, width: int, depth: int) -> None:
        super().__init__()
        self.frames = nn.Linear(80, width)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.frames(sound)))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, length, width, depth = (64, 128, 768, 6) if size == "gpu" else (4, 16, 32, 1)
    letters = 32
    model = Scribe(letters, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    sound, held_out = (torch.randn(rows, length, 80, device=device) for _ in range(2))
    text, meant = (torch.randint(letters, (rows, length), device=device) for _ in range(2))
    number = 0
    rates: list[float] = []

    def evaluate() -> None:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            said = model(held_out).argmax(-1)
        if fix == "numpy_metric":
            rates.append(float(error_rate_numpy(said.cpu().numpy(), meant.cpu().numpy())))
        else:
            rates.append(error_rate(said.tolist(), meant.tolist()))

    def step() -> None:
        nonlocal number
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(sound).flatten(0, 1), text.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        number += 1
        if number % PERIOD == 0 and fix != "no_evaluation":
            evaluate()

    return step


if __name__ == "__main__":
    main(make, FIXES, period=PERIOD)
