"""How a job is trained as it is or with one change, and what its allocator did meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
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
    "zero-1-of-2": {"stage": 1, "ranks": 2},
    "zero-1-of-8": {"stage": 1, "ranks": 8},
    "zero-2-of-2": {"stage": 2, "ranks": 2},
    "zero-2-of-8": {"stage": 2, "ranks": 8},
    "zero-3-of-2": {"stage": 3, "ranks": 2},
    "zero-3-of-8": {"stage": 3, "ranks": 8},
}


class Run:
    """One execution of a job."""

    batch, in_parts = 1, 1
    optimizer, set_to_none, checkpointed, autocasts = "adamw", True, False, False
    dtype: torch.dtype | None = None
    stage, ranks = 0, 1  # of ZeRO, over so many ranks

    def __init__(self, device: str, change: str) -> None:
        self.device = device
        self.wide = 4 if device == "cuda" else 1  # times the widths: a GPU's peaks are of gigabytes
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

    def spread(self, model: nn.Module) -> nn.Module:
        """Over ranks that answer at once and send nothing: what lies where is that of the first of them."""
        if not self.stage:
            return model
        if not torch.distributed.is_initialized():
            from torch.testing._internal.distributed.fake_pg import FakeStore

            torch.distributed.init_process_group("fake", rank=0, world_size=self.ranks, store=FakeStore())
        if self.stage == 1:  # each rank has all gradients: only the optimizer differs
            return model
        blocks = [block for part in model.children() if isinstance(part, nn.ModuleList) for block in part]
        for part in (*blocks, model):
            fully_shard(part, reshard_after_forward=self.stage == 3)
        return model

    def made(self, model: nn.Module) -> torch.optim.Optimizer:
        given = list(model.parameters())
        if self.stage == 1:
            return ZeroRedundancyOptimizer(given, torch.optim.AdamW, lr=1e-3)
        if self.optimizer in ("sgd", "momentum"):
            return torch.optim.SGD(given, 1e-3, momentum=0.9 * (self.optimizer == "momentum"), foreach=False)
        fused = self.optimizer == "fused"
        return torch.optim.AdamW(
            given, 1e-3, foreach=None if fused else self.optimizer == "foreach", fused=fused or None
        )


class Job(NamedTuple):
    """`data`: of so many samples, for models so many times as wide. `batch`: on a CPU and on a GPU."""

    models: Callable[[Run], list[nn.Module]]
    data: Callable[[int, int], Batch]
    loss: Callable[[nn.Module, Batch], Tensor] | None = None
    batch: tuple[int, int] = (1, 1)
    train: Callable[[Run, list[nn.Module], list[torch.optim.Optimizer], Batch], None] | None = None


def train(job: Job, run: Run) -> None:
    torch.manual_seed(0)
    models = [run.spread(model.to(run.device, run.dtype)) for model in job.models(run)]
    optimizers = [run.made(model) for model in models]
    for _ in range(STEPS):
        count = job.batch[run.device == "cuda"] * run.batch
        batch = [_placed(one, run) for one in job.data(count, run.wide)]
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
    if stacks:
        torch.cuda.memory._record_memory_history(stacks="all")
    train(job, run)
    torch.cuda.synchronize()
    if stacks:
        torch.cuda.memory._dump_snapshot(str(to))
    return int(torch.cuda.memory_stats()["requested_bytes.all.peak"])
