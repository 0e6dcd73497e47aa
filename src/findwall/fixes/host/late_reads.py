"""Values that the job's own lines read from the device come late, to show what not waiting would give.

A read gives what the same read found some steps before, by a copy into pinned memory that was started then;
the first of each waits as it always did. So the host never waits for work that it has just issued. Only now
and then is a copy started: hundreds of them in every step would cost what the waits did. Reads of libraries
and of findwall itself stay as they are, and so do those of the job whose value decides how often a loop
turns, what is taken of a tensor, or how a comparison ends. A test that is true or false may come late as long
as it always comes out the same: once it does not, the job would have gone another way, and the trial says so.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, Protocol

from findwall.apply.applying import STAND_IN, Effect, is_compiling_of
from findwall.apply.job_lines import is_job
from findwall.apply.registry import APPLIED, REGISTRY, STEP_POST_HOOK, Call, called_from, undo_all
from findwall.fixes.host.read_uses import use_of
from findwall.fixes.host.skipped_waits import SkippedWaits

BY = "late reads"
SCALARS = ("item", "__float__", "__int__", "__bool__", "__format__")
MANY = ("tolist", "cpu")
# All chosen by hand.
MOST_VALUES = 64  # of a tensor that is read whole: more is a result of the job, no figure that it looks at
MOST_COPIES = 8192  # that are kept at the same time
EVERY = 16  # of a read's turns: then it is looked at again
LINES_NAMED = 3  # in one sentence
WHY_LEFT = {
    "size": "it decides the size of a loop or of a tensor",
    "branch": "it decides a comparison",
    "unknown": "its use is not known",
}


class Copy(Protocol):
    """What was asked from the device."""

    buffer: Any  # on the host; whole once waited for

    def wait(self) -> None: ...


class Device(Protocol):
    def holds(self, tensor: Any) -> bool:
        """Whether reading it makes the host wait."""

    def start(self, tensor: Any, again: Copy | None) -> Copy:
        """Copy it out without waiting, into the buffer of one that was waited for where there is one."""


class PinnedCopy:
    """One copy out, and the event behind it."""

    def __init__(self, torch: Any, tensor: Any) -> None:
        with torch.inference_mode(False):  # a buffer made in that mode cannot be written to outside
            self.buffer = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        self._event = torch.cuda.Event()

    def start(self, torch: Any, tensor: Any) -> None:
        self.buffer.copy_(tensor.detach(), non_blocking=True)
        self._event.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> None:
        self._event.synchronize()  # of a step before: it is done long since


class Gpu:
    """The real one."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def holds(self, tensor: Any) -> bool:
        return bool(tensor.is_cuda) and not self._torch.cuda.is_current_stream_capturing()

    def start(self, tensor: Any, again: Copy | None) -> Copy:
        copy = again if isinstance(again, PinnedCopy) else PinnedCopy(self._torch, tensor)
        copy.start(self._torch, tensor)
        return copy


class _Slot:
    """One read of a step: what is known of it, what is on its way, and when to look again."""

    __slots__ = ("coming", "known", "like", "turns")

    def __init__(self, like: tuple[Any, ...], first: Copy, turns: int) -> None:
        self.like, self.turns = like, turns
        self.coming: Copy | None = first
        self.known: Copy | None = None

    def value(self, tensor: Any, device: Device, every: int) -> Any:
        """What was known when the last copy was started."""
        spare = None
        if self.coming is not None:
            self.coming.wait()
            spare, self.known, self.coming = self.known, self.coming, None
        self.turns += 1
        if self.turns % every == 0:
            self.coming = device.start(tensor, spare)
        return self.known.buffer if self.known is not None else None


class _Site:
    """A place in the job's code that reads."""

    def __init__(self, code: CodeType, offset: int, line: int) -> None:
        self.code = code  # kept, so that its number stays its own
        self.line = f"{PurePath(code.co_filename).name}:{line}"
        self.use = use_of(code, offset, line)
        self.slots: dict[tuple[int, int], _Slot] = {}
        self.turn = self.count = self.late = 0
        self.decided: bool | None = None  # what a test there came out as

    def occurrence(self, turn: int) -> int:
        """Which read of the step it is; before any step ended, each is the next one's."""
        if turn != self.turn or turn == 0:
            self.turn, self.count = turn, -1
        self.count += 1
        return self.count


