"""Measure how near its floor a GPU runs each class of kernel, and what the host pays for each kind of launch.

    python benchmarks/curves.py --out curves.json [--only matmul,conv,attention,memory,optimizer,fft,host]
    python benchmarks/curves.py --ship curves.json [more.json]   writes what findwall reads, from what was
                                                                 measured: parts of one GPU in several files

Run it on an idle GPU; it takes about two minutes. Times are medians with the L2 cache flushed before each
run, as in a real step, where the data of one kernel is seldom still there. What `findwall` ships of it
(`src/findwall/replay/curves/`) is the efficiency of each class by the size of its floor, and the host's
costs in units of the launch cost that `findwall ceilings` measures.
"""

# ruff: noqa: B023 (what is timed is called before its loop goes on)

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

BF16, FP32 = torch.bfloat16, torch.float32
FLUSH: list[torch.Tensor] = []


def device_us(run: Callable[[], object], repeats: int = 9) -> float:
    """Median device microseconds of one call, the cache flushed before each."""
    run()
    run()
    if not FLUSH:
        FLUSH.append(torch.empty(256 << 20, dtype=torch.int32, device="cuda"))
    marks = []
    for _ in range(repeats):
        FLUSH[0].zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        marks.append((begin, end))
    torch.cuda.synchronize()
    # Two events around nothing are about 2 us apart where the host is ahead.
    return statistics.median(1e3 * begin.elapsed_time(end) for begin, end in marks)


def host_us(run: Callable[[], object], calls: int = 200, blocks: int = 7) -> float:
    """Median host microseconds of one call, the device kept free of a queue."""
    for _ in range(20):
        run()
    found = []
    for _ in range(blocks):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        found.append((time.perf_counter() - begin) / calls * 1e6)
        torch.cuda.synchronize()
    return statistics.median(found)


