"""Timelines drawn as text, one character a millisecond, so that a case can be read.

    sketch(
        steps="|        |        ",
        cpu="  dddd o     dddd o  ",
        gpu="        kkk       kkk",
    )

Host letters (a line lies inside the line above it; a run of one letter is one event, but every `o` and
every `n` is an op of its own, and an `o` launches one kernel):

    o  an op that launches the next kernel     n  an op that launches nothing
    s  aten::item, waiting for the device      e  cudaDeviceSynchronize
    c  a blocking copy to the device           d  the data loader
    m  cudaMalloc                              f  cudaFree
    j  torch.compile at work                   g  garbage collection
    R  a compiled region                       G  a compiled graph inside it
    A  the autograd engine                     z  the optimizer's step
    y  a frame of the person's own Python      q  a collective of gloo
    .  or blank: nothing at all

Device letters (a run is one kernel; write the next one in capitals to part two that touch): see
`KERNELS`. Several lines are several streams. The n-th kernel is launched by the n-th `o`, the n-th
`h` by the n-th `c`, the n-th `b` by the n-th `s`; what has no launcher left was launched before the
trace began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace

from findwall.examine.establish import establish
from findwall.facts.facts import Facts
from findwall.machine.hardware import table_ceilings
from findwall.model.events import (
    COLUMN_TYPES,
    Details,
    DeviceProperties,
    Events,
    Header,
    Kind,
    ReadQuality,
    Timeline,
)
from findwall.model.machine import UNKNOWN_CEILINGS, Ceilings
from findwall.model.measured_run import Rank, Run

NS = 1_000_000  # one character
H200 = "NVIDIA H200"


class Drawn(msgspec.Struct, frozen=True):
    """What a device letter stands for: the kernel, the op that launches it, and what that op was given."""

    kernel: str
    op: str = "aten::add"
    dims: tuple[Any, ...] = ()
    types: tuple[Any, ...] = ()
    kind: Kind = Kind.KERNEL
    nbytes: int = -1
    sequence: int = -1
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    within: str | None = None  # a range around the launch, inside the op
    concrete: tuple[str, ...] = ()  # values of the arguments

    def given(self, *dims: list[int], dtype: str = "float") -> Drawn:
        """The same with tensors of these dims."""
        return replace(self, dims=dims, types=(dtype,) * len(dims))


BIG = [32768, 8192]  # 268 million numbers: a millisecond or so of one pass over memory
KERNELS: dict[str, Drawn] = {
    "k": Drawn(
        "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>", "aten::mul"
    ).given(BIG),
    "m": Drawn("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "aten::mm").given(
        [8192, 8192], [8192, 5632], dtype="c10::BFloat16"
    ),
    "n": Drawn(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "c10d::allreduce_"
    ),
    "h": Drawn("Memcpy HtoD (Pageable -> Device)", "aten::copy_", kind=Kind.MEMCPY, nbytes=9_000_000),
    "i": Drawn("Memcpy HtoD (Pinned -> Device)", "aten::copy_", kind=Kind.MEMCPY, nbytes=50_000_000),
    "b": Drawn("Memcpy DtoH (Device -> Pageable)", "aten::_local_scalar_dense", kind=Kind.MEMCPY, nbytes=4),
    "l": Drawn(
        "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>", "aten::copy_"
    ).given(BIG, BIG),
    "w": Drawn(
        "void at::native::vectorized_layer_norm_kernel<float, float>", "aten::native_layer_norm"
    ).given(BIG, [8192]),
    "x": Drawn(
        "void at::native::vectorized_gather_kernel<16, long>",
        "aten::gather",
        ([1000000, 64], [], [8000000, 64]),
        ("float", "Scalar", "long int"),
    ),
    "t": Drawn("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_cublas", "aten::mm").given(
        [8192, 8192], [8192, 512]
    ),
    "u": Drawn("some_kernel_nobody_knows", "my::op"),
}
# More of them, for jobs drawn at random: every class of kernels, of little and of much work.
DRAWN_KERNELS: dict[str, Drawn] = {
    "a": Drawn(
        "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>",
        "aten::_flash_attention_forward",
    ).given([8, 4096, 16, 128], [8, 4096, 16, 128], [8, 4096, 16, 128], dtype="c10::BFloat16"),
    "c": Drawn("sm80_xmma_fprop_implicit_gemm_tf32f32", "aten::cudnn_convolution").given(
        [32, 64, 56, 56], [64, 64, 3, 3]
    ),
    "s": Drawn("void softmax_warp_forward<float, float, float, 10, false, false>", "aten::_softmax").given(
        [64, 512]
    ),
    "r": Drawn("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "aten::sum").given(
        [1, 2]
    ),
    "z": Drawn("Memset (Device)", "aten::zero_", kind=Kind.MEMSET, nbytes=4096),
    "o": Drawn("multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>", "aten::_fused_adamw_").given([1024]),
}
HOST: dict[str, tuple[Kind, str]] = {
    "n": (Kind.OP, "aten::view"),
    "e": (Kind.RUNTIME, "cudaDeviceSynchronize"),
    "d": (Kind.ANNOTATION, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "m": (Kind.RUNTIME, "cudaMalloc"),
    "f": (Kind.RUNTIME, "cudaFree"),
    "j": (Kind.ANNOTATION, "entire_frame_compile_data: fn_name=_compile.compile_inner, compile_id=0/3"),
    "g": (Kind.PYTHON, "<built-in function collect>"),
    "R": (Kind.OP, "Torch-Compiled Region: 0/0"),
    "G": (Kind.ANNOTATION, "## Call CompiledFxGraph abc ##"),
    "A": (Kind.OP, "autograd::engine::evaluate_function: CheckpointFunctionBackward"),
    "z": (Kind.ANNOTATION, "Optimizer.step#AdamW.step"),
    "y": (Kind.PYTHON, "train.py(88): main"),
    "q": (Kind.ANNOTATION, "gloo:all_reduce"),
}
LAUNCHERS = {"h": "c", "b": "s"}  # device letter -> host letter; all others are launched by an `o`


@dataclass
class _Sheet:
    """Rows gathered as they are drawn, then turned into columns."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    inputs: dict[bytes, int] = field(default_factory=dict)
    extras: dict[bytes, int] = field(default_factory=dict)

    def add(self, kind: Kind, name: str, start: float, end: float, **columns: int) -> None:
        index = self.names.setdefault(name, len(self.names))
        self.rows.append({"kind": kind, "name": index, "start": start, "end": end, **columns})

    @staticmethod
    def keep(table: dict[bytes, int], value: dict[str, Any]) -> int:
        return table.setdefault(msgspec.json.encode(value), len(table)) if value else -1

    def columns(self) -> Events:
        found = {}
        for name, dtype in COLUMN_TYPES.items():
            default = 0 if name in ("process", "thread") else -1
            found[name] = np.array([row.get(name, default) for row in self.rows], dtype)
        return Events(**found)


