"""How much memory and text reading may take: a file of a megabyte can unpack to events without end.

Half a trace is no honest answer: the profiler writes the host's rows first and the device's last, so the
first part of a file would look like a job that never used its device. What does not fit is refused. (The
first part of a *recording*, host and device, is a shorter recording: torch's traces are cut to one.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from findwall.errors import InputError
from findwall.machine.host_memory import available_memory
from findwall.units import GIB, MIB

# Of what is available: others on the machine want some, too. Chosen by hand.
SHARE_OF_AVAILABLE = 0.5
WHERE_UNKNOWN_BYTES = 4 * GIB  # where the machine does not say what it has; chosen by hand
# Measured as the peak of the process, verdict included: 1.1 kB a row of kernels alone, 0.7 kB a row where
# half are ops.
ROW_BYTES = 1200
# Chosen by hand, above what a million distinct names took.
ENTRY_BYTES = 300  # a distinct text's place in tables
COPIES_OF_TEXT = 3  # it is held as it came, as an object, and once while being sorted
# Time follows the text. A trace holds a few hundred bytes an event: what goes on for longer than this without
# events is none. Both chosen by hand.
FREE_TEXT_BYTES = GIB
TEXT_A_ROW_BYTES = 4096
# Of a trace that is longer than what is held of it, the rest is gone through all the same. Twenty minutes of
# two cores; chosen by hand.
MOST_TEXT_BYTES = 64 * GIB
# Characters of one text: an op with the sizes of a thousand tensors is half as long. Whoever searches a name
# for words is not kept by a file that somebody put there.
LONGEST_TEXT = 1 << 16

_HINT = (
    "Record fewer steps (torch.profiler.schedule(active=3)), or allow more: --max-memory {}G, on a machine "
    "that has it."
)


class Allowance:
    """What one reading may take, whatever the number of its files."""

    def __init__(self, memory: int | None = None) -> None:
        self.memory = default_memory() if memory is None else memory
        self.taken = 0
        self.text = 0
        self.rows = 0

    def take(self, path: Path, rows: int, text: int, memory: int) -> None:
        """More rows from more text; raises where that is too much."""
        self.rows += rows
        self.text += text
        self.taken += memory
        if self.taken > self.memory:
            more = -(-2 * self.memory // GIB)
            raise InputError(
                f"{path} holds more events than {_size(self.memory)} of memory can take: reading stopped "
                f"after {self.rows:,} of them.",
                _HINT.format(more),
            )
        if self.text > MOST_TEXT_BYTES:
            raise InputError(
                f"{path} holds more than {_size(MOST_TEXT_BYTES)} of text.", "Record fewer steps."
            )
        if self.text > FREE_TEXT_BYTES + TEXT_A_ROW_BYTES * self.rows:
            raise InputError(
                f"{path} is hardly a trace: {_size(self.text)} of text hold {self.rows:,} events.",
                "Give a file written by torch.profiler (export_chrome_trace or tensorboard_trace_handler).",
            )

    @contextmanager
    def given_back_on_refusal(self) -> Iterator[None]:
        """A file that is refused keeps nothing: the next one may fit."""
        before = self.taken, self.text, self.rows
        try:
            yield
        except InputError:
            self.taken, self.text, self.rows = before
            raise


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def default_memory() -> int:
    """A share of what this process can still get."""
    known = available_memory()
    return WHERE_UNKNOWN_BYTES if known is None else int(SHARE_OF_AVAILABLE * known)
