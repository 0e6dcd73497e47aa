"""What the models of a job give in its first calls without gradients: what two runs of inference are compared
by, which have no loss.

Each output is kept as one number on its device, and read only when all is measured: reading it would make the
host wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from findwall.agent.trial_arm.losses import read_kept
from findwall.apply.roots import roots

KEPT = 20  # calls
DEEPEST = 3  # nested containers that are looked into


class Outputs:
    """Notes the mean size of what each outermost call gives until there are enough."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kept: list[Any] = []
        roots(torch).after(self._note)

    def _note(self, result: Any) -> None:
        if len(self._kept) >= KEPT or self._torch.compiler.is_compiling():
            return
        tensors = [one for one in self._tensors(result, DEEPEST) if one.numel() and not one.requires_grad]
        if tensors:
            with self._torch.no_grad():
                self._kept.append(sum(one.detach().float().abs().mean() for one in tensors))

    def _tensors(self, result: Any, deep: int) -> Iterator[Any]:
        if isinstance(result, self._torch.Tensor):
            if result.is_floating_point() or result.dtype in (self._torch.int64, self._torch.int32):
                yield result
        elif deep:
            parts = result.values() if isinstance(result, Mapping) else result
            if isinstance(result, Mapping | list | tuple):
                for part in parts:
                    yield from self._tensors(part, deep - 1)

    def read(self) -> list[float]:
        return read_kept(self._kept)