class LateReads:
    """All that is changed in torch for it."""

    def __init__(self, torch: Any, effect: Effect, device: Device | None = None, every: int = EVERY) -> None:
        self._torch, self._effect, self._device, self._every = torch, effect, device or Gpu(torch), every
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._sites: dict[tuple[int, int], _Site] = {}
        self._left: dict[str, str] = {}  # lines that are left alone, and why
        self._copies = self._turn = 0
        self._puts = [
            REGISTRY.wrap(BY, torch.Tensor, name, functools.partial(self._late, name), past_end=APPLIED)
            for name in (*SCALARS, *MANY)
        ]
        optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim hides it
        hook = optimizers.register_optimizer_step_post_hook(self._turned)
        self._puts.append(REGISTRY.hold(BY, STEP_POST_HOOK, hook.remove, past_end=APPLIED))

    def remove(self) -> None:
        undo_all(self._puts)

    def _turned(self, *_: Any) -> None:
        self._turn += 1

    def _late(self, name: str, original: Call) -> Call:
        compiling = is_compiling_of(self._torch)

        @functools.wraps(original)
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(tensor, *args, **kwargs)
            try:
                site = self._site(name, tensor, bool(kwargs) or bool(args and name != "__format__"))
                came = self._before(site, tensor) if site is not None else None
            except Exception as error:  # noqa: BLE001 - fail open: the job reads as it always did
                self._effect.cannot(f"{type(error).__name__}: {error}")
                site = came = None
            if came is None:
                value = original(tensor, *args, **kwargs)
            else:  # of what lies on the host already, `cpu` gives no copy
                value = came.clone() if name == "cpu" else original(came, *args)
            if site is not None and isinstance(value, bool):
                self._decides(site, value)
            return value

        return read

    def _site(self, name: str, tensor: Any, asks_more: bool) -> _Site | None:
        """Where the job reads what may come late; None: it is read as always."""
        frame = called_from(sys._getframe(2))
        if type(tensor) not in self._plain or frame is None or not is_job(frame.f_code.co_filename):
            return None
        if not self._device.holds(tensor) or asks_more or tensor.numel() == 0:
            return None
        if tensor.numel() > (MOST_VALUES if name in MANY else 1):
            return None
        if name == "__format__" and (tensor.dim() or type(tensor) is not self._torch.Tensor):
            return None  # it is not the value that is written
        if name == "cpu" and tensor.requires_grad:  # its gradient may be wanted
            return None
        site = self._known(frame)
        tests = name == "__bool__" or tensor.dtype is self._torch.bool
        if site.use == "value" or (site.use == "branch" and tests):
            return site
        self._left.setdefault(site.line, WHY_LEFT[site.use])
        return None

    def _known(self, frame: FrameType) -> _Site:
        key = id(frame.f_code), frame.f_lasti
        if key not in self._sites:
            self._sites[key] = _Site(frame.f_code, frame.f_lasti, frame.f_lineno or 0)
        return self._sites[key]

    def _before(self, site: _Site, tensor: Any) -> Any:
        """What the same read found before; None the first time, or where it looked otherwise."""
        key = threading.get_ident(), site.occurrence(self._turn)
        like = tensor.shape, tensor.dtype, tensor.device
        slot = site.slots.get(key)
        if slot is None or slot.like != like:
            if slot is None and self._copies >= MOST_COPIES:
                return None
            self._copies += slot is None
            # Each begins at another turn, so that no step has all the copies.
            site.slots[key] = _Slot(like, self._device.start(tensor, None), self._copies)
            return None
        site.late += 1
        return slot.value(tensor, self._device, self._every)

    def _decides(self, site: _Site, value: bool) -> None:
        if site.decided is None:
            site.decided = value
        elif site.decided is not value:
            self._effect.cannot(f"the test at {site.line} changed, and a late one goes another way")

    @property
    def late(self) -> int:
        return sum(site.late for site in self._sites.values())

    def told(self) -> str:
        lines = list(dict.fromkeys(site.line for site in self._sites.values() if site.late))
        if not lines:
            return ""
        reads = "1 read" if self.late == 1 else f"{self.late:,} reads"
        return f"{reads} came late, at {_listed(lines)}"

    def left_alone(self) -> str:
        return _listed([f"{line} was left alone, as {why}" for line, why in self._left.items()], 1)


def _listed(parts: list[str], most: int = LINES_NAMED) -> str:
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


def read_late(torch: Any, effect: Effect) -> None:
    """How often the host did not wait, and at which lines, is the proof."""
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here that the job could wait for")
        return
    waits = SkippedWaits(torch)
    report(effect, LateReads(torch, effect), waits)


def report(effect: Effect, reads: LateReads, waits: SkippedWaits) -> None:
    def told() -> str:
        left = reads.left_alone()
        made = f"torch.cuda.synchronize was not skipped, as {waits.why_not}" if waits.why_not else ""
        done = list(filter(None, (reads.told(), waits.told())))
        if not done:
            effect.missed(left or made or "none of the job's own lines was seen to wait for a value")
            return ""
        return f"{STAND_IN}: {'; '.join(filter(None, (*done, left)))}"

    effect.at_end(told)
