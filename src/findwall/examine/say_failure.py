"""What is said on stderr of a job that has just run out of memory, beside what it said itself.

A process of its own, which the job waits for, though not for long: the trace, if there is one, is not read.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from findwall.examine.failed_memory import looked_into, told_of
from findwall.examine.memory_rows import of_snapshot
from findwall.memory.device_memory import device_memory
from findwall.model.memory_history import RecordedRank
from findwall.readers.run_folder import failed_rank
from findwall.report.printable_names import clean
from findwall.report.words import spoken

WAITS_S, LOOK_S = 2.0, 0.02  # for what the job writes last; by hand


def main(folder: Path, number: int) -> None:
    until = time.monotonic() + WAITS_S
    while (rank := failed_rank(folder, number)) is None:
        if time.monotonic() > until:
            return
        time.sleep(LOOK_S)
    recorded = of_snapshot(rank)
    devices = [] if recorded is None else device_memory(recorded)
    oom = looked_into(rank, next(iter(devices), None))
    for claim in [] if oom is None else told_of(oom, isinstance(rank, RecordedRank)):
        print(f"findwall: {clean(spoken(claim))}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
