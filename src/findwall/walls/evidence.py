"""What carries a cause on the device: its kernels merged and named, with their shapes and rates.

Every figure is a step's. What the trace does not say is left out of a text, or named as missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.messages import collective_name
from findwall.attribute.unmeasured import cores_at_work
from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.attribute.workmodel.lookup import op_work
from findwall.model.diagnosis import Evidence
from findwall.units import format_ms, format_share, ms
from findwall.walls.places import line_of

IDLE = 0.25  # of the cores: fewer are what any job leaves
TOP = 3
LONGEST_NAME = 56
SHORT_TYPES = {
    "float": "fp32",
    "double": "fp64",
    "c10::half": "fp16",
    "c10::bfloat16": "bf16",
    "long int": "int64",
    "int": "int32",
    "signed char": "int8",
    "unsigned char": "uint8",
}


@dataclass(frozen=True, slots=True)
class Carrier:
    """Device rows of one cause with the same kernel, op and shapes."""

    kernel: str
    op: str | None
    op_row: int  # of the longest of them; -1 unknown
    atom: int  # the longest of them
    ms: float
    calls: float
    floor_ms: float | None

    @property
    def reached(self) -> float | None:
        """Share of the ceiling: what must remain over what is spent."""
        return None if self.floor_ms is None or self.ms <= 0 else min(self.floor_ms / self.ms, 1.0)


def carriers(facts: Facts, cause: str, limit: int = TOP) -> list[Carrier]:
    """The kernels that carry a cause, longest first."""
    atoms = facts.atoms.of(cause)
    if len(atoms) == 0:
        return []
    group, width = _groups(facts, atoms)
    own = facts.own[atoms]
    total = np.bincount(group, own, minlength=width)
    calls = np.bincount(group, minlength=width) / facts.steps.count
    with np.errstate(invalid="ignore", divide="ignore"):
        floor = facts.atoms.floor[atoms] * (own / facts.atoms.own[atoms])
    floor_total = np.bincount(group, floor, minlength=width)
    order = np.lexsort((-own, group))
    longest = atoms[order[np.searchsorted(group[order], np.arange(width))]]
    found = [
        Carrier(
            facts.kernel_name(atom),
            facts.op_name(atom),
            facts.op_row(atom),
            atom,
            ms(float(total[at])),
            float(calls[at]),
            None if np.isnan(floor_total[at]) or not facts.ceilings.known else ms(float(floor_total[at])),
        )
        for at, atom in _longest_groups(total, longest, limit)
    ]
    # Equal times are told apart by name: the order must not depend on the file's order.
    return sorted(found, key=lambda one: (-one.ms, one.kernel, one.op or ""))[:limit]


def _longest_groups(total: np.ndarray, longest: np.ndarray, limit: int) -> list[tuple[int, int]]:
    least = np.sort(total)[::-1][min(limit, len(total)) - 1]
    wanted = np.flatnonzero((total >= least) & (total > 0))[: 16 * limit]
    return [(at, int(longest[at])) for at in wanted.tolist()]


def _groups(facts: Facts, atoms: np.ndarray) -> tuple[np.ndarray, int]:
    """A number for each distinct (kernel name, op name, recorded inputs)."""
    events = facts.timeline.events
    index = facts.atoms.index[atoms]
    op = facts.kernels.op[index]
    op_name = np.where(op >= 0, events.name[np.maximum(op, 0)], -1).astype(np.int64) + 1
    inputs = np.where(op >= 0, events.inputs[np.maximum(op, 0)], -1).astype(np.int64) + 1
    key = events.name[facts.kernels.row[index]].astype(np.int64)
    key = (key * (len(facts.timeline.names) + 1) + op_name) * (
        len(facts.timeline.details.inputs) + 1
    ) + inputs
    distinct, group = np.unique(key, return_inverse=True)
    return group.reshape(-1), len(distinct)


# -- words -----------------------------------------------------------------------------------------


def opening(facts: Facts, cause: str) -> str:
    """ "15.5 ms of the 41.3 ms step (37 %)"."""
    spent, step = facts.spent_ms(cause), format_ms(ms(facts.step))
    if spent <= 0:
        return f"Nothing of the {step} step"
    return f"{format_ms(spent)} of the {step} step ({format_share(facts.share(cause))})"


def gain(facts: Facts, cause: str) -> str:
    """The upper bound of what a fix gives back, as the end of a sentence."""
    value = facts.recoverable_ms(cause)
    if value is None:
        return f"how much comes back is unknown because {missing(facts) or 'these kernels have no model'}"
    work = ms(float(facts.own[facts.atoms.of(cause)].sum()))
    # Idle time is known without any floor.
    doubtful = missing(facts) if work > 0.5 * facts.spent_ms(cause) else None
    doubt = f" (a rough figure, because {doubtful})" if doubtful else ""
    return f"at most {format_ms(value)} come back{doubt}" if value > 0 else "nothing of it comes back"


def on_cores(facts: Facts) -> bool:
    """A CPU job: the device is the cores, and its kernels are the ops themselves."""
    return facts.rank.device_kind == "cpu"


def device_word(facts: Facts) -> str:
    return "CPU" if on_cores(facts) else "GPU"


@dataclass(frozen=True, slots=True)
class CoresInUse:
    """Of a CPU job: how many cores its ops keep busy at the most, and how many nobody does."""

    cores: int
    used: float
    idle: float  # 0 where too few for anybody to notice


def cores_in_use(facts: Facts) -> CoresInUse | None:
    """None where it is no CPU job or nobody counted."""
    likely = facts.reading.likely
    used = cores_at_work(facts.rank.telemetry, likely.busy / max(likely.step, 1.0))
    cpu = facts.rank.telemetry.cpu
    if used is None or cpu is None or not cpu.cores or not on_cores(facts):
        return None
    idle = cpu.cores * (1.0 - used) - (cpu.others_busy or 0.0)
    return CoresInUse(cpu.cores, cpu.cores * used, idle if idle >= IDLE * cpu.cores else 0.0)


def pieces(facts: Facts) -> str:
    return "ops" if on_cores(facts) else "kernels"


def missing(facts: Facts) -> str | None:
    """What keeps floors from being known, if anything does; ends a sentence."""
    if not facts.ceilings.known:
        name = facts.ceilings.device or "the trace does not name it"
        return f"this {device_word(facts)}'s ceilings are not known ({name})"
    if not facts.timeline.header.shapes and not facts.timeline.details.inputs:
        return "the trace has no shapes (record_shapes=True)"
    return None


def calls_text(calls: float) -> str:
    if calls < 0.95:
        return f"{calls:.2g} calls a step"
    return "1 call" if calls < 1.05 else f"{calls:,.0f} calls"


_WRAPPER = re.compile(r"gpu_|[AB]?(?:Unary|Binary)|func_wrapper")
_FUNCTOR = re.compile(r"(\w*(?:Functor|_kernel_cuda|_kernel_impl|_cuda|Op|Ops))\b")


def short_kernel(name: str) -> str:
    """A kernel's name without return type, namespaces, template noise and arguments."""
    if name.startswith(("Memcpy", "Memset")):
        return name
    name = name.replace("(anonymous namespace)::", "")
    path = _before_templates(name)
    base = path.rpartition("::")[2] or name
    inner = name.partition("<")[2]
    if base in ("Kernel", "Kernel2"):  # CUTLASS: the wrapper is always called so
        return shorten(_before_templates(inner.removesuffix(">")).split(">")[0].rpartition("::")[2] or base)
    telling = [word for word in _FUNCTOR.findall(inner) if not _WRAPPER.match(word)]
    text = f"{base}<{telling[0]}>" if telling and "elementwise" in base else base
    return shorten(text)