def tensor(*dims: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(dims, device="cuda").to(dtype)


# -- kernels ---------------------------------------------------------------------------------------

MATMULS = (
    *((n, n, n) for n in (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)),
    *((8192, 768, n) for n in (768, 2304, 3072, 50304)),
    (8192, 3072, 768),
    (16384, 768, 50304),
    (768, 8192, 3072),
    (768, 16384, 50304),
    (50304, 8192, 768),
    (8192, 2048, 5632),
    (2048, 8192, 5632),
    (4096, 4096, 11008),
    (512, 1024, 1024),
    (2048, 512, 512),
    (64, 1024, 4096),
    (256, 4096, 4096),
    (1024, 64, 1024),
    (65536, 256, 256),
    (65536, 64, 256),
    (256, 65536, 256),
    (12800, 512, 2048),
)
BATCHED = (
    (96, 1024, 64, 1024),
    (96, 1024, 1024, 64),
    (192, 512, 64, 512),
    (32, 2048, 128, 2048),
    (512, 64, 64, 64),
)


def matmuls() -> Iterator[dict[str, Any]]:
    formats = {"bf16": (BF16, False), "tf32": (FP32, True), "fp32": (FP32, False)}
    for name, (dtype, allow) in formats.items():
        torch.backends.cuda.matmul.allow_tf32 = allow
        for m, k, n in MATMULS:
            if name == "fp32" and m * k * n > 2e11:
                continue
            a, b = tensor(m, k, dtype=dtype), tensor(n, k, dtype=dtype)
            us = device_us(lambda: F.linear(a, b), 5 if name == "fp32" else 9)
            moved = (m * k + n * k + m * n) * a.element_size()
            yield {
                "class": "matmul",
                "format": name,
                "dims": [m, k, n],
                "flops": 2 * m * k * n,
                "bytes": moved,
                "us": us,
            }
        for batch, m, k, n in BATCHED:
            a, b = tensor(batch, m, k, dtype=dtype), tensor(batch, k, n, dtype=dtype)
            us = device_us(lambda: torch.bmm(a, b), 5)
            moved = batch * (m * k + n * k + m * n) * a.element_size()
            row = {"class": "matmul", "format": name, "dims": [batch, m, k, n]}
            yield row | {"flops": 2 * batch * m * k * n, "bytes": moved, "us": us}
    torch.backends.cuda.matmul.allow_tf32 = False


# Dimensions that lie on no 16 bytes.
ODD_MATMULS = (
    (8192, 768, 50257),
    (16384, 768, 50257),
    (50257, 8192, 768),
    (8192, 50257, 768),
    (4096, 1001, 4096),
    (4096, 4096, 4099),
    (2047, 2047, 2047),
    (8192, 333, 1024),
)


def odd_matmuls() -> Iterator[dict[str, Any]]:
    for name, (dtype, allow) in {"bf16": (BF16, False), "tf32": (FP32, True)}.items():
        torch.backends.cuda.matmul.allow_tf32 = allow
        for m, k, n in ODD_MATMULS:
            a, b = tensor(m, k, dtype=dtype), tensor(k, n, dtype=dtype)
            moved = (m * k + n * k + m * n) * a.element_size()
            row = {"class": "matmul", "odd": True, "format": name, "dims": [m, k, n]}
            yield row | {"flops": 2 * m * k * n, "bytes": moved, "us": device_us(lambda: torch.mm(a, b), 5)}
    torch.backends.cuda.matmul.allow_tf32 = False


# batch, channels in, out, image, kernel, stride, groups
CONVOLUTIONS = (
    (128, 3, 64, 224, 7, 2, 1),
    (128, 64, 64, 56, 1, 1, 1),
    (128, 64, 64, 56, 3, 1, 1),
    (128, 64, 256, 56, 1, 1, 1),
    (128, 256, 64, 56, 1, 1, 1),
    (128, 128, 128, 28, 3, 1, 1),
    (128, 256, 128, 56, 1, 1, 1),
    (128, 256, 512, 56, 1, 2, 1),
    (128, 256, 256, 14, 3, 1, 1),
    (128, 1024, 256, 14, 1, 1, 1),
    (128, 512, 512, 7, 3, 1, 1),
    (128, 512, 2048, 7, 1, 1, 1),
    (32, 64, 64, 56, 3, 1, 1),
    (32, 256, 256, 14, 3, 1, 1),
    (32, 128, 128, 128, 3, 1, 1),
    (8, 320, 320, 64, 3, 1, 1),
    (8, 64, 64, 256, 3, 1, 1),
    (64, 96, 96, 56, 7, 1, 96),
    (64, 3, 768, 224, 16, 16, 1),
)


def convolutions() -> Iterator[dict[str, Any]]:
    formats = {"bf16": (BF16, True), "tf32": (FP32, True), "fp32": (FP32, False)}
    for layout in (torch.channels_last, torch.contiguous_format):
        for name, (dtype, allow) in formats.items():
            if name == "fp32" and layout == torch.channels_last:
                continue
            torch.backends.cudnn.allow_tf32 = allow
            for batch, inside, outside, size, kernel, stride, groups in CONVOLUTIONS:
                x = tensor(batch, inside, size, size, dtype=dtype).to(memory_format=layout).requires_grad_()
                conv = nn.Conv2d(
                    inside,
                    outside,
                    kernel,
                    stride,
                    kernel // 2 if stride < kernel else 0,
                    groups=groups,
                    bias=False,
                )
                conv = conv.to("cuda", dtype).to(memory_format=layout)
                y = conv(x)
                g = torch.randn_like(y)
                flops = 2 * y.numel() * inside // groups * kernel * kernel
                moved = (x.numel() + y.numel() + conv.weight.numel()) * x.element_size()
                back = torch.ops.aten.convolution_backward
                more = ([stride] * 2, list(conv.padding), [1, 1], False, [0, 0], groups)  # type: ignore[arg-type]
                passes = {
                    "forward": lambda: conv(x),
                    "input": lambda: back(g, x, conv.weight, None, *more, [True, False, False]),
                    "weight": lambda: back(g, x, conv.weight, None, *more, [False, True, False]),
                }
                with torch.no_grad():
                    for which, run in passes.items():
                        if which == "input" and inside == 3:
                            continue
                        yield {
                            "class": "conv",
                            "format": name,
                            "layout": "nhwc" if layout == torch.channels_last else "nchw",
                            "pass": which,
                            "dims": [batch, inside, outside, size, kernel, stride, groups],
                            "flops": flops,
                            "bytes": moved,
                            "us": device_us(run, 5),
                        }
    torch.backends.cudnn.allow_tf32 = True


# batch, heads, length, width, causal
ATTENTIONS = (
    (8, 12, 1024, 64, True),
    (16, 12, 1024, 64, True),
    (8, 12, 2048, 64, True),
    (4, 16, 2048, 128, True),
    (2, 32, 4096, 128, True),
    (1, 32, 8192, 128, True),
    (64, 12, 197, 64, False),
    (32, 16, 256, 64, False),
    (16, 16, 512, 64, False),
    (8, 16, 1024, 64, False),
    (4, 8, 4096, 64, False),
    (32, 8, 128, 32, False),
)


def attentions() -> Iterator[dict[str, Any]]:
    for name, dtype in {"bf16": BF16, "fp32": FP32}.items():
        for batch, heads, length, width, causal in ATTENTIONS:
            q, k, v = (tensor(batch, heads, length, width, dtype=dtype).requires_grad_() for _ in range(3))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            g = torch.randn_like(out)
            flops = 4 * batch * heads * length * length * width // (2 if causal else 1)
            moved = 4 * q.numel() * q.element_size()
            row = {
                "class": "attention",
                "format": name,
                "dims": [batch, heads, length, width],
                "causal": causal,
            }
            with torch.no_grad():
                us = device_us(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal), 5)
            yield row | {"pass": "forward", "flops": flops, "bytes": moved, "us": us}
            us = device_us(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True), 5)
            yield row | {"pass": "backward", "flops": 5 * flops // 2, "bytes": 2 * moved, "us": us}
            if causal or length > 2048:
                continue
            bias = tensor(heads, length, length, dtype=dtype).expand(batch, -1, -1, -1)
            with torch.no_grad():
                us = device_us(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias), 5)
            yield row | {"pass": "forward", "bias": True, "flops": flops, "bytes": moved, "us": us}
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            us = device_us(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True), 5)
            row["bias"] = True
            yield row | {"pass": "backward", "flops": 5 * flops // 2, "bytes": 2 * moved, "us": us}


# -- passes over memory -------------------------------------------------------------------------------


def memory() -> Iterator[dict[str, Any]]:
    for power in range(12, 31, 2):
        x = torch.empty(2**power // 4, device="cuda")
        y = torch.empty_like(x)
        yield {"class": "pointwise", "bytes": 2 * 2**power, "us": device_us(lambda: torch.add(x, 1.0, out=y))}
    norm = nn.LayerNorm(1024).cuda()
    for rows in (512, 8192, 65536):
        x = tensor(rows, 1024, dtype=FP32).requires_grad_()
        out = norm(x)
        g = torch.randn_like(out)
        size = x.numel() * 4
        yield {"class": "norm", "what": "layer_norm", "bytes": 2 * size, "us": device_us(lambda: norm(x))}
        back = lambda: torch.autograd.grad(out, (x, norm.weight, norm.bias), g, retain_graph=True)  # noqa: E731
        yield {"class": "norm", "what": "layer_norm_backward", "bytes": 3 * size, "us": device_us(back)}
    for layout in (torch.channels_last, torch.contiguous_format):
        for dtype in (FP32, BF16):
            for channels, image in ((64, 112), (256, 56), (1024, 14)):
                batch_norm = nn.BatchNorm2d(channels).cuda()
                x = tensor(128, channels, image, image, dtype=dtype).to(memory_format=layout).requires_grad_()
                out = batch_norm(x)
                g = torch.randn_like(out)
                size = x.numel() * x.element_size()
                row = {
                    "class": "norm",
                    "layout": str(layout),
                    "dtype": str(dtype),
                    "dims": [128, channels, image],
                }
                yield row | {
                    "what": "batch_norm",
                    "bytes": 2 * size,
                    "us": device_us(lambda: batch_norm(x), 5),
                }
                back = lambda: torch.autograd.grad(out, x, g, retain_graph=True)  # noqa: E731
                yield row | {"what": "batch_norm_backward", "bytes": 3 * size, "us": device_us(back, 5)}
    yield from fused_chains()


def fused_chains() -> Iterator[dict[str, Any]]:
    """What the compiler makes of common chains, against the bytes that must be moved."""

    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * 1.5 + y) + x

    def norm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x + y, (x.shape[-1],)) * 2

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x.float(), target)

    for what, function in {"chain": chain, "norm": norm}.items():
        compiled = torch.compile(function)
        for rows in (512, 8192, 131072):
            x, y = tensor(rows, 1024, dtype=FP32), tensor(rows, 1024, dtype=FP32)
            us = device_us(lambda: compiled(x, y))
            yield {"class": "fused", "what": what, "bytes": 3 * x.numel() * 4, "us": us}
    for layout in (torch.channels_last, torch.contiguous_format):
        for channels, image in ((64, 112), (256, 56), (1024, 14)):
            yield from fused_batch_norm(layout, channels, image)
    compiled = torch.compile(loss)
    x, target = tensor(8192, 50304), torch.randint(0, 50304, (8192,), device="cuda")
    yield {
        "class": "fused",
        "what": "loss",
        "bytes": x.numel() * 2,
        "us": device_us(lambda: compiled(x, target)),
    }
    x.requires_grad_()
    out = compiled(x, target)
    us = device_us(lambda: torch.autograd.grad(out, x, retain_graph=True))
    yield {"class": "fused", "what": "loss_backward", "bytes": 2 * x.numel() * 2, "us": us}


