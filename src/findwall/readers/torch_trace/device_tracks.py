"""Which device and stream a row ran on, where its own arguments do not say.

A track (pid, tid) of a device belongs to one stream of it: other rows on it say which. Only if none
does is the track's own number taken, as the profiler writes a device's number for its pid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from findwall.errors import InputError
from findwall.model.events import Kind

_ON_DEVICE = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.DEVICE_ANNOTATION, Kind.SYNC)
_MOST_DEVICES = 4096  # of a process; a larger pid is a process, not a device. Chosen by hand.
# Digits at most: what is longer is no number of either, and might not fit 64 bits.
_DEVICE_DIGITS = 5
_STREAM_DIGITS = 17


def settle_tracks(columns: dict[str, NDArray[Any]], threads: list[tuple[str, str]]) -> None:
    """Fill in missing devices and streams of device rows."""
    on_device = np.isin(columns["kind"], np.array(_ON_DEVICE, np.uint8))
    processes = [pid for pid, _ in threads]
    device_of = _settled(columns["device"], columns["thread"], on_device, processes, _device_number)
    stream_of = _settled(columns["stream"], columns["thread"], on_device, threads, _stream_number)
    for name, of_thread in (("device", device_of), ("stream", stream_of)):
        if of_thread is not None:
            missing = on_device & (columns[name] < 0)
            columns[name][missing] = of_thread[columns["thread"][missing]]


def check_devices(path: str, device: NDArray[Any]) -> None:
    """Refuse what no process has; each device is looked at by itself."""
    count = len(np.unique(device[device >= 0]))
    if count > _MOST_DEVICES:
        raise InputError(
            f"{path} is damaged: it names {count:,} devices of one process.", "Record or export it again."
        )


def _settled(
    values: NDArray[Any], thread: NDArray[Any], on_device: NDArray[np.bool_], keys: list[Any], number: Any
) -> NDArray[np.int64] | None:
    """The value each thread's rows share, by the key the thread falls under; None if nothing is missing."""
    known = values >= 0
    if not (on_device & ~known).any():
        return None
    rows = np.flatnonzero(on_device & known)
    smallest = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(smallest, thread[rows], values[rows])
    learned: dict[Any, int] = {}
    for index in np.unique(thread[rows]).tolist():
        learned[keys[index]] = min(int(smallest[index]), learned.get(keys[index], int(smallest[index])))
    return np.array([learned.get(key, number(key)) for key in keys], np.int64)


def _device_number(pid: str) -> int:
    return int(pid) if pid.isdecimal() and len(pid) <= _DEVICE_DIGITS and int(pid) < _MOST_DEVICES else -1


def _stream_number(track: tuple[str, str]) -> int:
    digits = track[1].removeprefix("stream ")  # torch 1.8 writes "stream 7"
    return int(digits) if digits.isdecimal() and len(digits) <= _STREAM_DIGITS else -1
