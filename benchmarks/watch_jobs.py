"""Small CPU jobs that `findwall watch` is tried on: those of the demo, one that reads numbers one by one, and
one that keeps every core busy.

`python benchmarks/watch_jobs.py NAME COUNTER` runs one without end; COUNTER is a file of eight bytes in which
it counts its steps.
"""

from __future__ import annotations

import mmap
import os
import sys
import textwrap
from importlib import resources
from pathlib import Path

ENDLESS = "100000000"

ONE_BY_ONE = """
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 100))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
    while True:
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # The planted wall: every number is fetched by itself.
        highest = max(score.item() for score in outputs.detach().flatten())
"""
ALL_CORES = """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(256, 1024)
    while True:
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
JOBS = ("starved_loader", "chatty_logger", "one_by_one", "all_cores")
# Wall, and the text of the line that is to be named; None: from outside nothing can be.
PLANTED = {
    "starved_loader": ("data", "wave"),
    "chatty_logger": ("overhead", "record"),
    "one_by_one": ("overhead", "score.item()"),
    "all_cores": (None, ""),
}


def source(name: str) -> str:
    """The job as a script."""
    own = {"one_by_one": ONE_BY_ONE, "all_cores": ALL_CORES}
    if name in own:
        return textwrap.dedent(own[name]).lstrip()
    return (resources.files("findwall") / "demo" / f"{name}.py").read_text()


def counted(name: str) -> str:
    """The same, counting its steps where `COUNT` is."""
    return source(name).replace("optimizer.step()\n", "optimizer.step(); COUNT()\n")


def main(name: str, counter: str) -> None:
    with Path(counter).open("r+b") as file:
        shared = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")

    def count() -> None:
        shared[0] += 1

    script = Path(counter).with_name(f"{name}.py")
    script.write_text(counted(name))
    os.utime(script, (0, 0))  # no newer than this process: its lines are read
    sys.argv = [str(script), ENDLESS]
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "__main__", "COUNT": count})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
