"""The answer of `findwall op` as one screen and as JSON: the wall on paper, and what running it here gave."""

from __future__ import annotations

import textwrap
from typing import Any

from findwall.model.machine import Ceilings
from findwall.op.op_on_paper import LEAST_KERNEL_S, OPS, Paper, Question, on_paper, unit_of
from findwall.op.op_probes import Probed, Way, better_way, gains_nothing, is_contradicted, state_of
from findwall.report.printable_names import clean
from findwall.units import format_ms

THOUSANDS_FROM = 10**6  # of a size: from here on nobody counts its digits
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
NOT_RUN = Probed(tells=False)


def document(paper: Paper, probed: Probed = NOT_RUN) -> dict[str, Any]:
    """The figures of the screen, for programs. Unknown is null."""
    question, here, spec = paper.question, paper.achievable, paper.spec
    return {
        "schema": "findwall-op/1",
        "op": question.op,
        "shape": "x".join(map(str, question.dims)),
        "format": question.format,
        "reads": question.reads if question.op == "pointwise" else None,
        "device": paper.ceilings.device,
        "ceilings": paper.ceilings.source,
        "arithmetic": paper.math,
        "flops": paper.flops,
        "bytes": paper.nbytes,
        "intensity": paper.intensity,
        "ridge": here.ridge,
        "compute_us": _us(here.compute_s),
        "memory_us": _us(here.memory_s),
        "launch_us": _us(LEAST_KERNEL_S),
        "floor_us": _us(paper.floor_s),
        "spec_ridge": spec.ridge if spec else None,
        "spec_compute_us": _us(spec.compute_s) if spec else None,
        "spec_memory_us": _us(spec.memory_s) if spec else None,
        "wall": paper.wall,
        "cause": paper.cause,
        "sentence": sentence(paper, probed),
        "unit": unit_of(question),
        "changes": [{"from": region.first, "wall": region.wall} for region in paper.regions],
        "padded": "x".join(map(str, paper.aligned.dims)) if paper.aligned else None,
        "fast": paper.fast,
        "probed_us": _us(probed.here_s),
        "probed_padded_us": _us(probed.seconds.get("padded")),
        "probed_fast_us": _us(probed.seconds.get("fast")),
        "probed_channels_last_us": _us(probed.seconds.get("channels-last")),
        "probed_agrees": None if probed.here_s is None else not is_contradicted(paper, probed),
        "probed_why_not": clean(probed.why_not) or None,
    }


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def to_text(paper: Paper, probed: Probed = NOT_RUN) -> str:
    """The screen: the wall and what to do, then the figures it rests on."""
    here, spec, ceilings = paper.achievable, paper.spec, paper.ceilings
    arithmetic = "" if paper.math == paper.question.format else f" in {paper.math}"
    rows = [
        ("work", f"{_amount(paper.flops, 'FLOP')}{arithmetic}, {_amount(paper.nbytes, 'B')}"
                 f" ({OPS[paper.question.op].counted.format(reads=paper.question.reads)})"),
        ("intensity", f"{_figure(paper.intensity)} FLOP/byte; {_ridge(paper)}"),
        ("compute", _at(here.compute_s, ceilings.flops.get(paper.math), "FLOP/s")
                    + _spec(spec.compute_s if spec else None, ceilings.spec_flops.get(paper.math), "FLOP/s")),
        ("memory", _at(here.memory_s, ceilings.bandwidth, "B/s")
                   + _spec(spec.memory_s if spec else None, ceilings.spec_bandwidth, "B/s")),
        ("launch", f"{_time(LEAST_KERNEL_S)}, about the least that any kernel takes"
                   " (seen on an H200: 1.3 to 3 us)"),
        ("floor", f"{_time(paper.floor_s)}, the largest of the three"),
        ("probed", _probed(paper, probed)),
        ("change", changes(paper)),
    ]  # fmt: skip
    title = "THE WALL ON PAPER" if is_contradicted(paper, probed) else "THE WALL"
    lines = [f"{_title(paper)} · {ceilings.device} · {_source(ceilings)}", ""]
    lines += [f"{title}: {paper.wall} / {paper.cause}", *textwrap.wrap(sentence(paper, probed), 80), ""]
    for label, text in rows:
        if text:
            lines += textwrap.wrap(f"  {label:<10}{text}", 80, subsequent_indent=" " * 12)
    if ceilings.doubt:
        lines += ["", *textwrap.wrap(f"Note: {ceilings.doubt}, so these ceilings may be too low.", 80)]
    return "\n".join(lines) + "\n"


