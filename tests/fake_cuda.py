"""A `torch.cuda` without a GPU: an allocator made by hand, and the functions that ask and tell it things."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from memory_samples import Recorder


class FakeCuda:
    """As torch 2.13 has it; `legacy` as 2.0. `torch` is what the job imported."""

    def __init__(self, job: Recorder | None = None, legacy: bool = False, **stats: int) -> None:
        self.job, self.stats = job or Recorder(), stats
        self.told: list[tuple[Any, ...]] = []  # what the history was asked for
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self.free, self.total = 1 << 30, 80 << 30
        self.asked = 0
        record = self._record_legacy if legacy else self._record
        memory = SimpleNamespace(_record_memory_history=record, _snapshot=self._snapshot)
        cuda = SimpleNamespace(
            memory=memory,
            memory_stats=self._stats,
            memory_allocated=lambda device=None: self.stats.get("allocated_bytes.all.current", 0),
            mem_get_info=lambda device=None: (self.free, self.total),
            is_initialized=lambda: True,
            get_device_properties=lambda device: SimpleNamespace(total_memory=self.total),
            get_per_process_memory_fraction=lambda device=None: 1.0,
        )
        own = SimpleNamespace(
            _cuda_isHistoryEnabled=lambda: self.job.is_recording,
            _cuda_attach_out_of_memory_observer=self.observers.append,
        )
        self.torch: Any = SimpleNamespace(cuda=cuda, _C=own, __version__="2.0.1" if legacy else "2.13.0")

    def _stats(self, device: Any = None) -> dict[str, int]:
        self.asked += 1
        return self.stats

    def _record(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 1 << 62,
        device: Any = None,
        clear_history: bool = False,
    ) -> None:
        self.told.append((enabled, context, stacks, max_entries))
        self.job.is_recording = enabled is not None

    def _record_legacy(
        self,
        enabled: bool,
        record_context: bool = True,
        trace_alloc_max_entries: int = 1,
        trace_alloc_record_context: bool = False,
        device: Any = None,
        record_context_cpp: bool = False,
    ) -> None:
        self.told.append((enabled, trace_alloc_max_entries, trace_alloc_record_context))
        self.job.is_recording = enabled

    def _snapshot(self, device: Any = None) -> dict[str, Any]:
        return self.job.snapshot()
