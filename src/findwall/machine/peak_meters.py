"""The most memory that a process of `findwall sweep` held since it was last asked.

Asking forgets the peak. So nothing here is for a job of a person's own, who may ask torch for the same.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

from findwall.machine.child_memory import ChildMemory, child_memory
from findwall.machine.torch_device import memory_limit
from findwall.model.arms import MemoryOf

FORGET_PEAK = "5"  # what /proc/PID/clear_refs takes for that


class DeviceMeter:
    """The peak since it was last asked, by torch's own allocator: nothing here waits for the device."""

    of: MemoryOf = "allocated"

    def __init__(self, torch: Any, device: int) -> None:
        self._torch, self._cuda, self._device = torch, torch.cuda, device
        self.reserved: int | None = 0  # the most: it is forgotten with the peak

    def take_peak(self) -> int:
        found = int(self._cuda.max_memory_allocated(self._device))
        self.reserved = max(self.reserved or 0, int(self._cuda.max_memory_reserved(self._device)))
        self._cuda.reset_peak_memory_stats(self._device)
        return found

    def now(self) -> int:
        return int(self._cuda.memory_allocated(self._device))

    def beside(self) -> None:
        """No other process of the job is known to use the device."""

    def limit(self) -> int:
        """What is free on the device, and what this process has of it already; less where the job set itself
        a limit. It falls while libraries take what they work in."""
        left = int(self._cuda.mem_get_info(self._device)[0]) + int(self._cuda.memory_reserved(self._device))
        return min(left, memory_limit(self._torch, self._device) or left)


class ResidentMeter:
    """The same of this process, as the system counts its pages.

    The C library keeps much of what is freed, more or less of it by the sizes of blocks, and what it keeps
    counts as resident. So it gives all of that back where a phase ends, and a phase's peak is what it needs.
    """

    of: MemoryOf = "resident"
    reserved: int | None = None

    def take_peak(self) -> int:
        found = pages()
        give_back_freed()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write(FORGET_PEAK)
        if found is None:
            raise OSError("/proc/self/status has no VmHWM")
        return found

    def now(self) -> int | None:
        return pages("VmRSS")

    def beside(self) -> ChildMemory | None:
        return child_memory()

    def limit(self) -> None:
        return None


def give_back_freed() -> None:
    """What the C library keeps of freed memory goes to the system, which takes milliseconds a gigabyte. One
    without such a call keeps it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def pages(what: str = "VmHWM") -> int | None:
    """Bytes of this process in memory: at the peak, or now (VmRSS). None where the system does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
    return None