def fused_batch_norm(layout: torch.memory_format, channels: int, image: int) -> Iterator[dict[str, Any]]:
    """A batch norm with its activation, as the compiler writes it: twice through memory."""
    norm = nn.BatchNorm2d(channels).cuda()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.relu(norm(x)))
    x = tensor(128, channels, image, image, dtype=FP32).to(memory_format=layout).requires_grad_()
    out = compiled(x)
    g = torch.randn_like(out)
    row = {"class": "fused", "layout": str(layout), "dims": [128, channels, image]}
    size = x.numel() * 4
    yield row | {"what": "batch_norm", "bytes": 3 * size, "us": device_us(lambda: compiled(x), 5)}
    us = device_us(lambda: torch.autograd.grad(out, x, g, retain_graph=True), 5)
    yield row | {"what": "batch_norm_backward", "bytes": 5 * size, "us": us}


def optimizers() -> Iterator[dict[str, Any]]:
    """Adam by its three implementations, on few large and many small tensors: device and host."""
    lists = {
        "gpt2": [(50304, 768)] + 12 * [(768, 2304), (768, 768), (768, 3072), (3072, 768)] + 50 * [(768,)],
        "many_small": 400 * [(256, 256)],
        "tiny": 200 * [(64,)],
        "large": 8 * [(8192, 4096)],
    }
    for name, shapes in lists.items():
        for way in ("fused", "foreach", "for-loop"):
            if way == "for-loop" and name == "large":
                continue
            params = [nn.Parameter(torch.randn(shape, device="cuda")) for shape in shapes]
            for one in params:
                one.grad = torch.randn_like(one)
            step = torch.optim.AdamW(params, fused=way == "fused", foreach=way == "foreach").step
            count = sum(one.numel() for one in params)
            us = device_us(step, 5)
            calls = 3 if name in ("gpt2", "large") else 10
            row = {"class": "optimizer", "what": name, "way": way, "tensors": len(params), "numbers": count}
            yield row | {"bytes": 28 * count, "us": us, "host_us": host_us(step, calls, 3)}


