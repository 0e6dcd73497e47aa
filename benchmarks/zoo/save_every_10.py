"""A masked language model that saves model and optimizer every ten steps, in the loop.

Truth: overhead / host-work. `torch.save` copies 500 MB off the device and writes a file while nothing
is queued: one step in ten takes tens of times as long as the others. Saving less often, or from a
thread with a copy on the host, gives it back.
"""

import tempfile
from pathlib import Path

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-work"]]
ALSO = []
FIXES = ["no_save"]
PERIOD = 10


class Masked(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.words(ids)))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    rows, length, vocabulary, width, depth = (32, 512, 8192, 768, 4) if size == "gpu" else (2, 16, 64, 32, 1)
    model = Masked(vocabulary, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(vocabulary, (rows, length), device=device)
    folder = tempfile.TemporaryDirectory()  # removed with the step that holds it
    number = 0

    def save() -> None:
        state = {"step": number, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, Path(folder.name) / "last.pt")

    def step() -> None:
        nonlocal number
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        number += 1
        if number % PERIOD == 0 and fix != "no_save":
            save()

    return step


if __name__ == "__main__":
    main(make, FIXES, period=PERIOD)
