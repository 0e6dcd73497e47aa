"""The wall of an op and shape before anyone runs it.

\b
OP and SHAPE are one of
  matmul     MxKxN             rows times a matrix, as in 8x4096x4096
  conv       NxCxHxWxKxRxS     K filters RxS; stride 1, same padding
  attention  BxHxSxD[xT]       S queries on T keys (default: S), without a mask
  pointwise  SHAPE             reads --reads tensors, writes one
  norm       ROWSxWIDTH        layer or RMS norm, forward
  optimizer  COUNT             a fused AdamW step of so many parameters
  decode     BATCHxPARAMETERS  one step of a model with so many weights

Counts may be written as 7B, 350M, 20k or 1.3e9. FORMAT is fp64, fp32, tf32, bf16, fp16, fp8 or int8.
Needs no GPU and no torch.
"""

from __future__ import annotations

import difflib
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from findwall.errors import InputError

if TYPE_CHECKING:
    from findwall.attribute.onpaper import Paper, Question
    from findwall.model.machine import Ceilings

_TIMES = re.compile(r"\s*[xX×]\s*")
_PLAIN = re.compile(r"[0-9]{1,16}")
_COUNT = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,16})?(?:[eE]\+?[0-9]{1,2})?)([kKmMbBgGtT]?)")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
LARGEST = 10**15  # of one size: far beyond any tensor, and its products are still finite
# Sizes that count something and may be written with a suffix. A "4k" in a shape could be 4000 or 4096.
_COUNTS = {"pointwise": range(8), "optimizer": range(1), "decode": range(1, 2)}
_MAKERS = ("", "NVIDIA ", "NVIDIA GeForce ", "AMD Instinct ")  # that people leave out
MOST_NEAR = 3
THOUSANDS_FROM = 10**6  # of a size: from here on nobody counts its digits
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


@click.command("op", help=__doc__)
@click.argument("op")
@click.argument("shape")
@click.argument("number_format", metavar="FORMAT")
@click.option("--gpu", metavar="NAME", help="A GPU by its driver's name. Default: the one measured here.")
@click.option("--reads", type=click.IntRange(1, 1000), metavar="N", help="Tensors a pointwise op reads.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the figures as JSON; - for stdout only.")
def command(
    op: str, shape: str, number_format: str, gpu: str | None, reads: int | None, json_target: str | None
) -> None:
    from findwall.attribute.onpaper import on_paper

    question = parse(op, shape, number_format, reads)
    paper = on_paper(question, ceilings_of(gpu))
    if json_target is not None:
        from findwall.cli.ceilings import write_json

        write_json(document(paper), json_target)
    if json_target != "-":
        from findwall.report.stream import say

        say(to_text(paper))


# -- what a person asked ---------------------------------------------------------------------------------


def parse(op: str, shape: str, number_format: str, reads: int | None = None) -> Question:
    """The question in the words of the command line; InputError says how to write it."""
    from findwall.attribute.onpaper import FORMATS, OPS, Question

    op, number_format = op.strip().lower(), number_format.strip().lower()
    if op not in OPS:
        raise InputError(f"there is no op '{op}'", _near(op, list(OPS), "Known ops"))
    if number_format not in FORMATS:
        raise InputError(
            f"there is no format '{number_format}'", _near(number_format, list(FORMATS), "Known formats")
        )
    if number_format not in OPS[op].formats:
        formats = ", ".join(OPS[op].formats)
        raise InputError(f"{op} has no single {number_format} form", f"Ask for one of {formats}.")
    if reads is not None and op != "pointwise":
        raise InputError(f"--reads does not go with {op}", "Leave it out: it is for pointwise ops.")
    return Question(op, _sizes(op, shape), number_format, reads or 1)


