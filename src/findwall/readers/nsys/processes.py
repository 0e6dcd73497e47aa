"""Which process did what: every process that has work on a device is a rank of the job."""

from __future__ import annotations

import numpy as np

from findwall.errors import InputError
from findwall.model.events import NSYS, Bool, DeviceProperties, Header
from findwall.model.intervals import I64
from findwall.readers.nsys.database import BEGIN, CUDA_DEVICES, GPUS, Database, text_of
from findwall.readers.nsys.export_rows import Rows, process_number
from findwall.readers.nsys.opening import AGAIN
from findwall.readers.one_job import WALL_CLOCK_FROM_NS

MOST_PROCESSES = 128  # of a machine, with work on its GPUs; each is looked at by itself. Chosen by hand.


def settle_processes(device: list[Rows], calls: Rows | None) -> int:
    """Give rows of older exports, which do not name their process, to the one that launched them.

    Correlation ids are unique within a process only, so a context goes as a whole to the process whose calls
    answer most of its rows. Returns how many rows nobody is known to have launched.
    """
    unknown = 0
    for rows in device:
        missing = rows.process < 0
        if not missing.any():
            continue
        if calls is not None and len(calls):
            _settle(rows, missing, calls)
        unknown += int((rows.process < 0).sum())
    return unknown


def _settle(rows: Rows, missing: Bool, calls: Rows) -> None:
    candidates = np.unique(calls.process)
    context = rows.columns["context"]
    if max(len(candidates), len(np.unique(context[missing]))) > MOST_PROCESSES:
        return  # no machine has so many: nobody is known
    for one in np.unique(context[missing]).tolist():
        mine = missing & (context == one)
        answered = [_answered(rows, mine, calls, int(process)) for process in candidates]
        best = int(np.argmax(answered))
        is_clear = answered[best] > 0 and answered.count(answered[best]) == 1 and not _is_shared(rows, mine)
        if len(candidates) == 1 or is_clear:
            rows.process[mine] = candidates[best]


def _is_shared(rows: Rows, mine: Bool) -> bool:
    """Whether these are rows of several processes, whose contexts have one number: their ids come twice."""
    node = rows.columns.get("graph_node")
    ids = rows.columns["correlation"][mine if node is None else mine & (node < 0)]
    ids = ids[ids > 0]
    return len(np.unique(ids)) < len(ids)


def _answered(rows: Rows, mine: Bool, calls: Rows, process: int) -> int:
    """How many of these rows a call of this process may have launched: it has their id and came before."""
    theirs = calls.process == process
    ids, start = calls.columns["correlation"][theirs], calls.columns["start"][theirs]
    order = np.argsort(ids, kind="stable")
    ids, start = ids[order], start[order]
    wanted = rows.columns["correlation"][mine]
    at = np.minimum(np.searchsorted(ids, wanted), max(len(ids) - 1, 0))
    if len(ids) == 0:
        return 0
    return int(((ids[at] == wanted) & (wanted > 0) & (start[at] <= rows.columns["start"][mine])).sum())


def ranks(device: list[Rows]) -> list[int]:
    """The processes with device work, by the device that each uses first, then by their number."""
    first: dict[int, int] = {}
    for rows in device:
        processes = np.unique(rows.process[rows.process >= 0])
        if len(processes) > MOST_PROCESSES:
            raise InputError(
                f"The export names {len(processes):,} processes with GPU work, which no machine has.", AGAIN
            )
        for process in processes.tolist():
            used = int(rows.columns["device"][rows.process == process].min())
            first[process] = min(used, first.get(process, used))
    return sorted(first, key=lambda process: (first[process], process))


def header_of(database: Database, process: int, device: list[Rows], begin_ns: int) -> Header:
    """What the export says of a process: its devices by name, where it names any."""
    used = np.unique(np.concatenate([rows.columns["device"][rows.process == process] for rows in device]))
    return Header(
        devices=_devices(database, process_number(process), used),
        base_time_ns=begin_ns,
        recorder=NSYS,
    )


def _devices(database: Database, number: int, used: I64) -> tuple[DeviceProperties, ...]:
    if not database.has(GPUS, "id", "name"):
        return ()
    size = "totalMemory" if database.has(GPUS, "totalMemory") else "NULL"
    processors = "smCount" if database.has(GPUS, "smCount") else "NULL"
    gpus = {
        int(one): DeviceProperties(0, text_of(name), _count(memory), _count(count))
        for one, name, memory, count in database.rows(f"SELECT id, name, {size}, {processors} FROM {GPUS}")
        if isinstance(one, int) and name
    }
    names = {gpu.name for gpu in gpus.values()}
    of_device = machine_devices(database, number)
    found = []
    for device in used.tolist():
        gpu = gpus.get(of_device.get(device, -1))
        if gpu is None and len(names) == 1:  # whichever of them it is, it is called so
            gpu = next(iter(gpus.values()))
        if gpu is not None:
            found.append(DeviceProperties(device, gpu.name, gpu.total_memory, gpu.sm_count))
    return tuple(found)


def machine_devices(database: Database, number: int) -> dict[int, int]:
    """From the numbers by which a process calls its devices to the machine's own."""
    if not database.has(CUDA_DEVICES, "gpuId", "cudaId", "pid"):
        return {}
    asked = f"SELECT cudaId, gpuId FROM {CUDA_DEVICES} WHERE pid = ?"
    pairs = database.rows(asked, [number])
    return {cuda: gpu for cuda, gpu in pairs if isinstance(cuda, int) and isinstance(gpu, int)}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def begin_of_recording(database: Database, latest_ns: int) -> int:
    """Nanoseconds since 1970 when the export's clock is zero; 0 where it tells that time itself, or not."""
    if latest_ns >= WALL_CLOCK_FROM_NS or not database.has(BEGIN, "utcEpochNs"):
        return 0
    found = [one for (one,) in database.rows(f"SELECT utcEpochNs FROM {BEGIN}") if isinstance(one, int)]
    return found[0] if len(found) == 1 and found[0] >= WALL_CLOCK_FROM_NS else 0
