"""Jobs whose loaders make batches in ways that are unlike each other, for `workers.py`.

    python benchmarks/workers_jobs.py LOADER [--workers N] [--steps N] [--light X]

Each is a small model that is trained on what the loader gives, on the GPU if there is one. `--light 0.2`
makes samples that are a fifth of the work.
"""

from __future__ import annotations

import argparse
import fcntl
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, WIDTH = 16, 64
NUMBERS = np.random.default_rng(0).random(150_000)
FRAMES, BASIS = np.random.default_rng(1).random((700, 256)), np.random.default_rng(2).random((256, 256))
PACKED = zlib.compress(np.random.default_rng(3).integers(0, 40, 400_000, dtype=np.uint8).tobytes(), 6)
IMAGE = torch.rand(1, 3, 256, 256)
LOCK = tempfile.NamedTemporaryFile(prefix="findwall-workers-")  # noqa: SIM115 - as long as the job


def one_core(light: float) -> float:
    """NumPy sorts on one thread."""
    return float(np.sort(NUMBERS[: int(150_000 * light)])[0])


def blas(light: float) -> float:
    """NumPy's products run on all cores, what is between them on one."""
    rows = FRAMES[: max(int(700 * light), 8)]
    for _ in range(2):
        rows = np.maximum(rows @ BASIS / 256.0, 0.1)
    return float(rows[0, 0])


def tensors(light: float) -> float:
    """torch's own ops, on all cores in the training process and on one in a worker."""
    size = max(int(300 * light), 16)
    found = nn.functional.interpolate(IMAGE, (size, size), mode="bicubic", antialias=True)
    return float(found[0, 0, 0, 0])


def waiting(light: float) -> float:
    """A disk or a server is waited for."""
    time.sleep(0.005 * light)
    return 0.5


def decoding(light: float) -> float:
    """Bytes are unpacked by a library on one thread."""
    found = np.frombuffer(zlib.decompressobj().decompress(PACKED, int(400_000 * light)), np.uint8)
    return float(found[:1000].mean()) / 40


def locked(light: float) -> float:
    """Only one process at a time makes a sample."""
    with open(LOCK.name) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return one_core(light)


MAKES: dict[str, Callable[[float], float]] = {
    "one_core": one_core,
    "blas": blas,
    "tensors": tensors,
    "waiting": waiting,
    "decoding": decoding,
    "locked": locked,
    "restarted": one_core,
}
EPOCH = {"restarted": 12}  # batches; the others' epochs are long


class Samples(Dataset[torch.Tensor]):
    def __init__(self, loader: str, light: float) -> None:
        self._make, self._light = MAKES[loader], light
        self._count = BATCH * EPOCH.get(loader, 100_000)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), self._make(self._light) + index % 7)


class Trained:
    """The step beside the loader: 10 to 20 ms on a large GPU, a few on cores."""

    def __init__(self) -> None:
        on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda" if on_gpu else "cpu")
        inner, layers, self._times = (4096, 4, 64) if on_gpu else (256, 2, 2)
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(WIDTH, inner), *(nn.Linear(inner, inner) for _ in range(layers)), nn.Linear(inner, 1)
        ).to(self.device)
        self._optimizer = torch.optim.SGD(self.model.parameters(), 1e-6)

    def step(self, batch: torch.Tensor) -> None:
        rows = batch.to(self.device, non_blocking=True).repeat(self._times, 1)
        loss = self.model(rows).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def batches(loader: DataLoader[Any]) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("loader", choices=MAKES)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--light", type=float, default=1.0)
    args = parser.parse_args()
    trained, ahead = Trained(), {"num_workers": args.workers} if args.workers else {}
    loader = DataLoader(
        Samples(args.loader, args.light), BATCH, pin_memory=torch.cuda.is_available(), **ahead
    )
    began = 0.0
    for step, batch in enumerate(batches(loader)):
        if step == args.steps // 2:
            trained.wait()
            began = time.perf_counter()
        if step == args.steps:
            break
        trained.step(batch)
    trained.wait()
    print(f"MEAN_STEP_MS {(time.perf_counter() - began) / (args.steps - args.steps // 2) * 1e3:.3f}")


if __name__ == "__main__":
    main()
