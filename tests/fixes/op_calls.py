"""Jobs written down call by call: ops inside ops with what they were given, and the kernels they launch."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.model.events import Kind
from sketch import _Sheet, _timeline, facts_of

CALL_NS = 2_000  # that the host takes for an op or a launch
STEPS = 3
LINK_BYTES_PER_NS = 12
LONG, FLOAT, HALF = "long int", "float", "c10::BFloat16"


class Call(msgspec.Struct, frozen=True):
    """One op: (dims, type) of its tensors and the text of its numbers, in their order."""

    name: str
    given: tuple[Any, ...] = ()
    inside: tuple[Call, ...] = ()
    kernels: tuple[tuple[str, float], ...] = ()  # with their lengths in us
    sequence: int = -1
    backward: bool = False
    waits: bool = False  # for the device, at its end

    @property
    def inputs(self) -> dict[str, Any]:
        tensors = [one if isinstance(one, tuple) else ([], "Scalar") for one in self.given]
        return {
            "dims": [list(dims) for dims, _ in tensors],
            "types": [kind for _, kind in tensors],
            "concrete": ["" if isinstance(one, tuple) else one for one in self.given],
        }


class _Writer:
    def __init__(self) -> None:
        self.sheet = _Sheet()
        self.host = 0.0
        self.device = 0.0
        self.launched = 0
        self.nodes = 0  # of autograd's graph, in the steps before this one

    def call(self, one: Call, thread: int = 0) -> None:
        thread = 1 if one.backward else thread
        place, begins = len(self.sheet.rows), self.host
        inputs = self.sheet.keep(self.sheet.inputs, one.inputs if one.given else {})
        sequence = one.sequence + self.nodes if one.sequence >= 0 else -1
        self.sheet.add(Kind.OP, one.name, begins, 0, inputs=inputs, sequence=sequence, thread=thread)
        self.host += CALL_NS
        for inside in one.inside:
            self.call(inside, thread)
        for name, us in one.kernels:
            self._launch(name, us * 1000, thread)
        if one.waits:
            ends = max(self.host + CALL_NS, self.device)
            self.sheet.add(Kind.RUNTIME, "cudaStreamSynchronize", self.host, ends, thread=thread)
            self.host = ends
        self.host += CALL_NS
        self.sheet.rows[place]["end"] = self.host

    def _launch(self, name: str, length: float, thread: int) -> None:
        self.launched += 1
        ends = self.host + CALL_NS
        self.sheet.add(
            Kind.RUNTIME, "cudaLaunchKernel", self.host, ends, correlation=self.launched, thread=thread
        )
        begins = max(self.device, ends)
        self.host, self.device = ends, begins + length
        columns = {"device": 0, "stream": 7, "correlation": self.launched, "thread": 7}
        kind = Kind.KERNEL
        if "HtoD" in name:
            kind, columns["nbytes"] = Kind.MEMCPY, int(length * LINK_BYTES_PER_NS)
        self.sheet.add(kind, name, begins, self.device, **columns)


def job_of(*calls: Call, device: str = "NVIDIA H200") -> Facts:
    """Three steps of these calls; the host waits for the device at the end of each."""
    writer = _Writer()
    for number in range(STEPS):
        begins = writer.host
        for one in calls:
            writer.call(one)
        ends = max(writer.host, writer.device)
        writer.sheet.add(Kind.RUNTIME, "cudaDeviceSynchronize", writer.host, ends)
        writer.host, writer.nodes = ends + CALL_NS, writer.nodes + 10
        writer.sheet.add(Kind.ANNOTATION, f"ProfilerStep#{number}", begins, writer.host)
    timeline = _timeline(writer.sheet, device, None)
    return facts_of(replace(timeline, threads=[(0, "1"), (0, "2")]))


# -- x[idx] --------------------------------------------------------------------------------------------


def taking_rows(
    table: tuple[int, ...] = (120_000, 128),
    index: tuple[int, ...] = (2_000_000,),
    kind: str = FLOAT,
    ranges: tuple[tuple[int, int], ...] = ((120_000, 128),),
    gradient: tuple[int, ...] | None = None,
    adds_us: float = 13_000.0,
    device: str = "NVIDIA H200",
) -> Facts:
    """The gradient of `x[idx]`. `ranges`: of each index the length of its dimension, and its stride."""
    put = Call(
        "aten::_index_put_impl_",
        ((table, kind), ((), ""), (gradient or (*index, *table[1:]), kind), "True", "True"),
        tuple(
            Call(
                name, ((index, LONG), str(number)), kernels=(("vectorized_elementwise_kernel<2, long>", 8.0),)
            )
            for length, stride in ranges
            for name, number in (("aten::remainder", length), ("aten::mul", stride))
        ),
        (
            ("cub::DeviceRadixSortOnesweepKernel<long>", 100.0),
            ("indexing_backward_kernel<float, 4>", adds_us),
        ),
    )
    node = Call("IndexBackward0", sequence=1, backward=True, inside=(put,))
    taken = Call("aten::index", ((table, kind), ((), "")), sequence=1, kernels=(("gather_kernel", 1200.0),))
    engine = Call(
        "autograd::engine::evaluate_function: IndexBackward0", inside=(node,), sequence=1, backward=True
    )
    return job_of(taken, engine, device=device)


# -- one_hot -------------------------------------------------------------------------------------------


def one_hot_rows(n: int = 32_768, k: int = 4096, d: int = 128, *more: Call, grows: bool = False) -> Facts:
    """Rows looked up by a product, then of each class the sum and how many there are; then `more`."""
    hot, long_hot = ((n, k), FLOAT), ((n, k), LONG)
    full = n * k / 1e6
    ones = Call("aten::scatter_", (long_hot, "-1", ((n, 1), LONG), "1"), kernels=(("scatter_kernel", 5.0),))
    zeros = Call("aten::zeros", (f"[{n}, {k}]", "4"), kernels=(("fill_kernel<long>", 1.7 * full),))
    copied = Call("aten::copy_", (hot, long_hot, "False"), kernels=(("copy_kernel<float>", 3.4 * full),))
    laid_out = Call("aten::empty_strided", (f"[{n}, {k}]",))
    product = (("sm90_xmma_gemm_f32f32_tf32f32_f32", full),)
    looked_up = Call("aten::mm", (hot, ((k, d), FLOAT)), kernels=product, sequence=1)
    engine = ()
    if grows:
        back = Call("aten::mm", (((k, n), FLOAT), ((n, d), FLOAT)), kernels=product)
        node = Call("MmBackward0", sequence=1, inside=(back,), backward=True)
        around = "autograd::engine::evaluate_function: MmBackward0"
        engine = (Call(around, inside=(node,), sequence=1, backward=True),)
    return job_of(
        Call("aten::one_hot", (((n,), LONG), str(k)), (zeros, ones)),
        Call("aten::to", (long_hot, "6"), (Call("aten::_to_copy", (long_hot, "6"), (laid_out, copied)),)),
        Call("aten::matmul", (hot, ((k, d), FLOAT)), (looked_up,)),
        Call("aten::sum", (hot, "[0]", "False"), kernels=(("reduce_kernel", full),)),
        Call("aten::mm", (((k, n), FLOAT), ((n, d), FLOAT)), kernels=product),
        *more,
        *engine,
    )


# -- sort ----------------------------------------------------------------------------------------------


def sorting(
    *reads: Call,
    dims: tuple[int, ...] = (16, 4096, 4096),
    name: str = "aten::argsort",
    axis: str = "-1",
    stable: str = "False",
    descending: str = "True",
    sorts_us: float = 6500.0,
) -> Facts:
    """A sort, then what reads it."""
    given = (dims, FLOAT)
    sort = Call(
        "aten::sort",
        (given, stable, axis, descending),
        (Call("aten::copy_", (given, given, "False"), kernels=(("Memcpy DtoD", 500.0),)),),
        (("radixSortKVInPlace<2, -1, 128, 32, float, long>", sorts_us),),
    )
    product = Call(
        "aten::mm", (((8192, 8192), FLOAT), ((8192, 512), FLOAT)), kernels=(("sm80_xmma_gemm", 2000.0),)
    )
    return job_of(product, Call(name, (given, axis, descending), (sort,)), *reads)


def head(
    few: int, dims: tuple[int, ...] = (16, 4096, 4096), kind: str = LONG, axis: int = -1, first: int = 0
) -> Call:
    return Call("aten::slice", ((dims, kind), str(axis), str(first), str(first + few), "1"))
