"""What a stack says: which thread it is of, the job's own line in it, the ops and what torch does there."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from findwall.model.events import Bool
from findwall.model.memory_history import I32, CodeFrame, MemoryHistory
from findwall.step.call_names import is_own

# Who calls the outermost function of a thread: the interpreter a script's, `threading` the others'.
MAIN_ROOTS = ("<module>", "_run_module_as_main", "_run_code")
THREAD_ROOTS = ("_bootstrap", "_bootstrap_inner")
_OPTIMIZER = re.compile(r"(?:^|/)torch/optim/optimizer\.py$")  # its wrapper is below any optimizer's step
_NO_STEP = ("zero_grad", "_patched_zero_grad", "add_param_group", "load_state_dict", "state_dict")
_OURS = re.compile(r"(?:^|/)findwall/(?:agent|apply)/")  # around the job's calls, never what they ask for
_OF_TORCH = re.compile(r"(?:^|/)torch/")
_MODULE_CALL = re.compile(r"(?:^|/)torch/nn/modules/module\.py$")
STEP_MARK = "Optimizer.step#"  # how torch names an optimizer's step
_OP = re.compile(r"^(?:at::_ops::(?=\w+::(?:call|redispatch)\b)|aten::)(\w+?)(?:::|$)")
_WORKSPACE = re.compile(r"Workspace|CUDABlasHandle|CUDABlasLt", re.IGNORECASE)

# Who works in a buffer of its own: libraries of convolutions and recurrent layers.
_LIBRARY = re.compile(r"cudnn|miopen", re.IGNORECASE)
_ON_WEIGHTS = re.compile(r"(?:cudnn|miopen)_(?:rnn|convolution_backward_weight)")
_MAKES_ROOM = re.compile(r"^empty(?:_|$)")  # an op that only asks for memory
_AUTOCAST = re.compile(r"autocast::cached_cast|^aten::_to_copy$")

NO_PYTHON, MAIN, OTHER_THREAD, CALLED_BACK = range(4)


class CallStacks:
    """The stacks of a recording. A stack is a number; -1, the last of each table, is none."""

    def __init__(self, history: MemoryHistory) -> None:
        self._frames, self._stacks = history.frames, history.stacks

    def python(self, stack: int) -> list[CodeFrame]:
        """Its frames of Python, the innermost first."""
        if stack < 0:
            return []
        return [frame for frame in map(self._frames.__getitem__, self._stacks[stack]) if frame.is_python]

    @cached_property
    def threads(self) -> npt.NDArray[np.uint8]:
        """Of each stack. Autograd's thread has no Python on it, or what it called back: a hook, a
        recomputation, and then no script is at the bottom."""
        found = [self._thread(stack) for stack in range(len(self._stacks))]
        if MAIN not in found:  # nobody's script: then a thread of Python is the job
            found = [MAIN if kind in (OTHER_THREAD, CALLED_BACK) else kind for kind in found]
        return np.array([*found, NO_PYTHON], np.uint8)

    def _thread(self, stack: int) -> int:
        frames = self.python(stack)
        if not frames:
            return NO_PYTHON
        root = frames[-1].name
        return MAIN if root in MAIN_ROOTS else OTHER_THREAD if root in THREAD_ROOTS else CALLED_BACK

    @cached_property
    def updates(self) -> Bool:
        """Stacks in which an optimizer makes its step."""
        return self._any(
            lambda frame: (
                frame.name.startswith(STEP_MARK)
                or (bool(_OPTIMIZER.search(frame.file)) and frame.name not in _NO_STEP)
            )
        )

    @cached_property
    def others_update(self) -> Bool:
        """Stacks in which code that is not torch's computes an update: it has none of torch's switches."""
        innermost = (self.python(stack)[:1] for stack in range(len(self._stacks)))
        found = [any(not _OF_TORCH.search(frame.file) for frame in first) for first in innermost]
        return self.updates & np.array([*found, False], np.bool_)

    @cached_property
    def calls_module(self) -> Bool:
        """Stacks in which a module is called."""
        return self._any(
            lambda frame: frame.name in ("_call_impl", "__call__") and bool(_MODULE_CALL.search(frame.file))
        )

    @cached_property
    def takes_workspace(self) -> Bool:
        """Stacks in which a library of matrix products takes its workspace, where C++ was recorded."""
        return self._any(lambda frame: not frame.is_python and bool(_WORKSPACE.search(frame.name)))

    @cached_property
    def sums_in_parts(self) -> Bool:
        """Stacks in which a sum takes room for its parts: one each of the blocks of threads that share it."""
        return self._any(lambda frame: not frame.is_python and "gpu_reduce_kernel" in frame.name)

    @cached_property
    def casts(self) -> Bool:
        """Stacks in which autocast may make a copy of what an op reads."""
        return self._any(lambda frame: not frame.is_python and bool(_AUTOCAST.search(frame.name)))

    @cached_property
    def works_on_weights(self) -> Bool:
        """Stacks in which a library computes a weight's gradient, or a recurrent layer."""
        return self._any(lambda frame: not frame.is_python and bool(_ON_WEIGHTS.search(frame.name)))

    @cached_property
    def libraries(self) -> tuple[I32, Bool]:
        """Of each stack the innermost function of a library, as a number, -1 where there is none; and whether
        it is that function, and no op called in it, that touches memory."""
        numbers: dict[str, int] = {}
        of = np.full(len(self._stacks) + 1, -1, np.int32)
        directly = np.zeros(len(self._stacks) + 1, np.bool_)
        for number, stack in enumerate(self._stacks):
            by_op = False
            for frame in map(self._frames.__getitem__, stack):
                if not frame.is_python and _LIBRARY.search(frame.name):
                    of[number], directly[number] = numbers.setdefault(frame.name, len(numbers)), not by_op
                    break
                op = _op_of(frame)
                by_op |= bool(op) and not _MAKES_ROOM.search(op)
        return of, directly

    def place(self, stack: int) -> tuple[str, ...]:
        """The same in another recording of the same code."""
        frames = map(self._frames.__getitem__, self._stacks[stack])
        return tuple(f"{frame.name}:{frame.file}:{frame.line}" for frame in frames)

    def _any(self, is_one: object) -> Bool:
        assert callable(is_one)
        ones = {number for number, frame in enumerate(self._frames) if is_one(frame)}
        found = [not ones.isdisjoint(stack) for stack in self._stacks]
        return np.array([*found, False], np.bool_)

    @cached_property
    def own_frames(self) -> list[CodeFrame | None]:
        """The nearest frame of the person's own code; where all is a library's, the nearest of Python; where
        no Python was recorded, the op that was called, if it is known."""
        found: list[CodeFrame | None] = []
        for stack, frames in enumerate(self._stacks):
            python = [frame for frame in self.python(stack) if not _OURS.search(frame.file)]
            ops = (frame for frame in map(self._frames.__getitem__, reversed(frames)) if frame.is_op)
            own = (frame for frame in python if is_own(frame.file))
            found.append(next(chain(own, python, ops), None))
        return [*found, None]

    @cached_property
    def lines(self) -> tuple[I32, list[CodeFrame]]:
        """The own line of each stack as a number, -1 where there is none; and the lines."""
        numbers: dict[tuple[str, int, str], int] = {}
        lines: list[CodeFrame] = []
        of = np.full(len(self._stacks) + 1, -1, np.int32)
        for stack, frame in enumerate(self.own_frames):
            if frame is not None:
                key = frame.file, frame.line, "" if frame.file else frame.name
                if key not in numbers:
                    numbers[key] = len(lines)
                    lines.append(frame)
                of[stack] = numbers[key]
        return of, lines

    def ops(self, stack: int) -> frozenset[str]:
        """The ops of torch under way, where C++ was recorded: `bmm`, `exp`."""
        if stack < 0:
            return frozenset()
        names = (_op_of(self._frames[frame]) for frame in self._stacks[stack])
        return frozenset(name for name in names if name)


def _op_of(frame: CodeFrame) -> str:
    found = _OP.match(frame.name)
    return found[1] if found else ""
