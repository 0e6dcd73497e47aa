"""An op that a person asks about, as probes of the device that is here, and what they say beside the paper.

An op is run as it was asked for, and in the ways that could be faster: with padded sizes where its own do not
fit, in the format of the tensor cores where it is fp32, and channels-last where it is a convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL
from findwall.model.events import Inputs
from findwall.model.probes import AS_IS, ATTENTION, OPTIMIZER, Probe, Probes
from findwall.op.op_on_paper import FORMATS, Dims, Paper, Question
from findwall.units import NS_PER_S
from findwall.work.work_facts import TOO_SMALL_NS

Way = Literal["asked", "padded", "fast", "channels-last"]
State = Literal["near", "below", "short", "slow"]

# All chosen by hand, not calibrated.
LONGEST_S = 2.0  # on paper: nobody who asks for a figure wants to wait for one run
LARGEST_BYTES = 1e13  # no device holds as much
PIECE = 1 << 28  # parameters in one tensor; more are several, as a model's are
PROBED_FORMATS = ("fp64", "fp32", "tf32", "bf16", "fp16")
POINTWISE = {1: "aten::relu", 2: "aten::add", 3: "aten::addcmul"}  # one op that reads so many tensors


class Probed(msgspec.Struct, frozen=True):
    """What running it here gave, in seconds a way; without any, why not."""

    seconds: dict[Way, float] = {}
    why_not: str = ""  # for people, without a full stop
    tells: bool = True  # whether the screen says why not

    @property
    def here_s(self) -> float | None:
        return self.seconds.get("asked")


def not_probed(paper: Paper) -> str:
    """Why an op cannot be run as one op; empty where it can."""
    question = paper.question
    if question.op == "decode":
        return "a decoding step is a whole model, not one op"
    if question.format not in PROBED_FORMATS:
        return f"{question.format} operands come with scales or wider results, which the shape does not say"
    if question.op == "pointwise" and question.reads not in POINTWISE:
        return f"no single op reads {question.reads} tensors"
    if question.op == "conv" and not all(size % 2 for size in question.dims[5:]):
        return "same padding of an even filter takes more than one op"
    if paper.nbytes > LARGEST_BYTES:
        return "no device holds its tensors"
    if paper.floor_s > LONGEST_S:
        return f"one run takes {paper.floor_s:.0f} s at least"
    return ""


def plan(paper: Paper) -> dict[Way, Probe]:
    """What to run, the op as it was asked for first. Only for an op that can be run."""
    question = paper.question
    found: dict[Way, Probe] = {"asked": _probe(question)}
    if paper.aligned is not None:
        found["padded"] = _probe(paper.aligned)
    if paper.fast is not None:
        found["fast"] = _probe(question, paper.fast)
    if question.op == "conv":
        found["channels-last"] = _probe(question, layout="nhwc")
    return found


def read(ways: Mapping[Way, Probe], found: Probes) -> Probed:
    """The figures of a plan that was run."""
    seconds = {way: found.ns[probe.key] / NS_PER_S for way, probe in ways.items() if probe.key in found.ns}
    why_not = "" if "asked" in seconds else found.skipped.get(ways["asked"].key, "it was not run")
    # What the library says may be long; its first words say what is missing.
    return Probed(seconds, why_not.partition(". ")[0].rstrip("."))


# -- what the figures say --------------------------------------------------------------------------------


def state_of(paper: Paper, seconds: float) -> State:
    """Where a time lies beside the floor on paper."""
    # The least that a kernel takes is a round figure: to take less contradicts nothing.
    if seconds < NEARLY_ALL * paper.floor_s and paper.cause != "launch-bound":
        return "below"
    if MAJORITY_SHARE * seconds <= paper.floor_s:  # its roof is most of what it takes
        return "near"
    return "short" if seconds <= TOO_SMALL_NS / NS_PER_S else "slow"


def better_way(paper: Paper, probed: Probed) -> Way | None:
    """The way to run it that is worth a change, by what was measured.

    Another number format is one only where the paper names it, or where the op stays far from its roof.
    """
    here_s = probed.here_s
    if here_s is None:
        return None
    is_slow = state_of(paper, here_s) == "slow"
    if paper.cause == "launch-bound" and not is_slow:
        return None  # so short that the difference is chance
    offered: dict[Way, bool] = {
        "padded": True,
        "channels-last": True,
        "fast": is_slow or paper.cause == "fast-path-off",
    }
    gains = [
        (seconds, way)
        for way, seconds in probed.seconds.items()
        if offered.get(way) and seconds < NEARLY_ALL * here_s
    ]
    return min(gains)[1] if gains else None


def gains_nothing(paper: Paper, probed: Probed) -> Way | None:
    """The way that the paper's cause asks for, where it was run and is no faster."""
    ways: dict[str, Way] = {"misaligned-shapes": "padded", "fast-path-off": "fast"}
    way, here_s = ways.get(paper.cause), probed.here_s
    if way is None or here_s is None or way not in probed.seconds:
        return None
    return way if probed.seconds[way] >= NEARLY_ALL * here_s else None


