"""Jobs drawn for one fix each: where it applies, and the same job where it does not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.model.events import Kind
from findwall.model.machine import CpuUse, Telemetry
from findwall.model.measured_run import StepTimes
from fixes.recorded import with_cause
from sketch import KERNELS, Drawn, facts_of, hosts_own, sketch

SMALL = [64, 64]


def short_epochs(workers: int = 4) -> Facts:
    """Every eighth step begins an epoch: it takes 88 ms instead of 8, with a hook's word for why."""
    timeline = sketch(cpu="do      " * 3, gpu="  kkkkkk" * 3, steps="|       " * 3)
    kinds = (("loader-start",) + ("usual",) * 7) * 3
    timed = StepTimes(
        tuple(0.088 if kind == "loader-start" else 0.008 for kind in kinds),
        "measured",
        loader_s=0.0105,
        kind=kinds,
        doing=(("loader-start", "loader-start"),),
    )
    return facts_of(timeline, step_times=timed, loader_workers=workers)


def fetching(*lengths: int, host: str = "mmm") -> Facts:
    """Every step asks the driver for memory; a step has so many rows."""
    drawn = {
        letter: KERNELS["k"].given([length, 8192]) for letter, length in zip("kvw", lengths, strict=True)
    }
    steps = "".join(f"o{host}o  " + " " * (3 - len(host)) for _ in lengths)
    device = "".join(f" {letter}   {letter.upper()}{letter.upper()}" for letter in "kvw")
    return facts_of(sketch(steps, device, "|      " * 3, kernels=drawn))


def convolving(*sides: int) -> Facts:
    """A step is one convolution, far slower than it need be, of images of so many pixels a side."""
    drawn = {
        letter: Drawn(
            "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "aten::cudnn_convolution"
        ).given([32, 64, side, side], [64, 64, 3, 3])
        for letter, side in zip("uvw", sides, strict=True)
    }
    device_rows = "".join(f" {one * 4}" for one in "uvw")
    facts = facts_of(sketch("o    " * 3, device_rows, "|    " * 3, kernels=drawn))
    return with_cause(facts, "slow-kernels")


def one_by_one(optimizer: str, kernel: str = KERNELS["k"].kernel) -> Facts:
    """An optimizer that launches forty small kernels a step, for each of which the device waits."""
    drawn = {"k": replace(KERNELS["k"], kernel=kernel).given(SMALL)}
    width = 90
    return facts_of(
        sketch(
            steps=f"|{' ' * (width - 1)}" * 3,
            cpu=("z" * 85).ljust(width) * 3 + "\n" + ("on" * 40).ljust(width) * 3,
            gpu=(" k" * 40).ljust(width) * 3,
            kernels=drawn,
            host={"z": (Kind.ANNOTATION, f"Optimizer.step#{optimizer}.step")},
            us=10,
        )
    )


def averaging(tensors: int = 40, place: str = "behind") -> Facts:
    """A step that trains a small layer and averages so many tensors of its shape, one by one. `place`: behind
    the optimizer, before it as clipping is, or of another shape."""
    shape = [64, 64] if place != "other" else [32, 16]
    layer = Drawn(KERNELS["m"].kernel, "aten::linear").given([32, 64], [64, 64])
    drawn = {
        "f": replace(layer, sequence=7),
        "g": replace(layer, op="aten::mm"),
        "p": Drawn("multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>", "aten::_fused_adamw_"),
        "k": replace(KERNELS["k"], op="aten::lerp_").given(shape, shape),
    }
    # The device waits for each of them.
    walk, width = "on" * tensors, 2 * tensors + 10
    outer, ops, device = " Az", f"ooo{walk}", f" fgp{'k ' * tensors}"
    if place == "before":
        outer, ops, device = f" A{' ' * len(walk)}z", f"oo{walk}o", f" fg{'k ' * tensors}p"
    return facts_of(
        sketch(
            steps="|".ljust(width) * 3,
            cpu=f"{outer.ljust(width) * 3}\n{ops.ljust(width) * 3}",
            gpu=device.ljust(width) * 3,
            kernels=drawn,
            us=20,
        )
    )


def losing(behind: int = 4, inside: int = 0) -> Facts:
    """A step of a product forward and one back, with so many passes over large tensors between them, and so
    many before the first."""
    layer, width = Drawn(KERNELS["m"].kernel, "aten::linear"), inside + behind + 4
    back = behind // 2
    outer = " " * (inside + 1 + behind - back) + "A" * (back + 1)
    passes = "kK" * width
    device = passes[:inside] + "f" + passes[:behind] + "g"
    return facts_of(
        sketch(
            steps="|".ljust(width) * 3,
            cpu=f"{outer.ljust(width) * 3}\n{('o' * len(device)).ljust(width) * 3}",
            gpu=" " + device.ljust(width) * 3,
            kernels={"f": replace(layer, sequence=7), "g": replace(layer, op="aten::mm")},
        )
    )