def sketch(
    cpu: str = "",
    gpu: str = "",
    steps: str | None = None,
    kernels: dict[str, Drawn] | None = None,
    host: dict[str, tuple[Kind, str]] | None = None,
    device: str = H200,
    rank: int | None = None,
    us: float = 1000,
) -> Timeline:
    """A timeline drawn as text. `us`: microseconds a character. Without `steps` the drawing is one step."""
    unit = int(us * 1000)
    known, places = {**KERNELS, **(kernels or {})}, {**HOST, **(host or {})}
    sheet = _Sheet()
    rows = list(_device_rows(gpu, known))
    waiting = {letter: [row for row in rows if _launcher(row[0]) == letter] for letter in "ocs"}
    drawn = [
        (start, depth, letter, end)
        for depth, line in enumerate(_lines(cpu))
        for letter, start, end in _runs(line, "on")
    ]
    for start, _, letter, end in sorted(drawn):
        _draw_host(sheet, letter, start * unit, end * unit, waiting, known, places, unit)
    for letter, stream, start, end, correlation in rows:
        one = known[letter.lower()]
        columns = {
            "device": 0,
            "stream": stream,
            "correlation": correlation[0],
            "nbytes": one.nbytes,
            "thread": stream,
        }
        columns["extra"] = sheet.keep(sheet.extras, one.extra)
        sheet.add(one.kind, one.kernel, start * unit, end * unit, **columns)
    for number, (start, end) in enumerate(_step_ranges(steps, cpu, gpu)):
        sheet.add(Kind.ANNOTATION, f"ProfilerStep#{number}", start * unit, end * unit)
    return _timeline(sheet, device, rank)


def _lines(drawing: str) -> list[str]:
    return [line for line in drawing.split("\n") if line.strip(" .")]


def _runs(line: str, each: str = "") -> Iterator[tuple[str, int, int]]:
    """Letters with where they begin and end; letters in `each` are never joined."""
    at = 0
    for letter, group in groupby(line):
        length = len(list(group))
        if letter not in " .":
            size = 1 if letter in each else length
            for start in range(at, at + length, size):
                yield letter, start, start + size
        at += length


def _device_rows(gpu: str, known: dict[str, Drawn]) -> Iterator[tuple[str, int, int, int, list[int]]]:
    """(letter, stream, start, end, its correlation id, filled in when something launches it), by start."""
    found = [
        (letter, 7 + at, start, end)
        for at, line in enumerate(_lines(gpu))
        for letter, start, end in _runs(line)
    ]
    for letter, stream, start, end in sorted(found, key=lambda one: (one[2], one[1])):
        assert letter.lower() in known, f"no device letter {letter!r}"
        yield letter, stream, start, end, [-1]


def _launcher(letter: str) -> str:
    return LAUNCHERS.get(letter.lower(), "o")


