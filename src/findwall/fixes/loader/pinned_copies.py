"""Copies from pinned memory to the GPU, for fixes that keep the host from waiting for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, IN_PLACE, REGISTRY, Call, Put

LARGE_BYTES = 1 << 20  # smaller ones are staged by the driver without a wait to speak of. Chosen by hand.


# Where non_blocking stands among what a call is given; None where it is no copy to a GPU.
PlaceOf = Callable[[tuple[Any, ...], dict[str, Any]], int | None]


class PinnedCopies:
    """Makes `tensor.to(device)` and `tensor.cuda()` non-blocking where the tensor is pinned, and counts them.

    Those that the job itself asked not to block are neither changed nor counted. With `pins`, large tensors
    that are not pinned are copied to pinned memory first, which the device's copy then reads: the job may
    write to its own at once.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.count = self.pinned = 0
        self.pins = False
        self._noted: list[Effect] = []
        self._puts: list[Put] = []
        places: dict[str, PlaceOf] = {"to": self._place_in_to, "cuda": lambda args, kwargs: 1}
        for name, place_of in places.items():
            unblocked = functools.partial(self._unblocked, place_of)
            self._puts.append(REGISTRY.wrap("pinned copies", torch.Tensor, name, unblocked, past_end=APPLIED))

    @property
    def is_there(self) -> bool:
        """Not taken back."""
        return all(one.state == IN_PLACE for one in self._puts)

    def note(self, effect: Effect) -> None:
        """Tell a fix where copies are made."""
        self._noted.append(effect)

    def told(self) -> str:
        if not self.count:
            return ""
        copies = f"{self.count} cop{'ies' if self.count > 1 else 'y'} from pinned memory made non-blocking"
        return copies + (f", {self.pinned} of them pinned on the way" if self.pinned else "")

    def _unblocked(self, place_of: PlaceOf, original: Call) -> Call:
        @functools.wraps(original)
        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.is_cuda:  # most calls: casts of what is on the device already
                return original(tensor, *args, **kwargs)
            place, kind = place_of(args, kwargs), "copy"
            if place is None:
                return original(tensor, *args, **kwargs)
            asked = args[place] if len(args) > place else kwargs.get("non_blocking", False)
            if asked and not self.pins:
                return original(tensor, *args, **kwargs)
            if not tensor.is_pinned():
                if not self._can_pin(tensor):
                    return original(tensor, *args, **kwargs)
                tensor, kind = tensor.pin_memory(), "pageable"
                self.pinned += 1
            elif asked:
                return original(tensor, *args, **kwargs)
            self.count += 1
            for effect in self._noted:
                takes = ("",) * place + ("non_blocking",)
                effect.at(kind, takes=takes, given=takes[: len(args)] + tuple(kwargs))
            if len(args) > place:
                return original(tensor, *args[:place], True, *args[place + 1 :], **kwargs)
            return original(tensor, *args, **{**kwargs, "non_blocking": True})

        return copy

    def _can_pin(self, tensor: Any) -> bool:
        return (
            self.pins
            and tensor.device.type == "cpu"
            and tensor.layout is self._torch.strided
            and not tensor.requires_grad
            and tensor.numel() * tensor.element_size() >= LARGE_BYTES
        )

    def _place_in_to(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """Where non_blocking stands among what `to` is called with; None if it does not go to a GPU."""
        where = args[0] if args else kwargs.get("device", kwargs.get("other"))
        if isinstance(where, str):
            return 2 if where.startswith("cuda") else None
        if isinstance(where, self._torch.device):
            return 2 if where.type == "cuda" else None
        if isinstance(where, self._torch.Tensor):  # to where that one is
            return 1 if where.is_cuda else None
        return 2 if isinstance(where, int) else None


_of_torch: dict[int, PinnedCopies] = {}


def pinned_copies(torch: Any) -> PinnedCopies:
    """One for all fixes of a process."""
    if id(torch) not in _of_torch or not _of_torch[id(torch)].is_there:
        _of_torch[id(torch)] = PinnedCopies(torch)
    return _of_torch[id(torch)]