def waits_for_pinned(memory: str = "Pinned", sync: str = "ee") -> Facts:
    """A batch is copied from pinned memory, and the host waits until it has arrived."""
    copy = replace(KERNELS["h"], kernel=f"Memcpy HtoD ({memory} -> Device)")
    return facts_of(
        sketch(
            steps="|           " * 3,
            cpu="cccc nnno   " * 3 + "\n" + f" {sync:<11}" * 3,
            gpu=" hh      kkk" * 3,
            kernels={"h": copy},
        )
    )


COLLECTIVES = {
    "v": Drawn("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "c10d::broadcast_"),
    "n": replace(KERNELS["n"], op="c10d::allreduce_"),
}


def in_parallel(forward: str = "o", passes: int = 1) -> Facts:
    """DistributedDataParallel: passes forward and backward, each with a reduction, then the optimizer's step.

    The host is far ahead. `forward`: what a forward pass launches before its first op.
    """
    ranges = {
        "F": (Kind.ANNOTATION, "DistributedDataParallel.forward"),
        "A": (Kind.OP, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
    }
    device = ("v" if forward == "o" else "m") + "mmMnnnn"
    width = 8 * passes + 2
    outer, inner = ("FFAA" * passes + "z").ljust(width), (f"{forward}ooo" * passes + "o").ljust(width)
    return facts_of(
        sketch(
            steps="|".ljust(width) * 3,
            cpu=f"{outer * 3}\n{inner * 3}",
            gpu=" " + (device * passes + "kk") * 3,
            kernels=COLLECTIVES,
            host=ranges,
        )
    )


def searching(used: int = 2) -> Facts:
    """DistributedDataParallel that looks for unused ones of its two parameters, of which `used` get a
    gradient, then reduces 8 MB in two buckets and asks all ranks."""
    asked = {"collective": "allreduce", "in_elements": 2, "dtype": "Int", "group_size": 2}
    bucket = {"collective": "allreduce", "in_elements": 1_000_000, "dtype": "Float", "group_size": 2}
    ranges = {
        "F": (Kind.ANNOTATION, "DistributedDataParallel.forward"),
        "S": (Kind.OP, "torch.distributed.ddp.reducer::search_unused_parameters"),
        "A": (Kind.OP, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
        "G": (Kind.OP, "torch::autograd::AccumulateGrad"),
    }
    gradients = "G.G" if used == 2 else "G.."
    return facts_of(
        sketch(
            steps="|".ljust(12) * 3,
            cpu=f"{'FFSSAAAAAAz ' * 3}\n{f'oo..{gradients}oooo ' * 3}",
            gpu="   " + "mM  nnpp qkk" * 3,
            kernels={
                "n": replace(COLLECTIVES["n"], extra=bucket),
                "p": replace(COLLECTIVES["n"], extra=bucket),
                "q": replace(COLLECTIVES["n"], extra=asked),
            },
            host=ranges,
        )
    )


def evaluating(
    passes: int = 8,
    trained: int = 1,
    rows: int = 8192,
    loading: int = 0,
    inside: int = 0,
    device: str = "NVIDIA H200",
    evaluates: bool = True,
    **measured: Any,
) -> Facts:
    """A training step at the roof, a product forward and one back, and so many products without gradients
    after it, in which a hook saw the model evaluate. With fewer `rows` its products are slow. `loading`: ms
    that each step waits for its batch; `inside`: the pass without gradients for its second one."""
    product = Drawn(KERNELS["m"].kernel, "aten::linear")
    forward = product.given([rows, 8192], [5632, 8192], dtype="c10::BFloat16")
    width = loading + passes + inside + 2 * trained
    outer = "d" * loading + " " * trained + "A" * trained + " " + "d" * inside
    inner = " " * loading + "o" * (2 * trained + 1) + " " * inside + "o" * (passes - 1)
    device_rows = ("fF" * width)[:trained] + ("gG" * width)[:trained]
    device_rows += "v" + " " * inside + ("Vv" * width)[: passes - 1]
    timeline = sketch(
        steps="|".ljust(width) * 3,
        cpu=f"{outer.ljust(width) * 3}\n{inner * 3}",
        gpu=" " + (" " * loading + device_rows) * 3,
        kernels={"f": replace(forward, sequence=7), "g": replace(forward, op="aten::mm"), "v": forward},
        device=device,
    )
    return facts_of(timeline, step_ms=float(width), evaluates=evaluates, **measured)


def in_doubles() -> Facts:
    """Products of fp64 numbers, at their roof."""
    product = Drawn("cutlass_80_tensorop_d884gemm_64x64", "aten::mm")
    drawn = {"m": product.given([4096, 4096], [4096, 4096], dtype="double")}
    return facts_of(sketch(steps="|     " * 3, cpu="oo    " * 3, gpu="mmmMMM" * 3, kernels=drawn))


def over_words(words: int) -> Facts:
    """Cross-entropy of bf16 logits that are cast up first, over so many words."""
    logits = [8192, words]
    drawn = {
        "u": KERNELS["l"].given(logits, logits, dtype="c10::BFloat16"),
        "v": Drawn("cunn_SoftMaxForward<float, float>", "aten::_log_softmax").given(logits),
        "w": Drawn("cunn_SoftMaxBackward<float, float>", "aten::_log_softmax_backward_data").given(
            logits, logits
        ),
    }
    device = "u" * 10 + "v" * 20 + "w" * 30
    return facts_of(sketch("ooo".ljust(60) * 3, f" {device * 3}", "|".ljust(60) * 3, kernels=drawn, us=100))


def small_ops(letters: str, around: str = "") -> Facts:
    """Small kernels, for each of which the device waits: products, and multiplications of three shapes."""
    drawn = {
        "u": Drawn(KERNELS["m"].kernel, "aten::mm").given(SMALL, SMALL, dtype="c10::BFloat16"),
        "v": KERNELS["k"].given(SMALL),
        "w": KERNELS["k"].given([32, 32]),
        "x": KERNELS["k"].given([16, 16]),
    }
    width = 2 * len(letters) + 2
    lines = [("on" * len(letters)).ljust(width) * 3]
    if around:
        lines.insert(0, ("y" * (width - 1)).ljust(width) * 3)
    return facts_of(
        sketch(
            steps="|".ljust(width) * 3,
            cpu="\n".join(lines),
            gpu="".join(f" {one}" for one in letters).ljust(width) * 3,
            kernels=drawn,
            us=10,
        )
    )


def starved(
    host: str = "ddddo ",
    inside: str = "",
    workers: int | None = None,
    busy: float | None = None,
    in_line: float | None = None,
    children: float | None = None,
    loading: tuple[float, float] | None = None,
    cores: int = 16,
) -> Facts:
    """The device waits four of six ms for the loader; `inside`: what the loader calls; `loading`: cores that
    are busy while a batch is made, and the training thread's part of them."""
    cpu = CpuUse(cores, others_busy=0.0, own_busy=busy, children_wanted=children, in_line_share=in_line)
    if loading is not None:
        cpu = replace(cpu, loading_busy=loading[0], loading_own=loading[1])
    iterator = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    loader = (Kind.ANNOTATION, f"enumerate(DataLoader)#{iterator}.__next__")
    drawing = f"{host * 3}\n{inside * 3}"
    timeline = sketch(steps="|     " * 3, cpu=drawing, gpu="    kk" * 3, host={"d": loader})
    return facts_of(timeline, step_ms=6, telemetry=Telemetry(cpu=cpu), loader_workers=workers)


def on_cores_without_floor(
    loader_s: float | None = 0.003, gc_s: float | None = None, workers: int = 1, **cpu: float
) -> Facts:
    """A job of the CPU: nine of its 12 ms are an op of which nobody knows how fast it could be, three are in
    the loader. `loader_s`: what was timed of that; None: nothing was."""
    loader = (Kind.ANNOTATION, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    steps = {"cpu": "dddooooooooo" * 3, "gpu": "   uUuUuUuUu" * 3, "steps": "|           " * 3}
    timeline = sketch(**steps, host={"d": loader}, device="")
    timed = StepTimes((0.012,) * 20, "measured", loader_s=loader_s, gc_s=gc_s)
    use = CpuUse(cores=4, **{"own_busy": 3.9, "others_busy": 0.0, "in_line_share": 0.0, **cpu})
    return facts_of(
        hosts_own(timeline),
        step_times=timed if loader_s is not None else None,
        telemetry=Telemetry(cpu=use),
        loader_workers=workers,
        device_kind="cpu",
    )


def prepared_in_the_loop(device: str = "        hhkk") -> Facts:
    """Nine ms of silence, then a batch is sent."""
    return facts_of(
        sketch(
            steps="|           " * 3,
            cpu="        cco " * 3,
            gpu=device * 3,
            kernels={"h": replace(KERNELS["h"], nbytes=90_000_000)},
        ),
        step_ms=12,
    )


def crowded(own: float = 15.5, others: float = 0.1, in_line: float = 0.12) -> Facts:
    """Launches that the device waits for, on 16 cores that this many threads keep busy."""
    cpu = CpuUse(cores=16, own_busy=own, others_busy=others, in_line_share=in_line)
    timeline = sketch(cpu="nonnno" * 3, gpu="  k   k" * 3, steps="|     " * 3)
    return facts_of(timeline, step_ms=6, telemetry=Telemetry(cpu=cpu), loader_workers=7)
