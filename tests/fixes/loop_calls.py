"""Jobs for rewrites of pairs, loops, copies and casts, and the same where those do not apply."""

from __future__ import annotations

from findwall.facts.facts import Facts
from findwall.model.events import Kind
from fixes.op_calls import FLOAT, HALF, Call, job_of
from sketch import Drawn, facts_of, sketch

PASS = "vectorized_elementwise_kernel<4, float>"
PRODUCT = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_cublas"
ENGINE = "autograd::engine::evaluate_function: "


def filler(us: float = 500.0) -> Call:
    """Work of its own, that nothing here changes."""
    return Call("aten::mm", (((1024, 1024), FLOAT), ((1024, 1024), FLOAT)), kernels=((PRODUCT, us),))


# -- pairs ---------------------------------------------------------------------------------------------


def pairs(
    *more: Call,
    n: int = 384,
    m: int = 65_536,
    d: int = 24,
    power: str = "2",
    us: float = 900.0,
    square: str = "aten::pow",
) -> Facts:
    """Differences of all pairs, squared and summed; the gradient of the squares; then `more`."""
    full = ((n, m, d), FLOAT)
    back = Call("aten::mul", (full, full), kernels=((PASS, us),))
    node = Call("PowBackward0", sequence=2, backward=True, inside=(back,))
    return job_of(
        filler(),
        Call(
            "aten::sub",
            (((n, 1, d), FLOAT), ((1, m, d), FLOAT), "1"),
            kernels=((PASS, us),),
            sequence=1,
        ),
        Call(square, (full, power if square == "aten::pow" else full), kernels=((PASS, us),), sequence=2),
        Call("aten::sum", (full, "[-1]", "False"), kernels=(("reduce_kernel<512>", us),), sequence=3),
        *more,
        Call(f"{ENGINE}PowBackward0", inside=(node,), sequence=2, backward=True),
    )


def summed(*more: Call, axis: int = 1, across: int = 256, us: float = 900.0) -> Facts:
    """Products of all pairs of channels at each place, added up over the places, with their gradients."""
    full = ((64, 1024, 256, across), FLOAT)
    sides = ((64, 1024, 256, 1), FLOAT), ((64, 1024, 1, across), FLOAT)
    back = Call("aten::mul", (full, full), kernels=((PASS, us),))
    node = Call("MulBackward0", sequence=1, backward=True, inside=(back,))
    return job_of(
        filler(),
        Call("aten::mul", sides, kernels=((PASS, us),), sequence=1),
        Call("aten::sum", (full, f"[{axis}]", "False"), kernels=(("reduce_kernel<512>", us),), sequence=2),
        *more,
        Call(f"{ENGINE}MulBackward0", inside=(node,), sequence=1, backward=True),
    )


# -- gradients, one by one -----------------------------------------------------------------------------


def checking(of_gradients: bool = True, parameters: int = 20) -> Facts:
    """A loop that reads the norm of each gradient, or of as many activations."""
    shapes = [(256 + 8 * number, 256) for number in range(parameters)]
    wanted = shapes if of_gradients else [(32, 7 + number) for number in range(parameters)]
    given = [
        Call(
            f"{ENGINE}torch::autograd::AccumulateGrad",
            inside=(Call("torch::autograd::AccumulateGrad", ((shape, FLOAT),)),),
            backward=True,
        )
        for shape in shapes
    ]
    rounds = [
        one
        for shape in wanted
        for one in (
            Call("aten::isnan", ((shape, FLOAT),), kernels=((PASS, 2.0),)),
            Call("aten::linalg_vector_norm", ((shape, FLOAT), "2"), kernels=(("reduce_kernel", 3.0),)),
            Call("aten::item", (((), FLOAT),), waits=True, kernels=(("Memcpy DtoH", 1.0),)),
        )
    ]
    return job_of(filler(), *given, *rounds)


# -- over time -----------------------------------------------------------------------------------------


def over_time(rounds: int = 64, carried: bool = True, then: str = "aten::add") -> Facts:
    """acc = x[t] + a[t] * acc; or, where nothing is carried, x[t] + a[t] * b[t]."""
    part, whole = ((512,), FLOAT), ((rounds, 512), FLOAT)
    picks = 2 if carried else 3
    calls = []
    for t in range(rounds):
        calls += [Call("aten::select", (whole, "0", str(t)))] * picks
        calls.append(Call("aten::mul", (part, part), kernels=((PASS, 2.0),)))
        calls.append(Call(then, (part, part, "1"), kernels=((PASS, 2.0),)))
    return job_of(filler(50.0), *calls, Call("aten::stack", kernels=((PASS, 5.0),)))


# -- copies --------------------------------------------------------------------------------------------


def uploading(dims: tuple[int, ...] = (96, 3, 320, 320), kind: str = FLOAT) -> Facts:
    """Most of a step is a copy to the device."""
    copy = Drawn(
        "Memcpy HtoD (Pageable -> Device)",
        "aten::copy_",
        (list(dims), list(dims), []),
        (kind, kind, "Scalar"),
        kind=Kind.MEMCPY,
        nbytes=118_000_000,
    )
    return facts_of(sketch("ccccccccoo" * 3, "hhhhhhhhkK" * 3, "|         " * 3, kernels={"h": copy}))


