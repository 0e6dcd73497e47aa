"""What a log of NCCL_DEBUG=INFO says: how ranks are connected, and what was switched off."""

from __future__ import annotations

import msgspec


class Connection(msgspec.Struct, frozen=True):
    """Two ranks of a communicator, as it numbers them."""

    via: str  # "P2P/CUMEM", "SHM", "NET/IB", "NET/Socket"
    across_nodes: bool | None  # null: the log does not say where both run
    gpu_direct: bool | None  # of a network; null: of none
    count: int = 1  # such pairs


class NcclLog(msgspec.Struct, frozen=True):
    path: str
    version: str = ""
    connections: tuple[Connection, ...] = ()  # the most frequent first
    switched_off: tuple[str, ...] = ()  # NCCL_..._DISABLE that the environment sets
    is_cut: bool = False  # only its beginning was read