def is_contradicted(paper: Paper, probed: Probed) -> bool:
    """Whether what was measured is not the wall that the paper names."""
    here_s = probed.here_s
    if here_s is None:
        return False
    if gains_nothing(paper, probed) is not None:
        return True
    if paper.cause in ("misaligned-shapes", "fast-path-off") and better_way(paper, probed) is not None:
        return False
    return state_of(paper, here_s) == "slow"


# -- the op as a trace would have recorded it ------------------------------------------------------------


def _probe(question: Question, fast: str = "", layout: str = "") -> Probe:
    op, inputs, how = _RECORDED[question.op](question)
    own = "tf32" if question.format == "tf32" and question.op in _MULTIPLY else ""
    return Probe(op, inputs, "+".join(part for part in (fast or own, layout, how) if part) or AS_IS)


def _inputs(question: Question, *tensors: Dims, concrete: list[str]) -> Inputs:
    dtype = FORMATS[question.format]
    return Inputs(
        [list(dims) for dims in tensors], [dtype if dims else "" for dims in tensors], [], list(concrete)
    )


def _matmul(question: Question) -> tuple[str, Inputs, str]:
    m, k, n = question.dims
    return "aten::mm", _inputs(question, (m, k), (k, n), concrete=["", ""]), ""


def _conv(question: Question) -> tuple[str, Inputs, str]:
    batch, channels, height, width, filters, r, s = question.dims
    x, weight = (batch, channels, height, width), (filters, channels, r, s)
    padding = f"[{r // 2}, {s // 2}]"
    concrete = ["", "", "", "[1, 1]", padding, "[1, 1]", "False", "[0, 0]", "1"]
    return "aten::convolution", _inputs(question, x, weight, *[()] * 7, concrete=concrete), ""


def _attention(question: Question) -> tuple[str, Inputs, str]:
    batch, heads, queries, size, *keys = question.dims
    q, kv = (batch, heads, queries, size), (batch, heads, keys[0] if keys else queries, size)
    return ATTENTION, _inputs(question, q, kv, (), concrete=["forward", "False"]), "sdpa"


def _pointwise(question: Question) -> tuple[str, Inputs, str]:
    tensors = [question.dims] * question.reads
    return POINTWISE[question.reads], _inputs(question, *tensors, concrete=[""] * question.reads), ""


def _norm(question: Question) -> tuple[str, Inputs, str]:
    width = question.dims[-1:]
    concrete = ["", f"[{width[0]}]", "", "", "1e-05"]
    return (
        "aten::native_layer_norm",
        _inputs(question, question.dims, (), width, width, concrete=concrete),
        "",
    )


def _optimizer(question: Question) -> tuple[str, Inputs, str]:
    whole, rest = divmod(question.dims[0], PIECE)
    shapes: list[int | list[int]] = [*([PIECE] for _ in range(whole)), *([[rest]] if rest else [])]
    return OPTIMIZER, Inputs([shapes], [FORMATS[question.format]], [], ["AdamW", "True"]), "fused"


_MULTIPLY = ("matmul", "conv", "attention")  # on the units that TF32 is a format of
_RECORDED: dict[str, Callable[[Question], tuple[str, Inputs, str]]] = {
    "matmul": _matmul,
    "conv": _conv,
    "attention": _attention,
    "pointwise": _pointwise,
    "norm": _norm,
    "optimizer": _optimizer,
}