def made_on_the_host(maker: str = "aten::normal_", between: tuple[Call, ...] = ()) -> Facts:
    """A tensor made by the host, touched by `between`, and copied."""
    dims = ((64, 1_000_000), FLOAT)
    return job_of(
        filler(),
        Call("aten::randn", ("[64, 1000000]",), (Call(maker, (dims, "0.", "1.")),)),
        *between,
        Call("aten::copy_", (dims, dims, "False"), kernels=(("Memcpy HtoD (Pageable -> Device)", 20_000.0),)),
    )


# -- products ------------------------------------------------------------------------------------------


def three(n: int = 4096, k: int = 2048, m: int = 8192, p: int = 8, *more: Call) -> Facts:
    """(a @ b) @ c, then `more`."""
    first = Call("aten::mm", (((n, k), FLOAT), ((k, m), FLOAT)), kernels=((PRODUCT, 2600.0),))
    second = Call("aten::mm", (((n, m), FLOAT), ((m, p), FLOAT)), kernels=((PRODUCT, 40.0),))
    return job_of(
        filler(), Call("aten::relu", (((9,), FLOAT),), kernels=((PASS, 2.0),)), first, second, *more
    )


# -- casts ---------------------------------------------------------------------------------------------


def casting(rows: int = 16, trains: bool = False) -> Facts:
    """A layer whose weight is converted before it is used."""
    width = 8192
    weight = ((width, width), FLOAT)
    cast = Call(
        "aten::to",
        (weight, "15"),
        (Call("aten::_to_copy", (weight, "15"), kernels=((PASS, 90.0),)),),
    )
    layer = Call(
        "aten::linear",
        (((rows, width), HALF), ((width, width), HALF), ((), "")),
        kernels=(("nvjet_sm90_tst_64x8_64x16_NNT", 40.0),),
        sequence=1 if trains else -1,
    )
    node = Call("LinearBackward0", sequence=1, backward=True, inside=(filler(80.0),))
    engine = (Call(f"{ENGINE}LinearBackward0", inside=(node,), sequence=1, backward=True),) if trains else ()
    return job_of(cast, layer, *engine)


def casting_inside(shares_shape: bool = False) -> Facts:
    """The same under autocast: the layer converts its weight itself. Or what it is given has its shape."""
    width = 8192
    weight = ((width, width), FLOAT)
    copied = Call("aten::_to_copy", (weight, "15"), kernels=((PASS, 90.0),))
    narrow = ((width, width), HALF)
    product = Call(
        "aten::addmm", (((16, width), HALF), narrow), kernels=(("nvjet_sm90_tst_64x8_64x16", 40.0),)
    )
    given = ((width if shares_shape else 16, width), HALF)
    cast = Call("aten::to", (weight, "15"), (copied,))
    return job_of(Call("aten::linear", (given, weight, ((), "")), (cast, product)))


# -- masks ---------------------------------------------------------------------------------------------


def put_back(picked: int = 500_000, between: str = "aten::mul") -> Facts:
    """y[mask] = f(x[mask])."""
    n = 1_000_000
    x, few = ((n,), FLOAT), ((picked,), FLOAT)
    asks = Call("aten::nonzero", (((n,), "bool"),), kernels=(("cub::DeviceSelect", 20.0),), waits=True)
    inner = Call(
        "aten::_index_put_impl_", (x, ((), ""), few), (asks,), (("index_elementwise_kernel", 900.0),)
    )
    return job_of(
        filler(),
        Call("aten::index", (x, ((), "")), (asks,), (("index_elementwise_kernel", 900.0),)),
        Call(between, (few,), kernels=((PASS, 10.0),)),
        Call("aten::index_put_", (x, ((), ""), few), (inner,)),
        filler(),
    )


def masking(picked: int = 900_000, reads: str = "aten::mean") -> Facts:
    """x[mask], and what reads it."""
    n, width = 1_000_000, 64
    x, few = ((n, width), FLOAT), ((picked, width), FLOAT)
    asks = Call("aten::nonzero", (((n,), "bool"),), kernels=(("cub::DeviceSelect", 20.0),), waits=True)
    picks = Call("aten::index", (x, ((), "")), (asks,), (("index_elementwise_kernel", 900.0),), sequence=1)
    put = Call("aten::_index_put_impl_", (x, ((), ""), few), kernels=(("indexing_backward_kernel", 4000.0),))
    node = Call("IndexBackward0", sequence=1, backward=True, inside=(put,))
    kernel = PRODUCT if reads == "aten::mm" else "reduce_kernel"
    more = (((width, width), FLOAT),) if reads == "aten::mm" else ()
    return job_of(
        filler(),
        picks,
        Call(reads, (few, *more), kernels=((kernel, 100.0),)),
        filler(),
        Call(f"{ENGINE}IndexBackward0", inside=(node,), sequence=1, backward=True),
    )
