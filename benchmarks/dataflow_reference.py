"""Who wrote what each op reads, noted element by element: what the graph of a step is held against.

A TorchDispatchMode sees every op below autograd with its tensors. For each storage it keeps who wrote each of
its bytes last; a read asks the map. Storages are held by weak references alone: a tensor that is kept alive
changes what the program does (gradients are no longer taken over but copied).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLIND = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "resize_")
ALLOCATES = ("aten::empty", "aten::new_empty")
RANGE = "reference#"  # around each op, so that the observer's rows can be told by its number
MOST_BYTES = 1 << 26  # of a storage whose bytes are looked at


class Reference(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.edges: set[tuple[int, int]] = set()
        self._maps: dict[int, tuple[StorageWeakRef, np.ndarray[Any, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        number = len(self.names)
        self.names.append(func._schema.name)
        given = list(_given(func, args, kwargs))
        for tensor, argument in given:
            blind = argument.name == "out" or func._schema.name.split("::")[1] in BLIND
            if not (_is_written(argument) and blind):
                self._read(number, tensor)
        with torch.autograd.profiler.record_function(f"{RANGE}{number}"):
            result = func(*args, **kwargs)
        places = {_place(tensor) for tensor, _ in given}
        for tensor, argument in given:
            if _is_written(argument):
                self._write(number, tensor)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and _place(tensor) not in places:
                self._maps.pop(_place(tensor), None)
                if not func._schema.name.startswith(ALLOCATES):
                    self._write(number, tensor)
        return result

    def _bytes(self, tensor: torch.Tensor) -> np.ndarray[Any, Any] | None:
        """The writers of a tensor's bytes, in its shape."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if not 0 < size <= MOST_BYTES or tensor.numel() == 0:
            return None
        kept = self._maps.get(storage._cdata)
        if kept is None or kept[0].expired() or len(kept[1]) != size:
            kept = self._maps[storage._cdata] = StorageWeakRef(storage), np.full(size, -1, np.int32)
        width = tensor.element_size()
        return np.lib.stride_tricks.as_strided(
            kept[1][tensor.storage_offset() * width :],
            (*tensor.shape, width),
            (*(stride * width * 4 for stride in tensor.stride()), 4),
        )

    def _read(self, number: int, tensor: torch.Tensor) -> None:
        if (found := self._bytes(tensor)) is not None:
            self.edges |= {(int(writer), number) for writer in np.unique(found) if writer >= 0}

    def _write(self, number: int, tensor: torch.Tensor) -> None:
        if (found := self._bytes(tensor)) is not None:
            found[...] = number


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _given(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[torch.Tensor, Any]]:
    arguments = func._schema.arguments
    pairs = list(zip(arguments, args, strict=False))
    pairs += [(one, kwargs[one.name]) for one in arguments if one.name in kwargs]
    for argument, value in pairs:
        for tensor in tree_leaves(value):
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                yield tensor, argument


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write