# -- Fourier transforms --------------------------------------------------------------------------------


def transforms() -> Iterator[dict[str, Any]]:
    """Of lengths that have fast kernels, along one dimension, two and three, of few numbers and of many: with
    the bytes that findwall's own model counts, for it is its floors that the curve is read at. And passes
    over complex numbers, which torch's compiler leaves to such kernels as well."""
    from findwall.machine.hardware import table_ceilings
    from findwall.work.op_families.fft import Transform

    cache = float(table_ceilings(torch.cuda.get_device_name()).l2_bytes or 0)
    shapes = [
        *(
            (batch, (length,))
            for length in (256, 1024, 4096, 16384)
            for batch in (2**18 // length, 2**26 // length)
        ),
        *((batch, (side, side)) for side, batches in SIDES_2D.items() for batch in batches),
        *((batch, (side, side, side)) for side, batch in ((32, 64), (64, 64), (128, 16), (256, 4))),
    ]
    for batch, lengths in shapes:
        axes = tuple(range(1, 1 + len(lengths)))
        for real in (False, True):
            x = torch.randn(batch, *lengths, device="cuda", dtype=FP32 if real else torch.complex64)
            made = Transform(lengths, x.numel(), 8, False, real)
            run = torch.fft.rfftn if real else torch.fft.fftn
            us = device_us(lambda: run(x, dim=axes))
            row = {"class": "fft", "dims": [batch, *lengths], "real": real, "flops": made.work.flops}
            yield row | {"bytes": made.bytes_beyond(cache), "us": us}
    for side, batch in ((256, 16), (1024, 1), (1024, 16), (2048, 32), (4096, 12)):
        x = torch.randn(batch, side, side, device="cuda", dtype=torch.complex64)
        y = torch.randn_like(x)
        factor, size = torch.randn(side, side, device="cuda", dtype=torch.complex64), x.numel() * 8
        row = {"class": "complex", "dims": [batch, side, side], "bytes": 2 * size + side * side * 8}
        yield row | {"what": "mul", "us": device_us(lambda: x * factor)}
        yield row | {"what": "mul_", "us": device_us(lambda: x.mul_(factor))}
        yield row | {"what": "add", "bytes": 3 * size, "us": device_us(lambda: torch.add(x, y))}


SIDES_2D = {128: (16, 1024), 512: (4, 64), 1024: (4, 64), 2048: (4, 16), 4096: (1, 4, 12)}


# -- the host ------------------------------------------------------------------------------------------


def host() -> Iterator[dict[str, Any]]:
    x = torch.randn(64, 64, device="cuda")
    weights = [nn.Parameter(torch.randn(64, 64, device="cuda") / 8) for _ in range(64)]

    def small(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            for one in weights[:count]:
                x = torch.tanh(x @ one)
            return x

        return run

    def row(what: str, us: float, **more: object) -> dict[str, Any]:
        return {"class": "host", "what": what, "us": us, **more}

    with torch.no_grad():
        yield row("add", host_us(lambda: torch.add(x, x)))
        yield row("matmul", host_us(lambda: torch.mm(x, x)))
        yield row("linear_layer", host_us(layer_call(x)))
        for count in (4, 16, 64):
            yield row("eager", host_us(lambda: small(count)(x), 30), ops=2 * count)
        for mode, name in ((None, "compiled"), ("reduce-overhead", "reduce_overhead")):
            for count in (4, 16, 64):
                torch._dynamo.reset()
                run = torch.compile(small(count), mode=mode) if mode else torch.compile(small(count))
                yield row(name, host_us(lambda: run(x), 50), ops=2 * count)
    y = x.clone().requires_grad_()

    def train(run: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
        def step() -> None:
            for one in weights:
                one.grad = None
            run(y).sum().backward()

        return step

    for count in (16, 64):
        yield row("eager_training", host_us(train(small(count)), 15), ops=2 * count)
        torch._dynamo.reset()
        yield row("compiled_training", host_us(train(torch.compile(small(count))), 15), ops=2 * count)
        torch._dynamo.reset()
        run = torch.compile(small(count), mode="reduce-overhead")
        yield row("reduce_overhead_training", host_us(train(run), 15), ops=2 * count)

    def cast(run: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        def inside(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=BF16):
                return run(x)

        return inside

    yield row("autocast_training", host_us(train(cast(small(64))), 15), ops=128)
    with torch.no_grad():
        run64 = small(64)
        graph = torch.cuda.CUDAGraph()
        run64(x)
        with torch.cuda.graph(graph):
            run64(x)
        yield row("replay", host_us(graph.replay, 50), ops=128)
        yield row("replay_device", device_us(graph.replay), ops=128)
        yield row("item", host_us(lambda: x[0, 0].item(), 100))


def layer_call(x: torch.Tensor) -> Callable[[], object]:
    layer = nn.Linear(64, 64).cuda()
    return lambda: layer(x)


PARTS = {
    "host": host,
    "matmul": matmuls,
    "odd": odd_matmuls,
    "conv": convolutions,
    "attention": attentions,
    "memory": memory,
    "optimizer": optimizers,
    "fft": transforms,
}


# -- what is shipped -------------------------------------------------------------------------------------

SHIPPED = Path(__file__).resolve().parents[1] / "src" / "findwall" / "replay" / "curves" / "h200.json"
BINS_A_DECADE = 3
THIN = 4  # channels: an image, not a layer's features


def names_of(row: dict[str, Any]) -> Iterator[str]:
    """The curves that a row is a point of: its own, and the wider ones it is a case of."""
    parts = [row["class"]]
    if row["class"] == "conv":
        kernel, groups, inside = row["dims"][4], row["dims"][6], row["dims"][1]
        kind = "depthwise" if groups > 1 else "thin" if inside <= THIN else "1x1" if kernel == 1 else "wide"
        parts += [row["format"], row["layout"], "forward" if row["pass"] == "forward" else "backward", kind]
    elif row["class"] == "attention":
        parts += [row["format"], row["pass"], "bias" if row.get("bias") else "plain"]
    elif row["class"] == "matmul":
        parts = ["odd" if row.get("odd") else "matmul", row["format"]]
    elif row["class"] == "norm" and row["what"].startswith("batch_norm"):
        layout = "nhwc" if "channels_last" in row["layout"] else "nchw"
        width = "bf16" if "bfloat16" in row["dtype"] else "fp32"
        parts += ["batch", layout, width, "backward" if row["what"].endswith("backward") else "forward"]
    elif row["class"] == "norm":
        parts += ["layer", "backward" if row["what"].endswith("backward") else "forward"]
    elif row["class"] == "optimizer":
        parts += [row["way"]]
    elif row["class"] == "fused":
        what = row["what"].removesuffix("_backward")
        parts += [what if what in ("loss", "batch_norm") else "chain"]
    yield from ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def floor_us(row: dict[str, Any], ceilings: Any) -> float:
    moved = row["bytes"] / ceilings.bandwidth
    return 1e6 * max(moved, row.get("flops", 0) / ceilings.flops[row.get("format", "fp32")])


def curve(points: list[tuple[float, float]]) -> dict[str, list[float]]:
    """Medians of the share reached, by the floor's length in bins of a third of a decade."""
    bins: dict[int, list[tuple[float, float]]] = {}
    for floor, reached in points:
        bins.setdefault(math.floor(BINS_A_DECADE * math.log10(floor)), []).append((floor, reached))
    medians = [[statistics.median(column) for column in zip(*bins[one], strict=True)] for one in sorted(bins)]
    return {
        "floor_us": [round(one[0], 3) for one in medians],
        "reached": [round(one[1], 4) for one in medians],
    }


def ship(raw: dict[str, Any]) -> dict[str, Any]:
    from findwall.machine.hardware import table_ceilings

    ceilings = table_ceilings(raw["gpu"])
    points: dict[str, list[tuple[float, float]]] = {}
    for row in raw["rows"]:
        if row["class"] == "host" or row.get("what") in ("many_small", "tiny"):
            continue  # optimizers over small tensors take what the host takes
        floor = floor_us(row, ceilings)
        for name in names_of(row):
            points.setdefault(name, []).append((floor, floor / row["us"]))
    return {
        "gpu": raw["gpu"],
        "torch": raw["torch"],
        "date": raw["date"],
        "classes": {name: curve(found) for name, found in sorted(points.items())},
        "host": host_units(raw["rows"]),
    }


def host_units(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the host pays, in units of what an eager op cost it in the same measurement."""
    timed = {
        (row["what"], row.get("ops"), row.get("way")): row.get("host_us", row["us"])
        for row in rows
        if row["class"] in ("host", "optimizer")
    }

    def slope(what: str, few: int, many: int) -> tuple[float, float]:
        low, high = timed[what, few, None], timed[what, many, None]
        each = (high - low) / (many - few)
        return each, max(low - each * few, 0.0)

    eager, _ = slope("eager", 8, 128)
    # Of a layer's training: two ops forward; two products, the activation's gradient and the sum of the
    # weight's gradient backward.
    training, _ = slope("eager_training", 32, 128)
    compiled, call = slope("compiled", 8, 128)
    compiled_training, training_call = slope("compiled_training", 32, 128)
    graph_call = statistics.mean(timed["reduce_overhead", ops, None] for ops in (8, 32, 128))
    _, graph_training_call = slope("reduce_overhead_training", 32, 128)
    lists = ("gpt2", "many_small", "tiny")
    found = {
        "compiled": compiled / eager,
        "compiled_training": compiled_training / training,
        "call": call / eager,
        "training_call": max(training_call, 2 * call) / eager,
        "graph_call": graph_call / eager,
        "graph_training_call": graph_training_call / eager,
        "replay": timed["replay", 128, None] / eager,
        "autocast": (timed["autocast_training", 128, None] - timed["eager_training", 128, None]) / 64 / eager,
        "item": timed["item", None, None] / eager,
    }
    for way, other in (("fused", "foreach"), ("fused", "for-loop"), ("foreach", "for-loop")):
        shares = [timed[name, None, way] / timed[name, None, other] for name in lists]
        found[f"{way} of {other}"] = statistics.median(shares)
    # Ops alone: all three walk over the parameters first, and the fused one does little else.
    found["op in a list"] = statistics.median(
        (timed[name, None, "foreach"] - timed[name, None, "fused"])
        / (timed[name, None, "for-loop"] - timed[name, None, "fused"])
        for name in lists
    )
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("curves.json"))
    parser.add_argument("--ship", type=Path, nargs="+")
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    if options.ship:
        raw, *more = (json.loads(path.read_text()) for path in options.ship)
        assert all(one["gpu"] == raw["gpu"] for one in more), "the files are of several GPUs"
        raw["rows"] += [row for one in more for row in one["rows"]]
        SHIPPED.write_text(json.dumps(ship(raw), indent=1) + "\n")
        return
    rows: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    properties = torch.cuda.get_device_properties(0)
    for part in options.only.split(","):
        begin = time.monotonic()
        try:
            for one in PARTS[part]():
                rows.append(
                    {
                        name: round(value, 3) if isinstance(value, float) else value
                        for name, value in one.items()
                    }
                )
        except Exception as error:  # the other parts still tell something
            print(part, type(error).__name__, str(error)[:300])
        seconds[part] = round(time.monotonic() - begin, 1)
        options.out.write_text(
            json.dumps(
                {
                    "gpu": properties.name,
                    "torch": torch.__version__,
                    "date": datetime.date.today().isoformat(),
                    "seconds": seconds,
                    "rows": rows,
                }
            )
        )
    print(seconds, len(rows))


if __name__ == "__main__":
    main()
