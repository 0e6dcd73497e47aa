"""A training loop that writes its whole history as JSON every eight steps.

Truth: overhead / host-work. `json.dump` of 30,000 rows goes through Python value by value, well over a
hundred milliseconds with nothing queued, once in eight steps. Appending one line for each new row is
worth the same to the reader.
"""

import json
import tempfile
from pathlib import Path

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-work"]]
ALSO = []
FIXES = ["append_lines"]
PERIOD = 8


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, depth, old = (8192, 4096, 6, 30_000) if size == "gpu" else (32, 32, 2, 200)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    # Resumed: the rows of the run so far are there.
    history = [{"step": i, "loss": 1 / (i + 1), "rate": 1e-4, "tokens": i * tokens} for i in range(old)]
    folder = tempfile.TemporaryDirectory()
    waiting: list[torch.Tensor] = []

    def log() -> None:
        values = torch.stack(waiting).tolist()
        waiting.clear()
        first = len(history)
        rows = [
            {"step": first + i, "loss": value, "rate": 1e-4, "tokens": (first + i) * tokens}
            for i, value in enumerate(values)
        ]
        history.extend(rows)
        if fix == "append_lines":
            with open(Path(folder.name) / "history.jsonl", "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            with open(Path(folder.name) / "history.json", "w") as file:
                json.dump(history, file)

    def step() -> None:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        waiting.append(loss.detach())
        if len(waiting) == PERIOD:
            log()

    return step


if __name__ == "__main__":
    main(make, FIXES, period=PERIOD)