def _near(name: str, known: list[str], label: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"{label}: {', '.join(known)}."


def _sizes(op: str, shape: str) -> tuple[int, ...]:
    from findwall.attribute.onpaper import OPS

    asked, words = OPS[op], _TIMES.split(shape.strip())
    hint = f"Write {op} as {asked.shape}, as in {asked.example}."
    fewest, most = asked.ranks
    if not fewest <= len(words) <= most:
        wanted = str(most) if fewest == most else f"{fewest} to {most}"
        raise InputError(f"'{shape}' has {len(words)} sizes and {op} takes {wanted}", hint)
    sizes = [_size(word, at in _COUNTS.get(op, ())) for at, word in enumerate(words)]
    for word, size in zip(words, sizes, strict=True):
        if size is None:
            raise InputError(f"'{word}' in '{shape}' is not a whole number above zero", hint)
        if size > LARGEST:
            raise InputError(f"{word} in '{shape}' is too large", f"Give sizes up to {LARGEST:.0e}.")
    return tuple(size for size in sizes if size is not None)


def _size(word: str, is_count: bool) -> int | None:
    """A whole number above zero, or None."""
    found = (_COUNT if is_count else _PLAIN).fullmatch(word)
    if found is None:
        return None
    number, suffix = found.groups() if is_count else (word, "")
    size = Fraction(number) * _SUFFIXES[suffix.lower()]
    return int(size) if size > 0 and size.denominator == 1 else None


def ceilings_of(gpu: str | None) -> Ceilings:
    """What was measured of a GPU on this machine, else the table's figures."""
    from findwall.hardware import GPUS, table_ceilings
    from findwall.measure.ceilings import kept_gpus

    kept = kept_gpus()
    if gpu is None:
        if kept:
            return kept[0]
        raise InputError(
            "no GPU was measured on this machine, so one must be named",
            'Add --gpu NAME, as in --gpu "NVIDIA H200", or run `findwall ceilings` where the GPU is.',
        )
    measured = {ceilings.device: ceilings for ceilings in kept}
    known = {name.lower(): name for name in (*GPUS, *measured)}
    wanted = " ".join(gpu.split())
    name = next((known[full] for maker in _MAKERS if (full := f"{maker}{wanted}".lower()) in known), None)
    if name is None:
        raise InputError(f"no GPU called '{gpu}' is in the table", _near_gpu(wanted.lower(), known))
    return measured.get(name) or table_ceilings(name)


def _near_gpu(wanted: str, known: dict[str, str]) -> str:
    holding = [name for name in known if wanted and wanted in name]
    close = list(dict.fromkeys([*holding, *difflib.get_close_matches(wanted, known)]))[:MOST_NEAR]
    if not close:
        return 'Give the name its driver reports, as in --gpu "NVIDIA H200".'
    return f"Did you mean {' or '.join(repr(known[name]) for name in close)}?"


# -- the answer ------------------------------------------------------------------------------------------


def document(paper: Paper) -> dict[str, Any]:
    """The figures of the screen, for programs. Unknown is null."""
    from findwall.attribute.onpaper import LEAST_KERNEL_S, unit_of

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
        "sentence": sentence(paper),
        "unit": unit_of(question),
        "changes": [{"from": region.first, "wall": region.wall} for region in paper.regions],
        "padded": "x".join(map(str, paper.aligned.dims)) if paper.aligned else None,
    }


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def to_text(paper: Paper) -> str:
    """The screen: the wall and what to do, then the figures it rests on."""
    import textwrap

    from findwall.attribute.onpaper import LEAST_KERNEL_S, OPS

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
        ("change", changes(paper)),
    ]  # fmt: skip
    lines = [f"{_title(paper)} · {ceilings.device} · {_source(ceilings)}", ""]
    lines += [f"THE WALL: {paper.wall} / {paper.cause}", *textwrap.wrap(sentence(paper), 80), ""]
    for label, text in rows:
        lines += textwrap.wrap(f"  {label:<10}{text}", 80, subsequent_indent=" " * 12)
    if ceilings.doubt:
        lines += ["", *textwrap.wrap(f"Note: {ceilings.doubt}, so these ceilings may be too low.", 80)]
    return "\n".join(lines) + "\n"