def sentence(paper: Paper, probed: Probed = NOT_RUN) -> str:
    """The wall in words: the number first, the action last. What was measured comes before the paper."""
    here_s = probed.here_s
    if here_s is not None:
        better, useless = better_way(paper, probed), gains_nothing(paper, probed)
        if better is not None:
            return _better(paper, better, here_s, probed.seconds[better])
        if useless is not None:
            return _useless(paper, useless, here_s, probed.seconds[useless])
        if is_contradicted(paper, probed):
            return _slow(paper, here_s)
    return {
        "launch-bound": _launch_bound,
        "misaligned-shapes": _misaligned,
        "memory-roof": _memory_roof,
        "fast-path-off": _fast_path_off,
        "at-the-roof": _at_the_roof,
    }[paper.cause](paper, _floor(paper, here_s))


def _floor(paper: Paper, here_s: float | None) -> str:
    if here_s is not None and state_of(paper, here_s) == "below":
        return f"{_time(here_s)} here is less than the floor on paper, {_time(paper.floor_s)}"
    return f"{_time(paper.floor_s)} is the floor"


def _launch_bound(paper: Paper, _floor: str) -> str:
    return (
        f"{_time(paper.floor_s)} is about the least that any kernel takes, and the work itself needs"
        f" {_time(paper.work_s)}. Fuse it with its neighbours, or give one call more to do."
    )


def _misaligned(paper: Paper, floor: str) -> str:
    aligned = paper.aligned
    assert aligned is not None
    odd, pad = _padding(paper)
    then = on_paper(aligned, paper.ceilings)
    return (
        f"{floor}, but a 16-bit {paper.question.op} may fall back to slow kernels because {odd}. {pad}:"
        f" {_shape(aligned)} has a floor of {_time(then.floor_s)} and meets {then.wall} / {then.cause}."
    )


def _padding(paper: Paper) -> tuple[str, str]:
    """Which sizes do not fit, and what to do about them."""
    assert paper.aligned is not None
    dims = zip(paper.question.dims, paper.aligned.dims, strict=True)
    pairs = dict.fromkeys((size, wider) for size, wider in dims if size != wider)
    sizes = " and ".join(str(size) for size, _ in pairs)
    verb = "is not a multiple" if len(pairs) == 1 else "are not multiples"
    return f"{sizes} {verb} of 8", f"Pad {' and '.join(f'{size} to {wider}' for size, wider in pairs)}"


def _memory_roof(paper: Paper, floor: str) -> str:
    fact = f"{floor}: {_amount(paper.nbytes, 'B')} moved at {_amount(paper.ceilings.bandwidth, 'B/s')}."
    if paper.question.op in ("pointwise", "norm"):
        return f"{fact} Fuse it with its neighbours, so that fewer tensors go through memory."
    shared = OPS[paper.question.op].shared
    if shared and paper.regions[-1].wall == "compute":
        unit = OPS[paper.question.op].unit
        return f"{fact} Move fewer bytes (a narrower format), or let more {unit} share the {shared}."
    return f"{fact} Only fewer bytes (a narrower format) or a GPU with more bandwidth shortens it."


def _fast_path_off(paper: Paper, floor: str) -> str:
    assert paper.fast is not None
    rate = paper.ceilings.flops[paper.fast]
    reach = max(paper.flops / rate, paper.achievable.memory_s)
    return (
        f"{floor} in fp32, although tensor cores could do the work."
        f" {_go_fast(paper.fast)}; that brings the floor to {_time(reach)}."
    )


def _go_fast(fast: str) -> str:
    return "Let it run in TF32" if fast == "tf32" else f"Run it under autocast in {fast}"


def _at_the_roof(paper: Paper, floor: str) -> str:
    rate = _amount(paper.ceilings.flops.get(paper.math), "FLOP/s")
    return (
        f"{floor}: {_amount(paper.flops, 'FLOP')} at {rate}."
        " Only a lower precision, less work or a faster GPU shortens it."
    )


# -- what running it here gave ---------------------------------------------------------------------------


def _better(paper: Paper, way: Way, here_s: float, better_s: float) -> str:
    here, then = _time(here_s), _time(better_s)
    if way == "padded":
        odd, pad = _padding(paper)
        return (
            f"{here} here and {then} once padded: {odd}, so this 16-bit {paper.question.op} falls back to"
            f" slow kernels. {pad}."
        )
    if way == "fast":
        return (
            f"{here} here in fp32 and {then} in {paper.fast}, on tensor cores. {_go_fast(paper.fast or '')}."
        )
    return (
        f"{here} here and {then} with channels-last tensors. Give it those:"
        " x.to(memory_format=torch.channels_last)."
    )


