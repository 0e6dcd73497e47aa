"""The stage behind the trace: a few whole iterations whose ops are seen with all their tensors.

Who made what each op reads is known from them: what is computed and never used, twice, or alike in every
step. torch's observer sees ops and tensors; what it cannot see is told to it, each tensor as a `detach`
inside a range of ours: parameters and buffers, what Python still holds at the end, and what the host reads
from memory meanwhile. Times in these iterations mean nothing, and none is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any
from weakref import ref

from findwall.agent.allocations.live_tensors import (
    MOST_TENSORS,
    held_by,
    is_plain,
    objects_of,
    stepped_by,
)
from findwall.agent.engine import Engine
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.tracing.graph_captures import CAPTURES
from findwall.agent.tracing.line_marks import LineMarks
from findwall.agent.tracing.number_marks import watch_numbers
from findwall.agent.tracing.observer import BY, OBSERVER
from findwall.agent.tracing.value_counts import tell, watch_values
from findwall.agent.tracing.zero_counts import tell_zeros
from findwall.apply.registry import REGISTRY, Call, Put, undo_all
from findwall.machine import torch_device as machine
from findwall.model.dataflow import (
    BORN,
    BUFFERS,
    CUT,
    KEPT,
    LOOK,
    SAME,
    SEEN,
    STATE,
)
from findwall.model.measurement import OBSERVED_FILE, Observation
from findwall.units import NS_PER_S

ITERATIONS = 2  # the second shows what is alike in every step, and what of the first is used later
# Where two would hold the job up for too long: loops and who made what are seen in one as well.
FEWEST = 1
# Where a step is what a model's call or a loop's turn ends, one step may take several: then twice as many.
GUESSED = 4
OLDEST_TORCH = (2, 5)  # before it the observer and the interpreter could wait for each other for ever
# What the observer takes for an op, ns: 8 to 30 us were measured in jobs on an H200, 17 to 30 on two cores of
# a Xeon, beside 0.4 s for what is looked at once, and up to 50 on small ones.
OP_NS = 35_000
HELD_UP_AT_MOST_NS = 2 * NS_PER_S
BESIDE = "it is done beside a trace, on the first rank"
SUMMED_BYTES = 256 << 20  # of the host's memory that is looked at twice: a quarter of a second
READS = ("numpy", "tolist", "data_ptr", "__dlpack__")  # with which the host gets at a tensor's memory


def barred(engine: Engine) -> str:
    """Why iterations cannot be observed; empty if they can."""
    torch, trace = engine.torch, engine.record.trace
    version = tuple(int(part) for part in str(torch.__version__).split(".")[:2] if part.isdigit())
    if version < OLDEST_TORCH:
        return f"torch {torch.__version__} may hang while its ops are observed"
    if trace is None or trace.file is None or not engine.rank.speaks or engine.window is None:
        return BESIDE
    if CAPTURES.replays:
        return "the step replays a CUDA graph, whose ops nobody sees"
    fewest = _iterations(engine)[-1]
    if (expected := _expected_ns(engine, fewest)) > HELD_UP_AT_MOST_NS:
        return f"it would hold the job up for about {expected / NS_PER_S:.0f} s"
    if machine.inside_backward(torch):
        return "steps end inside backward"
    return ""


def _iterations(engine: Engine) -> tuple[int, ...]:
    """How many may be observed, the most telling number first."""
    is_told = engine.finder.source in (StepEnd.EXPLICIT, StepEnd.OPTIMIZER)
    return (ITERATIONS, FEWEST) if is_told else (GUESSED, ITERATIONS)


def _wanted(engine: Engine) -> int:
    return next(one for one in _iterations(engine) if _expected_ns(engine, one) <= HELD_UP_AT_MOST_NS)


def _expected_ns(engine: Engine, iterations: int) -> float:
    """How long so many iterations would hold the job up."""
    assert engine.window is not None
    return iterations * OP_NS * engine.window.ops / max(engine.record.trace.steps, 1)


class Observing:
    """A few iterations under torch's observer of ops."""

    name = "observe"

    def __init__(self, engine: Engine, then: Callable[[Engine], None]) -> None:
        self._then = then
        self._ended = 0
        self._puts: list[Put] = []
        self._path: Path | None = None
        self._record = engine.record.observed = Observation(why_not=barred(engine))
        self._usual_ns = engine.usual_ns
        self._wanted = 0 if self._record.why_not else _wanted(engine)
        self._ours_ns = 0
        self._reads_count = True
        self._sums: list[tuple[ref[Any], int]] = []  # tensors in the host's memory, and what they held
        self._began = perf_counter_ns()
        if not self._record.why_not:
            self._guard(lambda: self._begin(engine))

    def _begin(self, engine: Engine) -> None:
        assert engine.folder is not None
        self._path = engine.folder.rank_path / OBSERVED_FILE
        with self._counted():
            _stop_at_rows(engine.torch)
            state = _state(engine.torch)
            self._sums = _sums(engine.torch, {id(one) for one in state})
            OBSERVER.begin(engine.torch, self._path)
            self._puts.append(REGISTRY.hold(BY, "torch's observer of ops", OBSERVER.end))
            self._watch_reads(engine.torch)
            if not machine.compiled_graphs():  # else the compiler would see another function, and begin anew
                self._puts += [*watch_values(engine.torch), *watch_numbers(engine.torch)]
            _tell_state(engine.torch, state)
            tell_zeros(engine.torch)
            self._lines = LineMarks(engine.torch)
            self._puts.append(REGISTRY.hold(BY, "sys.settrace", self._lines.end))
            self._lines.begin()

    def _watch_reads(self, torch: Any) -> None:
        def make(original: Call) -> Call:
            @functools.wraps(original)
            def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if OBSERVER.is_busy and self._reads_count:
                    with contextlib.suppress(Exception):  # inside the job's own call: it is not told, then
                        tell(torch, SEEN, [tensor])
                return original(tensor, *args, **kwargs)

            return read

        for name in READS:
            if hasattr(torch.Tensor, name):
                self._puts.append(REGISTRY.wrap(BY, torch.Tensor, name, make))

    def batch_taken(self, engine: Engine, batch: Any) -> None:
        """A loader gave this: its tensors are new, whatever lay at their places before."""
        if OBSERVER.is_busy:
            self._guard(lambda: tell(engine.torch, BORN, _tensors_in(engine.torch, batch)))

    def step(self, engine: Engine, now: int) -> None:
        if not self._record.why_not:
            self._guard(lambda: self._advance(engine))
        if self._record.why_not and self._record.why_not != BESIDE:
            engine.note(f"nobody followed the step's tensors: {self._record.why_not}")
        if self._record.why_not or self._ended >= self._wanted:
            self._then(engine)

    def _advance(self, engine: Engine) -> None:
        self._ended += 1
        if not OBSERVER.is_busy:
            raise RuntimeError("the job started a process meanwhile")
        if machine.inside_backward(engine.torch):
            raise RuntimeError("steps end inside backward")
        if perf_counter_ns() - self._began > 2 * HELD_UP_AT_MOST_NS + self._wanted * self._usual_ns:
            raise RuntimeError("it held the job up for too long")
        with self._counted():
            if self._ended < self._wanted:
                tell(engine.torch, CUT, [])
                return
            self._lines.end()
            self._reads_count = False
            with engine.torch.autograd.profiler.record_function(LOOK):
                same = _same(engine.torch, self._sums)
            tell(engine.torch, SAME, same)
            tell(engine.torch, KEPT, _kept(engine.torch))
            self._sums = []
            self._end()
        assert self._path is not None
        self._path.chmod(0o600)
        self._record.file, self._record.ops = self._path.name, engine.window.ops if engine.window else 0
        seen = perf_counter_ns() - self._began
        self._record.held_up_ns = max(int(seen - self._wanted * self._usual_ns), self._ours_ns)
        engine.record.cost["observed_s"] = self._record.held_up_ns / NS_PER_S
        engine.diary.held_up += self._record.held_up_ns

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        began = perf_counter_ns()
        try:
            yield
        finally:
            self._ours_ns += perf_counter_ns() - began

    def _guard(self, action: Callable[[], None]) -> None:
        """Whatever fails here ends the observing, and nothing else."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - private parts of torch, and the disk
            self._drop(str(error) or type(error).__name__)

    def _end(self) -> None:
        undo_all(self._puts)
        OBSERVER.end()

    def _drop(self, why: str) -> None:
        self._record.why_not = why
        with contextlib.suppress(Exception):  # the same private parts
            self._end()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def close(self, engine: Engine) -> None:
        if not self._record.why_not and not self._record.file:
            self._drop("the job ended first")


def _tell_state(torch: Any, state: list[Any]) -> None:
    parameters = [one for one in state if type(one) is torch.nn.Parameter]
    with torch.autograd.profiler.record_function(STATE):
        for one in parameters:
            one.detach()
        tell(torch, BUFFERS, [one for one in state if type(one) is not torch.nn.Parameter])


def _stop_at_rows(torch: Any) -> None:
    """Sparse tensors in rows or columns have no strides: torch's observer fails at each op that is given one,
    and says so on the job's stderr."""
    compressed = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
    plain = (torch.Tensor, torch.nn.Parameter)
    if any(type(one) in plain and one.layout in compressed for one in objects_of(torch.Tensor)):
        raise RuntimeError("torch's observer cannot follow sparse tensors in CSR form")


