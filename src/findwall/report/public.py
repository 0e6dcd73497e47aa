"""What anybody may see: findwall's own words, and names that torch, CUDA and libraries give.

An op is public if torch registers one of exactly that name, a kernel or a runtime call if every word of its
name is known from them. Whatever else a trace calls something is the job's own.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import get_args

from findwall.machine.gpu_table import GPUS
from findwall.model.answers.memory_answer import (
    FailureCause,
    MemoryKind,
    MemoryOf,
    MemoryPhase,
    MemoryPrice,
)
from findwall.model.answers.ranks_answer import Pattern, Unit, Why, WhyNot
from findwall.model.catalogue import KERNEL_CLASSES, WALL_OF, WALLS
from findwall.model.causes import UNKNOWN
from findwall.model.diagnosis import KERNELS_ALONE
from findwall.model.kinds import SELDOM, USUAL
from findwall.model.machine import MATH_TYPES
from findwall.model.topology import TOPOLOGY_TOOLS
from findwall.report.words.ncu_words import LIMITS
from findwall.report.words.undecided import DOES, WHAT_ONCE
from findwall.report.words.verdicts import OPS_OPTION, SHAPES_OPTION

STEP_MARKS = ("ProfilerStep", "optimizer", "range", "period", "span", KERNELS_ALONE)
SOURCES = (
    "torch-trace",
    "run-folder",
    "watch",
    "nsys",
    "nsys-report",
    "ncu",
    "memory-snapshot",
    "execution-trace",
)
UNITS = ("samples/s", "tokens/s", "images/s", "sequences/s")
THROTTLE = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake", "sw-power-cap")
# Words of findwall's own that a figure may be.
OWN = frozenset(
    {
        *(*WALLS, *WALL_OF, UNKNOWN, *KERNEL_CLASSES, *MATH_TYPES, *THROTTLE, *LIMITS, *DOES, *WHAT_ONCE),
        *(*OPS_OPTION, *OPS_OPTION.values(), *SHAPES_OPTION.values(), "nvidia", "amd", "pageable", "pinned"),
        *(
            "ceiling",
            "memory",
            "aligned",
            "trained",
            "others",
            "measured",
            "table",
            "doubtful",
            USUAL,
            SELDOM,
        ),
        *("saving", "evaluation", "loader-start", "steps", "start-up", "other", *TOPOLOGY_TOOLS.values()),
        *(
            *get_args(MemoryKind),
            *get_args(MemoryPhase),
            *get_args(FailureCause),
            *get_args(MemoryOf),
            *get_args(MemoryPrice),
        ),
        *(*get_args(Unit), *get_args(Why), *get_args(Pattern), *get_args(WhyNot)),
    }
)
# Keys of dictionaries in the document: what stands under others goes.
KEYS = frozenset(
    {
        *(f"{name}_{rate}" for name in MATH_TYPES for rate in ("tflops", "spec_tflops")),
        *("memory_gbps", "memory_spec_gbps", "source", "device", "doubt", "stream", "events", "busy_ms"),
        *(
            "steps",
            "start-up",
            "evaluation",
            "saving",
            "loader-start",
            "other",
            "workers",
            "threads",
            "prefetch",
        ),
        *("hook_share", "shadow_share", "low", "mid", "high", "step_after_trace", "trace", "profiler_stays"),
        *("sm_clock_mhz", "power_w", "temperature_c", "utilisation", "memory_gib"),
        *("held_down", "sm", "tensor", "dram", "fp16", "fp32", "fp64", "pcie_rx_mib_s", "pcie_tx_mib_s"),
        *THROTTLE,
    }
)
PACKAGES = (
    "torch",
    "python",
    "cuda",
    "cudnn",
    "nccl",
    "triton",
    "numpy",
    "driver",
    "findwall",
    "torchvision",
)

_LISTS = Path(__file__).parent / "public_names"
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHORTEST = 3  # letters: shorter ones tell nothing
_NODE = re.compile(r"(?:autograd::engine::evaluate_function: )?(\w+?)Backward\d+")
_CALL = re.compile(r"(?:cuda|cu|hip)((?:[A-Z][a-z]*\d*)+)(?:_v\d+|_ptsz)?")
_PLACES = "(?:Pageable|Pinned|Device|Array|Host|Managed|Unknown)"
_COPY = re.compile(rf"Memcpy [HDP]to[HDP](?: \({_PLACES} -> {_PLACES}\))?|Memset(?: \({_PLACES}\))?")
_OPTIMIZERS = (
    *("SGD", "Adam", "AdamW", "Adamax", "Adagrad", "RMSprop", "LBFGS"),
    *("NAdam", "RAdam", "Adafactor", "Muon", "ASGD", "Rprop", "SparseAdam"),
)
_MADE_BY_TORCH = re.compile(
    r"ProfilerStep#\d+|PyTorch Profiler \(\d+\)|TorchDynamo Cache Lookup|Torch-Compiled Region: [\d/]+"
    r"|enumerate\(DataLoader\)#_(?:Single|Multi)Process(?:ing)?DataLoaderIter\.__next__"
    r"|CompiledFunction(?:Backward)?|DistributedDataParallel\.forward|Command Buffer Full"
    r"|Activity Buffer Request|torch\.distributed\.ddp\.reducer::(?:copy_bucket_to_grad|mul_out|div_out)"
    r"|detach|detach_|Lazy Function Loading|Runtime Triggered Module Loading|record_param_comms"
    r"|torch::autograd::(?:AccumulateGrad|CopyBackwards|CopySlices|GraphRoot|Error)"
    rf"|Optimizer\.(?:step|zero_grad)#(?:{'|'.join(sorted(_OPTIMIZERS))})\.(?:step|zero_grad)"
    r"|(?:gloo|nccl|mpi|ucc):(?:_?all_?gather(?:_base|_into_tensor_coalesced)?|_?all_?reduce(?:_barrier"
    r"|_coalesced|_sparse)?|_?reduce_?scatter(?:_base|_tensor_coalesced)?|all_?to_?all(?:_base)?|broadcast"
    r"|barrier|reduce|gather|scatter|send|recv(?:AnySource)?|coalesced)"
)
_INDUCTOR = re.compile(r"triton_(?:poi|red|per|tem|for)_fused_\w+$")
_SHAPE = r"\[[\d×]*\]"
_FORMATS = "fp64|fp32|tf32|fp16|bf16|fp8|int64|int32|int16|int8|uint8|bool|half|float|double|e4m3fn|e5m2"
_SHAPES = re.compile(rf"{_SHAPE}(?:(?:·|, ){_SHAPE})*(?: (?:{_FORMATS}))?")


def is_public_op(name: str) -> bool:
    """Whether torch or CUDA gives this name to something of the host: an op, a node of autograd, a call."""
    if name.partition(".")[0] in _words("ops") or _is_node(name) or _is_call(name):
        return True
    return _MADE_BY_TORCH.fullmatch(name) is not None or (
        _INDUCTOR.match(name) is not None and _is_worded(name)
    )


def is_public_kernel(name: str) -> bool:
    """Whether it is called like kernels of public libraries; on a CPU kernels are ops."""
    if "::" in name and "(" not in name and "<" not in name:
        return is_public_op(name)
    return _COPY.fullmatch(name) is not None or _is_worded(name)


def _is_worded(name: str) -> bool:
    """Whether every word of it is one of public kernels."""
    words = (word.lower() for word in _WORD.findall(name))
    return all(len(word) < _SHORTEST or word in _words("kernel_words") for word in words)


def is_public_device(name: str) -> bool:
    return name in GPUS


def is_public_optimizer(name: str) -> bool:
    return name in _OPTIMIZERS


def is_shape(text: str) -> bool:
    """ "[8192×768]·[768×50257] bf16": figures, and a number format."""
    return _SHAPES.fullmatch(text) is not None


def is_format(text: str) -> bool:
    return re.fullmatch(_FORMATS, text) is not None


def _is_node(name: str) -> bool:
    found = _NODE.fullmatch(name)
    return found is not None and found[1].lower() in _flat_ops()


def _is_call(name: str) -> bool:
    found = _CALL.fullmatch(name)
    words = _WORD.findall(found[1]) if found is not None else []
    return _COPY.fullmatch(name) is not None or (
        bool(words) and all(len(word) < _SHORTEST or word.lower() in _words("call_words") for word in words)
    )


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset((_LISTS / f"{name}.txt").read_text(encoding="utf-8").split())


@cache
def _flat_ops() -> frozenset[str]:
    """As nodes of autograd are called: without namespace and underscores."""
    return frozenset(name.rpartition("::")[2].replace("_", "") for name in _words("ops"))