def _useless(paper: Paper, way: Way, here_s: float, other_s: float) -> str:
    here, other = _time(here_s), _time(other_s)
    advice = _other_kernels(paper) if state_of(paper, here_s) == "slow" else ""
    if way == "padded":
        fact = f"{here} here and {other} once padded, so padding gains nothing."
        return f"{fact} {advice or 'Leave its sizes as they are.'}"
    fact = f"{here} here in fp32 and {other} in {paper.fast}, so tensor cores gain nothing."
    return f"{fact} {advice or 'Leave its format as it is.'}"


def _slow(paper: Paper, here_s: float) -> str:
    what = "slow or many kernels hold" if paper.cause == "launch-bound" else "slow kernels hold"
    return (
        f"{_time(here_s)} here is {_times(paper, here_s)} the floor of {_time(paper.floor_s)}:"
        f" {what} it up, not the roof. {_other_kernels(paper)}"
    )


def _other_kernels(paper: Paper) -> str:
    if paper.question.op == "conv":
        return "Let cuDNN try out its kernels: torch.backends.cudnn.benchmark = True."
    return "Let torch.compile choose other kernels, or give one call more to do."


def _probed(paper: Paper, probed: Probed) -> str:
    """The row of the screen; empty where there is nothing to say."""
    here_s = probed.here_s
    if here_s is None:
        return f"not run here: {clean(probed.why_not)}" if probed.tells and probed.why_not else ""
    near = f"{_time(here_s)} here, {_times(paper, here_s)} the floor"
    is_compute = (paper.achievable.compute_s or 0.0) > paper.achievable.memory_s
    reason = (
        "these ceilings are too low"
        if is_compute
        else "some bytes stayed in the cache, or the ceilings are low"
    )
    first = {
        "near": near,
        "below": f"{_time(here_s)} here, less than the floor: {reason}",
        "short": f"{near}: too short to come near it",
        "slow": f"{near}, far above it: slow kernels, not the roof",
    }[state_of(paper, here_s)]
    labels: dict[Way, str] = {
        "padded": f"padded to {_shape(paper.aligned)}" if paper.aligned else "",
        "fast": f"in {paper.fast}",
        "channels-last": "channels-last",
    }
    others = [
        f"{label}: {_time(probed.seconds[way])}" for way, label in labels.items() if way in probed.seconds
    ]
    return "; ".join((first, *others))


def _times(paper: Paper, seconds: float) -> str:
    ratio = seconds / paper.floor_s
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:,.0f} times"


# -- figures ---------------------------------------------------------------------------------------------


def changes(paper: Paper) -> str:
    """At which number of rows the wall changes."""
    unit, first, *later = unit_of(paper.question), *paper.regions
    if later:
        told = [f"below {later[0].first:,} {unit} it is {first.wall}."]
        told += [f"From {one.first:,} {unit} on it is {one.wall}." for one in later]
    else:
        told = [f"at every number of {unit} it is {first.wall}."]
    text = " ".join(told)
    return f"Once padded, {text}" if paper.aligned else text[0].upper() + text[1:]


def _title(paper: Paper) -> str:
    return f"{paper.question.op} {_shape(paper.question)} {paper.question.format}"


def _shape(question: Question) -> str:
    return "×".join(f"{size:,}" if size >= THOUSANDS_FROM else str(size) for size in question.dims)


def _source(ceilings: Ceilings) -> str:
    return "ceilings measured here" if ceilings.source == "measured" else "ceilings from the table"


def _ridge(paper: Paper) -> str:
    here, spec = paper.achievable.ridge, paper.spec.ridge if paper.spec else None
    if here is None:
        return "the ridge is unknown"
    return f"the ridge is at {_figure(here)}" + (f" (spec: {_figure(spec)})" if spec is not None else "")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _at(seconds: float | None, rate: float | None, unit: str) -> str:
    return "unknown" if seconds is None else f"{_time(seconds)} at {_amount(rate, unit)}"


def _spec(seconds: float | None, rate: float | None, unit: str) -> str:
    return "" if seconds is None else f" (spec: {_time(seconds)} at {_amount(rate, unit)})"


def _time(seconds: float) -> str:
    """Three figures, also of less than a microsecond."""
    if seconds >= 1e-3:
        return format_ms(seconds * 1e3)
    return f"{seconds * 1e6:.3g} us" if seconds >= 1e-9 else "< 0.001 us"


def _amount(value: float | None, unit: str) -> str:
    """ "137 GFLOP", "4.32 TB/s"."""
    if value is None:
        return f"unknown {unit}"
    prefix, size = next(((name, size) for name, size in _PREFIXES if value >= size), ("", 1.0))
    return f"{value / size:.4g} {prefix}{unit}" if value < 1e18 else f"{value:.3g} {unit}"
