"""What a thread was doing, told by its stack alone: its calls, and whether it held the interpreter's lock.

torch gives the lock away while an op runs, and so do reads of files and sleeps. Who holds it runs Python, or
native code that keeps it. Inside torch's own files Python only prepares ops: that is issuing, not the
person's own work.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from math import sqrt

import msgspec

from findwall.model.catalogue import FAIR_PART
from findwall.model.watched import SeenStack, StackFrame
from findwall.step.call_names import STDLIB

# What a look can find, in the order in which a stack is asked.
DOINGS = ("starts", "compiles", "loader", "collective", "reads", "ops", "stalls", "waits", "python")

_LOADER = re.compile(
    r"torch/utils/data/(?:dataloader|_utils/\w+)\.py$|torchdata/.*\.py$|nvidia/dali/plugin/.*\.py$|ffcv/loader/.*\.py$"
)
_STARTS = re.compile(r"^<frozen importlib|^<frozen zipimport")
_COMPILES = re.compile(
    r"torch/_dynamo/(?:convert_frame|output_graph|symbolic_convert|bytecode_transformation)\.py$"
    r"|torch/_inductor/(?:graph|scheduler|lowering|async_compile|compile_worker|codegen|fx_passes)\b"
    r"|torch/_functorch/_aot_autograd/(?:graph_compile|jit_compile_runtime|dispatch)\w*\.py$|triton/compiler/"
)
_COLLECTIVE = re.compile(r"torch/distributed/(?:distributed_c10d|_functional_collectives)\.py$")
_WORKER_LOOP = re.compile(r"torch/utils/data/_utils/worker\.py$")
# Calls of torch in which the host waits for the device, or makes text of what it holds.
_READING_FILES = re.compile(r"torch/_tensor_str\.py$")
_READING_FUNCTIONS = frozenset({"synchronize", "Tensor.__format__", "Tensor.__repr__", "Tensor.__array__"})
_READING_BELOW = frozenset({"Tensor.__iter__", "Tensor.tolist", "Tensor.__len__"})
_BY_FILES = (("starts", _STARTS), ("compiles", _COMPILES), ("loader", _LOADER), ("collective", _COLLECTIVE))
_TORCH = re.compile(r"/(?:torch|torchvision|torchaudio|functorch|triton)/")
# Of torch, but the person's own business: writing a checkpoint, logging to TensorBoard.
_TORCH_WRITES = re.compile(r"/torch/(?:serialization|utils/tensorboard/\w+|distributed/checkpoint/\w+)\.py$")
_STDLIB_FILE = re.compile(r"/lib/python\d[\d.]*/(?!site-packages/|dist-packages/)|^<")
# Files in which no op of torch runs, whoever holds the lock: they compute, read or write by themselves.
_NO_OPS = re.compile(
    _STDLIB_FILE.pattern
    + r"|/site-packages/(?:numpy|PIL|cv2|pandas|scipy|sklearn|skimage|pyarrow|h5py|zarr|librosa"
    r"|soundfile|av|decord|orjson|ujson|yaml|requests|urllib3|boto3|botocore|fsspec|tqdm|wandb|mlflow|matplotlib)/"
)
_ISSUES = re.compile(r"/torch/nn/modules/module\.py$|/torch/optim/|/torch/autograd/function\.py$")
_INSTALLED = re.compile(r"/(?:site-packages|dist-packages)/|/lib/python\d[\d.]*/|^<")

# Methods that hand a number or a copy to the host; then what neither computes on a device nor waits for one.
READS = frozenset({"item", "tolist", "cpu", "numpy", "is_nonzero"})
_WEIGHTLESS = frozenset(
    {
        "detach",
        "flatten",
        "view",
        "reshape",
        "squeeze",
        "unsqueeze",
        "ravel",
        "unbind",
        "size",
        "numel",
        "dim",
    }
    | {
        "append",
        "extend",
        "format",
        "write",
        "print",
        "max",
        "min",
        "sum",
        "float",
        "int",
        "str",
        "round",
        "len",
    }
    | {"list", "tuple", "zip", "range", "enumerate", "add_scalar", "info", "debug", "update", "join"}
)
_COMPREHENSION = re.compile(r"(?:\.<locals>)?\.<(?:listcomp|dictcomp|setcomp|genexpr|lambda)>")
CONFIDENCE = 1.96  # standard errors: an interval that holds the truth 95 times in 100


class Spot(msgspec.Struct, frozen=True):
    """What a stack was doing, and on which line of the person's own code."""

    doing: str
    file: str
    line: int
    function: str
    inside: str = ""  # "encoder.py:iterencode": the innermost function, where it is another one

    @property
    def place(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


class Doing(msgspec.Struct, frozen=True):
    """How much of the time went to one thing: between two bounds, for looks are few."""

    share: float
    low: float
    high: float
    spots: tuple[tuple[Spot, float], ...]  # with their shares of all looks, most often first


class Doings(msgspec.Struct, frozen=True):
    """What all looks at one thread found."""

    looks: int  # at a job that runs
    starting: int  # at one that still starts, which say nothing of how it runs
    spots: dict[Spot, int]

    def of(self, *names: str) -> Doing:
        """Some of it, taken together."""
        return self._shared({spot: seen for spot, seen in self.spots.items() if spot.doing in names})

    def all(self) -> Doing:
        return self._shared(self.spots)

    def shares(self) -> dict[str, float]:
        found = {name: self.of(name).share for name in DOINGS}
        return {name: share for name, share in found.items() if share}

    def _shared(self, mine: dict[Spot, int]) -> Doing:
        total = max(self.looks, 1)
        count = sum(mine.values())
        low, high = interval(count, self.looks)
        return Doing(count / total, low, high, tuple(_merged(mine, total)))


def spot_of(stack: SeenStack, texts: dict[str, str]) -> Spot | None:
    """None where the stack is empty: a thread between two calls."""
    if not stack.frames:
        return None
    own = next((frame for frame in stack.frames if is_own(frame)), stack.frames[-1])
    innermost = stack.frames[0]
    return Spot(
        doing=_doing(stack, own, texts.get(f"{own.file}:{own.line}", "")),
        file=own.file,
        line=own.line,
        function=_COMPREHENSION.sub("", own.function) or own.function,
        inside="" if innermost is own else f"{innermost.file.rpartition('/')[2]}:{innermost.function}",
    )


def is_own(frame: StackFrame) -> bool:
    """The person's code, not a library's nor a compiler's."""
    path = frame.file
    if _INSTALLED.search(path) or "torchinductor" in path:
        return False
    return path.startswith("/") or path.split("/")[0].removesuffix(".py") not in STDLIB


def is_worker(stack: SeenStack) -> bool:
    return any(_WORKER_LOOP.search(frame.file) for frame in stack.frames)


def _doing(stack: SeenStack, own: StackFrame, text: str) -> str:
    frames, innermost = stack.frames, stack.frames[0]
    for doing, files in _BY_FILES:
        if any(files.search(frame.file) for frame in frames):
            return doing
    below = frames[: frames.index(own)]  # library calls inside the person's line
    if _is_read(below, text):
        return "reads"
    if any(_TORCH_WRITES.search(frame.file) for frame in below):
        return "python"
    caller = next((frame for frame in frames if not _STDLIB_FILE.search(frame.file)), innermost)
    is_asleep = not stack.holds_lock and not stack.is_running
    if _TORCH.search(caller.file):
        return "stalls" if is_asleep else "ops"
    if is_asleep:
        return "waits"
    if _NO_OPS.search(innermost.file):
        return "python"
    if any(_ISSUES.search(frame.file) for frame in frames):  # a model's own Python: it leads from op to op
        return "ops"
    return "python" if stack.holds_lock else "ops"


def _is_read(below: tuple[StackFrame, ...], text: str) -> bool:
    """Whether nothing but reading numbers goes on there."""
    if any(_READING_FILES.search(one.file) or one.function in _READING_FUNCTIONS for one in below):
        return True
    return {frame.function for frame in below} <= _READING_BELOW and reads_only(text)


def reads_only(text: str) -> bool:
    """Whether a line reads numbers, and calls nothing that could compute.

    A line that is part of a longer statement, or does arithmetic besides, is not one of them: then what it
    spends its time on is unknown.
    """
    tree = _parsed(text)
    if tree is None:
        return False
    names = [_called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if not READS.intersection(names) or not all(name in READS | _WEIGHTLESS for name in names):
        return False
    return not any(isinstance(node, ast.BinOp) and not _on_numbers(node) for node in ast.walk(tree))


def _parsed(text: str) -> ast.Module | None:
    for attempt in (text, f"{text} pass"):
        try:
            return ast.parse(attempt)
        except (SyntaxError, ValueError):
            continue
    return None


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _on_numbers(node: ast.BinOp) -> bool:
    """One side is a number just read: then the other is one too, or nearly always."""
    sides = (node.left, node.right)
    return any(isinstance(side, ast.Call) and _called(side) in READS | {"float", "int"} for side in sides)


def doings(stacks: Iterable[SeenStack], texts: dict[str, str]) -> Doings:
    """All looks, by what they found."""
    spots: Counter[Spot] = Counter()
    starting = 0
    for stack in stacks:
        spot = spot_of(stack, texts)
        if spot is not None and spot.doing == "starts":
            starting += stack.count
        elif spot is not None:
            spots[spot] += stack.count
    spots = _issuing(spots)
    return Doings(sum(spots.values()), starting, dict(spots))


def _issuing(spots: Counter[Spot]) -> Counter[Spot]:
    """The same, where a line that calls ops of torch itself is one that issues ops, also between them.

    Small ops one after the other gave the lock away in half of the looks, plain Python in none: seen on two
    cores, with a CPU job."""
    in_ops: Counter[tuple[str, int]] = Counter()
    in_python: Counter[tuple[str, int]] = Counter()
    for spot, seen in spots.items():
        if not spot.inside and spot.doing in ("ops", "python"):
            (in_ops if spot.doing == "ops" else in_python)[spot.file, spot.line] += seen
    found: Counter[Spot] = Counter()
    for spot, seen in spots.items():
        key = (spot.file, spot.line)
        issues = in_ops[key] > 0 and in_ops[key] >= FAIR_PART * (in_ops[key] + in_python[key])
        is_between = issues and spot.doing == "python" and not spot.inside
        found[msgspec.structs.replace(spot, doing="ops") if is_between else spot] += seen
    return found


def _merged(spots: dict[Spot, int], total: int) -> Iterator[tuple[Spot, float]]:
    """One row a line, whatever it was inside of; what was seen most often there is kept."""
    counts: Counter[tuple[str, int]] = Counter()
    first: dict[tuple[str, int], Spot] = {}
    for spot, seen in sorted(spots.items(), key=lambda one: -one[1]):
        first.setdefault((spot.file, spot.line), spot)
        counts[spot.file, spot.line] += seen
    for key, seen in counts.most_common():
        yield first[key], seen / total


def interval(count: int, total: int) -> tuple[float, float]:
    """Wilson's interval of a share seen in so many looks: it holds for few of them too."""
    if total == 0:
        return 0.0, 1.0
    share, square = count / total, CONFIDENCE**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = CONFIDENCE / (1 + square / total) * sqrt(share * (1 - share) / total + square / (4 * total**2))
    return max(middle - half, 0.0), min(middle + half, 1.0)