def _state(torch: Any) -> list[Any]:
    """Parameters and buffers of all modules."""
    found = {
        id(one): one
        for module in objects_of(torch.nn.Module)
        for one in held_by(module, "_parameters", "_buffers")
        if is_plain(torch, one)
    }
    if len(found) > MOST_TENSORS:
        raise RuntimeError(f"the job holds {len(found)} parameters and buffers")
    return list(found.values())


def _kept(torch: Any) -> list[Any]:
    """What Python holds, but for gradients that no optimizer has: they are held by their parameters alone."""
    optimizers = objects_of(torch.optim.Optimizer)
    stepped = {id(one): one for optimizer in optimizers for one in stepped_by(optimizer)}
    tensors = [one for one in objects_of(torch.Tensor) if is_plain(torch, one)]
    others = {
        one.grad.data_ptr()
        for one in tensors
        if type(one) is torch.nn.Parameter and id(one) not in stepped and one.grad is not None
    }
    gradients = [one.grad for one in stepped.values() if one.grad is not None and is_plain(torch, one.grad)]
    found = {id(one): one for one in [*tensors, *gradients] if one.data_ptr() not in others}
    if len(found) > MOST_TENSORS:
        raise RuntimeError(f"the job holds {len(found)} tensors")
    return list(found.values())


