"""A training loop that writes a JSON record with a long history after every step.

Truth: overhead / host-work. About 30 ms of Python (dict building, json, a checksum) in which no op
is issued; the device has finished the step long before and waits.
"""

import hashlib
import json
import os

import torch
from changes import compiled
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-work"]]
ALSO = []
FIXES = ["no_logging", "compile", "reduce_overhead"]


def record(number: int, history: list[float]) -> str:
    rows = [{"step": number - i, "value": v, "tag": f"train/metric_{i % 17}"} for i, v in enumerate(history)]
    line = json.dumps({"rows": rows}, sort_keys=True)
    return hashlib.sha256(line.encode()).hexdigest() + line[:80]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    tokens, width, depth, history = (8192, 4096, 4, 12_000) if size == "gpu" else (32, 32, 2, 200)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    run = compiled(model, fix)
    values = [i * 0.001 for i in range(history)]
    log = open(os.devnull, "w")  # noqa: SIM115  (kept open for the life of the job, as a logger is)
    number = 0

    def step() -> None:
        nonlocal number
        run(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        number += 1
        if fix != "no_logging":
            log.write(record(number, values) + "\n")

    return step


if __name__ == "__main__":
    main(make)