def _before_templates(name: str) -> str:
    name = name.removeprefix("void ").removeprefix("static ").removeprefix("std::enable_if")
    cut = [at for at in (name.find("<"), name.find("(")) if at > 0]
    return name[: min(cut)].strip() if cut else name.strip()


def shorten(text: str, width: int = LONGEST_NAME) -> str:
    """Cut in the middle: both ends of a name tell it apart."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[-(width - 1 - head) :]}"


# -- shapes ----------------------------------------------------------------------------------------


def tensors_of(facts: Facts, op_row: int) -> list[Tensor]:
    """The op's tensor arguments; empty where shapes were not recorded."""
    inputs = facts.timeline.inputs_of(op_row) if op_row >= 0 else None
    return Arguments(inputs).tensors() if inputs is not None else []


def _first_of_list(facts: Facts, op_row: int) -> list[Tensor]:
    """The first tensor of the first list argument (cat, stack, foreach)."""
    inputs = facts.timeline.inputs_of(op_row) if op_row >= 0 else None
    return Arguments(inputs).tensor_list(0)[:1] if inputs is not None else []


def shape(tensor: Tensor) -> str:
    return "[" + "×".join(str(extent) for extent in tensor.dims) + "]"


def short_type(dtype: str) -> str:
    return SHORT_TYPES.get(dtype.lower(), dtype.rpartition("::")[2].lower())


