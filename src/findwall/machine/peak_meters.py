"""The most memory that a process of `findwall sweep` held since it was last asked.

Asking forgets the peak. So nothing here is for a job of a person's own, who may ask torch for the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from findwall.model.arms import MemoryOf

FORGET_PEAK = "5"  # what /proc/PID/clear_refs takes for that


class DeviceMeter:
    """The peak since it was last asked, by torch's own allocator: nothing here waits for the device."""

    of: MemoryOf = "allocated"

    def __init__(self, torch: Any, device: int) -> None:
        self._cuda, self._device = torch.cuda, device
        self.reserved: int | None = 0  # the most: it is forgotten with the peak

    def take_peak(self) -> int:
        found = int(self._cuda.max_memory_allocated(self._device))
        self.reserved = max(self.reserved or 0, int(self._cuda.max_memory_reserved(self._device)))
        self._cuda.reset_peak_memory_stats(self._device)
        return found

    def now(self) -> int:
        return int(self._cuda.memory_allocated(self._device))

    def limit(self) -> int:
        """What is free on the device, and what this process has of it already."""
        return int(self._cuda.mem_get_info(self._device)[0]) + int(self._cuda.memory_reserved(self._device))


class ResidentMeter:
    """The same of this process, as the system counts its pages."""

    of: MemoryOf = "resident"
    reserved: int | None = None

    def take_peak(self) -> int:
        found = pages()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write(FORGET_PEAK)
        if found is None:
            raise OSError("/proc/self/status has no VmHWM")
        return found

    def now(self) -> int | None:
        return pages("VmRSS")

    def limit(self) -> None:
        return None


def pages(what: str = "VmHWM") -> int | None:
    """Bytes of this process in memory: at the peak, or now (VmRSS). None where the system does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
    return None