def sentence(paper: Paper) -> str:
    """The wall in words: the number first, the action last."""
    return {
        "launch-bound": _launch_bound,
        "misaligned-shapes": _misaligned,
        "memory-roof": _memory_roof,
        "fast-path-off": _fast_path_off,
        "at-the-roof": _at_the_roof,
    }[paper.cause](paper)


def _launch_bound(paper: Paper) -> str:
    return (
        f"{_time(paper.floor_s)} is about the least that any kernel takes, and the work itself needs"
        f" {_time(paper.work_s)}. Fuse it with its neighbours, or give one call more to do."
    )


def _misaligned(paper: Paper) -> str:
    from findwall.attribute.onpaper import on_paper

    question, aligned = paper.question, paper.aligned
    assert aligned is not None
    pairs = dict.fromkeys(
        (size, wider) for size, wider in zip(question.dims, aligned.dims, strict=True) if size != wider
    )
    sizes = " and ".join(str(size) for size, _ in pairs)
    verb = "is not a multiple" if len(pairs) == 1 else "are not multiples"
    then = on_paper(aligned, paper.ceilings)
    return (
        f"{_time(paper.floor_s)} is the floor, but a 16-bit {question.op} may fall back to slow kernels"
        f" because {sizes} {verb} of 8. Pad {' and '.join(f'{a} to {b}' for a, b in pairs)}:"
        f" {_shape(aligned)} has a floor of {_time(then.floor_s)} and meets {then.wall} / {then.cause}."
    )


def _memory_roof(paper: Paper) -> str:
    from findwall.attribute.onpaper import OPS

    fact = (
        f"{_time(paper.floor_s)} is the floor: {_amount(paper.nbytes, 'B')} moved at"
        f" {_amount(paper.ceilings.bandwidth, 'B/s')}."
    )
    if paper.question.op in ("pointwise", "norm"):
        return f"{fact} Fuse it with its neighbours, so that fewer tensors go through memory."
    shared = OPS[paper.question.op].shared
    if shared and paper.regions[-1].wall == "compute":
        unit = OPS[paper.question.op].unit
        return f"{fact} Move fewer bytes (a narrower format), or let more {unit} share the {shared}."
    return f"{fact} Only fewer bytes (a narrower format) or a GPU with more bandwidth shortens it."


def _fast_path_off(paper: Paper) -> str:
    assert paper.fast is not None
    rate = paper.ceilings.flops[paper.fast]
    reach = max(paper.flops / rate, paper.achievable.memory_s)
    how = "Let it run in TF32" if paper.fast == "tf32" else f"Run it under autocast in {paper.fast}"
    return (
        f"{_time(paper.floor_s)} is the floor in fp32, although tensor cores could do the work."
        f" {how}; that brings the floor to {_time(reach)}."
    )


def _at_the_roof(paper: Paper) -> str:
    rate = _amount(paper.ceilings.flops.get(paper.math), "FLOP/s")
    return (
        f"{_time(paper.floor_s)} is the floor: {_amount(paper.flops, 'FLOP')} at {rate}."
        " Only a lower precision, less work or a faster GPU shortens it."
    )


def changes(paper: Paper) -> str:
    """At which number of rows the wall changes."""
    from findwall.attribute.onpaper import unit_of

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
    from findwall.units import format_ms

    if seconds >= 1e-3:
        return format_ms(seconds * 1e3)
    return f"{seconds * 1e6:.3g} us" if seconds >= 1e-9 else "< 0.001 us"


def _amount(value: float | None, unit: str) -> str:
    """ "137 GFLOP", "4.32 TB/s"."""
    if value is None:
        return f"unknown {unit}"
    prefix, size = next(((name, size) for name, size in _PREFIXES if value >= size), ("", 1.0))
    return f"{value / size:.4g} {prefix}{unit}" if value < 1e18 else f"{value:.3g} {unit}"