def shapes_text(facts: Facts, op_row: int, most: int = 2) -> str:
    """ "[8192×768]·[768×50257] bf16"; empty where nothing was recorded."""
    tensors = tensors_of(facts, op_row) or _first_of_list(facts, op_row)
    if not tensors:
        return ""
    name = facts.timeline.name_of(op_row)
    if "mm" in name.rpartition("::")[2] and len(tensors) >= 2:
        tensors = [tensor for tensor in tensors if len(tensor.dims) >= 2][-2:] or tensors
    shown = tensors[:most]
    sign = "·" if "mm" in name else ", "
    return sign.join(shape(tensor) for tensor in shown) + f" {short_type(shown[0].dtype)}"


def odd_dims(facts: Facts, op_row: int) -> list[int]:
    """The op's dims that keep 16-bit operands off the fast kernels."""
    if op_row < 0:
        return []
    work = op_work(facts.timeline.name_of(op_row), facts.timeline.inputs_of(op_row))
    named = [text.rpartition(":")[2] for text in work.misaligned] if work is not None else []
    return sorted({int(text) for text in named if text.isdigit()}, reverse=True)


def padded(extent: int) -> int:
    """The size to pad to: a multiple of 64 where that adds little, of 8 at least."""
    for multiple in (64, 32, 16):
        rounded = -(-extent // multiple) * multiple
        if rounded <= 1.02 * extent:
            return rounded
    return -(-extent // 8) * 8


# -- evidence --------------------------------------------------------------------------------------


def name_carrier(facts: Facts, carrier: Carrier) -> str:
    """ "aten::addmm [8192×768]·[768×50257] bf16 (ampere_bf16_s1688gemm…align1)"."""
    kernel = short_kernel(carrier.kernel)
    if facts.kernel_class(carrier.atom) == "collective":
        return f"{_doing(facts, carrier)} ({kernel})"
    if carrier.op is None:
        return kernel
    described = f"{carrier.op} {shapes_text(facts, carrier.op_row)}".strip()
    return described if on_cores(facts) else f"{described} ({kernel})"


def kernel_evidence(facts: Facts, cause: str, note: str = "") -> list[Evidence]:
    """The three longest carriers; `note` says what `reached` is a share of, empty to leave it out."""
    found = []
    for carrier in carriers(facts, cause):
        parts = [calls_text(carrier.calls), format_ms(carrier.ms)]
        if note and carrier.reached is not None:
            parts.append(f"{format_share(carrier.reached)} of {note}")
        found.append(as_evidence(facts, carrier, f"{name_carrier(facts, carrier)}: {', '.join(parts)}"))
    return found


def as_evidence(facts: Facts, carrier: Carrier, text: str) -> Evidence:
    line = line_of(facts, carrier.op_row)
    if line is not None:
        text += f", at {line}"
    return Evidence(text, carrier.kernel, carrier.op, line, carrier.ms)


def _doing(facts: Facts, carrier: Carrier) -> str:
    """What a carrier does, in one name."""
    if facts.kernel_class(carrier.atom) == "collective":
        row = int(facts.kernels.row[facts.atoms.index[carrier.atom]])
        return collective_name(facts.timeline, facts.links, row)
    return carrier.op or short_kernel(carrier.kernel)


def ops_named(facts: Facts, cause: str, most: int = 3) -> str:
    """The ops that carry a cause: "mul, add and tanh"."""
    seen: dict[str, float] = {}
    for carrier in carriers(facts, cause, 12):
        name = shorten(_doing(facts, carrier).removeprefix("aten::"), 40)
        seen[name] = seen.get(name, 0.0) + carrier.ms
    return listed(sorted(seen, key=lambda name: (-seen[name], name))[:most])


def listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
