"""What torch, numpy and Python say of a request for memory that failed, in the words of their versions."""

from __future__ import annotations

import re

import msgspec

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
_UNITS |= {"EiB": 1 << 60}
_SIZE = rf"([\d.]+) ({'|'.join(_UNITS)})\b"
_FIGURES = {  # torch 2.1 and later; before that
    "asked": (
        rf"Tried to allocate {_SIZE}",
        rf"you tried to allocate {_SIZE}",
        rf"Unable to allocate {_SIZE}",
    ),
    "total": (rf"total capacity of {_SIZE}", rf"{_SIZE} total capacity"),
    "free": (rf"of which {_SIZE} is free", rf"{_SIZE} free"),
    "allowed": (rf"{_SIZE} allowed",),
    "own": (rf"this process has {_SIZE} memory in use",),
    "allocated": (rf"Of the allocated memory {_SIZE} is allocated", rf"{_SIZE} already allocated"),
    "cached": (rf"{_SIZE} is reserved by PyTorch but unallocated",),
    "reserved": (rf"{_SIZE} reserved in total",),
}
_OF_DEVICE = re.compile(r"(CUDA|HIP) (error: )?out of memory|_STATUS_ALLOC_FAILED\b")  # a library of its own
_OF_HOST = re.compile(r"DefaultCPUAllocator: (can't allocate|not enough) memory")
_DEVICE = re.compile(r"\bGPU (\d+)\b")
_LONGEST = 4000  # characters of a message that are looked at


class FailureText(msgspec.Struct, frozen=True):
    """Bytes, as far as they are told; rounded to what was written."""

    on_host: bool
    device: int | None = None
    asked: int | None = None
    total: int | None = None
    free: int | None = None
    allowed: int | None = None
    own: int | None = None
    allocated: int | None = None
    cached: int | None = None


def failure_text(error: BaseException) -> FailureText | None:
    """None of any other exception."""
    try:
        text = str(error)[:_LONGEST]
    except Exception:  # noqa: BLE001 - a class of the job's own
        return None
    on_host = isinstance(error, MemoryError) or bool(_OF_HOST.search(text))
    if not on_host and not (isinstance(error, RuntimeError) and _OF_DEVICE.search(text)):
        return None
    found = {name: _size(text, forms) for name, forms in _FIGURES.items()}
    reserved = found.pop("reserved")
    if found["cached"] is None and reserved is not None and found["allocated"] is not None:
        found["cached"] = max(reserved - found["allocated"], 0)
    device = _DEVICE.search(text)
    return FailureText(on_host, int(device[1]) if device else None, **found)


def _size(text: str, forms: tuple[str, ...]) -> int | None:
    for form in forms:
        found = re.search(form, text)
        if found:
            try:
                return int(float(found[1]) * _UNITS[found[2]])
            except ValueError:  # two points in it
                return None
    return None
