"""How a job is trained as it is or with one change, and what its allocator did meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

STEPS = 3
Batch = list[Tensor]

# What a change is: the attributes of a run that differ.
CHANGES: dict[str, dict[str, Any]] = {
    "base": {},
    "batch-x2": {"batch": 2},
    "batch-x4": {"batch": 4},
    "accumulate-2": {"in_parts": 2},
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "momentum"},
    "foreach": {"optimizer": "foreach"},
    "fused": {"optimizer": "fused"},
    "keep-gradients": {"set_to_none": False},
    "checkpoint": {"checkpointed": True},
    "bf16-autocast": {"autocasts": True},
    "pure-bf16": {"dtype": torch.bfloat16},
}


class Run:
    """One execution of a job."""

    batch, in_parts = 1, 1
    optimizer, set_to_none, checkpointed, autocasts = "adamw", True, False, False
    dtype: torch.dtype | None = None

    def __init__(self, device: str, change: str) -> None:
        self.device = device
        for name, value in CHANGES[change].items():
            setattr(self, name, value)

    def block(self, block: Callable[..., Tensor], *given: Any) -> Tensor:
        if self.checkpointed:
            return checkpoint(block, *given, use_reentrant=False)  # type: ignore[no-any-return]
        return block(*given)

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device, torch.bfloat16) if self.autocasts else nullcontext()

    def parts(self, batch: Batch) -> Iterator[Batch]:
        for part in zip(*(one.chunk(self.in_parts) for one in batch), strict=True):
            yield list(part)

    def backward(self, loss: Tensor) -> None:
        (loss / self.in_parts if self.in_parts > 1 else loss).backward()

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=self.set_to_none)

    def made(self, model: nn.Module) -> torch.optim.Optimizer:
        given = list(model.parameters())
        if self.optimizer in ("sgd", "momentum"):
            return torch.optim.SGD(given, 1e-3, momentum=0.9 * (self.optimizer == "momentum"), foreach=False)
        fused = self.optimizer == "fused"
        return torch.optim.AdamW(
            given, 1e-3, foreach=None if fused else self.optimizer == "foreach", fused=fused or None
        )


class Job(NamedTuple):
    models: Callable[[Run], list[nn.Module]]
    data: Callable[[int], Batch]
    loss: Callable[[nn.Module, Batch], Tensor] | None = None
    batch: int = 1
    train: Callable[[Run, list[nn.Module], list[torch.optim.Optimizer], Batch], None] | None = None


def train(job: Job, run: Run) -> None:
    torch.manual_seed(0)
    models = [model.to(run.device, run.dtype) for model in job.models(run)]
    optimizers = [run.made(model) for model in models]
    for _ in range(STEPS):
        batch = [_placed(one, run) for one in job.data(job.batch * run.batch)]
        if job.train is not None:
            job.train(run, models, optimizers, batch)
            continue
        assert job.loss is not None
        for part in run.parts(batch):
            with run.autocast():
                loss = job.loss(models[0], part)
            run.backward(loss)
        run.update(optimizers[0])


def _placed(one: Tensor, run: Run) -> Tensor:
    return one.to(run.device, run.dtype if one.is_floating_point() else None)


def record(job: Job, change: str, device: str, to: Path, stacks: bool) -> int:
    """Train it and write what was recorded; the peak, in bytes as requested."""
    return (_on_device if device == "cuda" else _on_host)(job, Run(device, change), to, stacks)


def _on_host(job: Job, run: Run, to: Path, stacks: bool) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=stacks) as recorded:
        train(job, run)
    recorded.export_chrome_trace(str(to))
    events = json.loads(to.read_text())["traceEvents"]
    return max(one["args"]["Total Allocated"] for one in events if one["name"] == "[memory]")


def _on_device(job: Job, run: Run, to: Path, stacks: bool) -> int:
    torch.cuda.memory._record_memory_history(stacks="all" if stacks else "python")
    train(job, run)
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(str(to))
    return int(torch.cuda.memory_stats()["requested_bytes.all.peak"])