def _tensors_in(torch: Any, batch: Any) -> list[Any]:
    """Of a batch, however it is packed."""
    found: list[Any] = []
    left, seen = [batch], {id(batch)}  # parts may know the whole they are of
    while left and len(seen) < MOST_TENSORS:
        one = left.pop()
        inside: Iterable[Any] = ()
        if is_plain(torch, one):
            found.append(one)
        elif isinstance(one, dict):
            inside = one.values()
        elif isinstance(one, (list, tuple)):
            inside = one
        elif hasattr(one, "__dict__"):
            inside = vars(one).values()
        for part in inside:
            if id(part) not in seen:
                seen.add(id(part))
                left.append(part)
    return found


def _sums(torch: Any, but: set[int]) -> list[tuple[ref[Any], int]]:
    """Tensors of the host that Python holds, and sums over what they hold: numpy may change them unseen.

    Held by the job alone: a gradient that it drops would else look kept at the end.
    """
    found: list[tuple[ref[Any], int]] = []
    left = SUMMED_BYTES
    for one in objects_of(torch.Tensor):
        if is_plain(torch, one) and one.device.type == "cpu" and id(one) not in but:
            left -= one.numel() * one.element_size()
            if left < 0 or len(found) >= MOST_TENSORS:
                return []  # too much to look at: then nothing is said to be the same
            found.append((ref(one), _sum(torch, one)))
    return found


def _same(torch: Any, sums: list[tuple[ref[Any], int]]) -> list[Any]:
    """Those that are still there, and hold what they held."""
    there = [(one(), was) for one, was in sums]
    return [one for one, was in there if one is not None and _sum(torch, one) == was]


def _sum(torch: Any, tensor: Any) -> int:
    if tensor.is_contiguous() and tensor.numel() and not tensor.is_conj() and not tensor.is_neg():
        size = tensor.numel() * tensor.element_size()
        return zlib.crc32((ctypes.c_char * size).from_address(tensor.data_ptr()))  # no op of torch's runs
    plain = tensor.detach().resolve_conj().resolve_neg().flatten()
    return zlib.crc32(plain.contiguous().view(torch.uint8).numpy()) if plain.numel() else 0