def _draw_host(
    sheet: _Sheet,
    letter: str,
    start: int,
    end: int,
    waiting: dict[str, list[Any]],
    known: dict[str, Drawn],
    places: dict[str, tuple[Kind, str]],
    unit: int,
) -> None:
    if letter not in waiting:
        kind, name = places[letter]
        sheet.add(kind, name, start, end)
        return
    row = waiting[letter].pop(0) if waiting[letter] else None
    drawn = known[row[0].lower()] if row is not None else Drawn("")
    correlation = len(sheet.rows) + 1 if row is not None else -1
    if row is not None:
        row[4][0] = correlation
    given = {"dims": drawn.dims, "types": drawn.types, "concrete": drawn.concrete}
    inputs = sheet.keep(sheet.inputs, given if drawn.dims else {})
    op = {"o": drawn.op, "c": "aten::copy_", "s": "aten::item"}[letter]
    sheet.add(Kind.OP, op, start, end, inputs=inputs, sequence=drawn.sequence)
    if drawn.within:
        sheet.add(Kind.ANNOTATION, drawn.within, start, end)
    if letter == "s":
        sheet.add(Kind.OP, "aten::_local_scalar_dense", start, end)
        if row is not None:
            sheet.add(Kind.RUNTIME, "cudaMemcpyAsync", start, start + unit // 100, correlation=correlation)
        sheet.add(Kind.RUNTIME, "cudaStreamSynchronize", start + unit // 100, end)
        return
    call = "cudaMemcpyAsync" if drawn.kind == Kind.MEMCPY or letter == "c" else "cudaLaunchKernel"
    # A blocking copy's call lasts as long as it waits; a launch returns at once.
    sheet.add(
        Kind.RUNTIME, call, start, end if letter == "c" else start + unit // 100, correlation=correlation
    )


def _step_ranges(steps: str | None, cpu: str, gpu: str) -> list[tuple[int, int]]:
    width = max((len(line) for line in [*cpu.split("\n"), *gpu.split("\n"), steps or ""]), default=0)
    marks = [at for at, letter in enumerate(steps or "|") if letter == "|"]
    return list(zip(marks, [*marks[1:], width], strict=True))


def _timeline(sheet: _Sheet, device: str, rank: int | None) -> Timeline:
    return Timeline(
        path="sketch",
        events=sheet.columns(),
        names=list(sheet.names),
        processes=["python"],
        threads=[(0, "1")],
        details=Details(inputs=list(sheet.inputs), extra=list(sheet.extras)),
        header=Header(
            devices=(DeviceProperties(0, device),) if device else (), rank=rank, shapes=bool(sheet.inputs)
        ),
        quality=ReadQuality(),
    )


def hosts_own(timeline: Timeline) -> Timeline:
    """The same without its device rows and the calls that launched them."""
    kept = np.flatnonzero(timeline.events.is_kind(Kind.OP, Kind.ANNOTATION))
    return replace(timeline, events=timeline.events.take(kept))


def facts_of(
    timeline: Timeline, step_ms: float | None = None, ceilings: Ceilings | None = None, **measured: Any
) -> Facts:
    """The facts of a drawn timeline, on its device's ceilings; `measured` fills fields of the Rank."""
    names = [one.name for one in timeline.header.devices]
    ceilings = ceilings or (table_ceilings(names[0]) if names else UNKNOWN_CEILINGS)
    rank = Rank(timeline.header.rank or 0, timeline, **measured)
    timed = rank.step_times
    seconds = step_ms / 1e3 if step_ms is not None else timed.mean if timed is not None else None
    source = "given" if step_ms is not None else "measured" if timed is not None else "trace"
    found = establish(Run("torch-trace", (timeline.path,), (rank,)), rank, ceilings, seconds, source)
    assert found is not None, "the drawing has no device row"
    return found


class Drawing(msgspec.Struct, frozen=True):
    """Three equal steps of any host, for property tests: prints as text.

    The device runs each kernel when it has been launched and the one before it is done, `delay` later.
    """

    cpu: str
    kernels: str
    lengths: tuple[tuple[int, int], ...]  # (delay, length) of one kernel after the other, over and over
    us: int

    @property
    def timeline(self) -> Timeline:
        return self.on(H200)

    def on(self, device: str) -> Timeline:
        """The same on a device of this name; empty: it has none."""
        cpu = f"o{self.cpu}" * 3
        letters = {"o": self.kernels, "c": "h", "s": "b"}
        free, drawn = 0, list(" " * 500)
        for at, (letter, start, _) in enumerate(run for run in _runs(cpu, "on") if run[0] in letters):
            delay, length = self.lengths[at % len(self.lengths)]
            begin = max(start, free) + delay
            free = begin + length
            kernel = letters[letter][at % len(letters[letter])]
            drawn[begin:free] = (kernel if at % 2 else kernel.upper()) * length
        steps = f"|{' ' * len(self.cpu)}" * 3
        # Pageable memory moves at 9 GB/s, whatever a character stands for.
        known = {**DRAWN_KERNELS, "h": replace(KERNELS["h"], nbytes=9_000 * self.us)}
        return sketch(cpu, "".join(drawn).rstrip(), steps, known, device=device, us=self.us)

    @property
    def facts(self) -> Facts:
        return facts_of(self.timeline)


DRAWINGS = st.builds(
    Drawing,
    cpu=st.text("oosncfmd.. ", min_size=4, max_size=14),
    kernels=st.sampled_from(["k", "m", "km", "kmn"]),
    lengths=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=5).map(tuple),
    us=st.sampled_from([10, 100, 1000]),
)
