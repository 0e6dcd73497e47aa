"""What a job says lies at which address, as columns."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from findwall.errors import InputError
from findwall.files import read_small
from findwall.model.measurement import KnownAddresses
from findwall.model.memory_history import HIGHEST_ADDRESS, KINDS, MOST_BYTES, MOST_DEVICES, KnownMemory


def read_known_memory(path: Path) -> KnownMemory:
    """Raises InputError; rows that cannot be are an error like any other."""
    try:
        found = msgspec.json.decode(read_small(path), type=KnownAddresses)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            f"{path} does not say what lies where: {error}.", "Was the folder copied whole?"
        ) from error
    kinds = (
        ("parameters", found.parameters),
        ("gradients", found.gradients),
        ("optimizer-state", found.optimizer_state),
    )
    rows = [(*row, KINDS.index(name)) for name, mine in kinds for row in mine]
    for device, address, size, _ in rows:
        if not (-1 <= device < MOST_DEVICES and 0 <= address <= HIGHEST_ADDRESS and 0 <= size <= MOST_BYTES):
            raise InputError(f"{path} is damaged: {size} bytes at {address} of device {device} cannot be.")
    return KnownMemory(
        np.array([address for _, address, _, _ in rows], np.uint64),
        np.array([size for _, _, size, _ in rows], np.int64),
        np.array([kind for _, _, _, kind in rows], np.uint8),
        np.array([device for device, _, _, _ in rows], np.int32),
        found.tells_all_state,
    )
