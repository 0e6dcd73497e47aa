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
Needs no GPU and no torch. Where the GPU asked about is here, the op is also run on it.
"""

from __future__ import annotations

import difflib
import re
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from findwall.errors import InputError

if TYPE_CHECKING:
    from findwall.model.machine import Ceilings
    from findwall.op.op_on_paper import Question

_TIMES = re.compile(r"[xX×]")
_PLAIN = re.compile(r"[0-9]{1,16}")
_COUNT = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,16})?(?:[eE]\+?[0-9]{1,2})?)([kKmMbBgGtT]?)")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
LARGEST = 10**15  # of one size: far beyond any tensor, and its products are still finite
# Sizes that count something and may be written with a suffix. A "4k" in a shape could be 4000 or 4096.
_COUNTS = {"pointwise": range(8), "optimizer": range(1), "decode": range(1, 2)}


@click.command("op", help=__doc__)
@click.argument("op")
@click.argument("shape")
@click.argument("number_format", metavar="FORMAT")
@click.option("--gpu", metavar="NAME", help="A GPU by its driver's name. Default: the one here.")
@click.option("--reads", type=click.IntRange(1, 1000), metavar="N", help="Tensors a pointwise op reads.")
@click.option(
    "--probe/--no-probe",
    "probe",
    default=None,
    help="Run it on the GPU here, or answer on paper only. Default: run it where that GPU is here.",
)
@click.option("--json", "json_target", metavar="FILE|-", help="Write the figures as JSON; - for stdout only.")
def command(
    op: str,
    shape: str,
    number_format: str,
    gpu: str | None,
    reads: int | None,
    probe: bool | None,
    json_target: str | None,
) -> None:
    from findwall.cli.around.op_run import find_gpu, run_here
    from findwall.machine.environment_gpu import gpu_here
    from findwall.op.op_on_paper import on_paper
    from findwall.op.op_probes import Probed
    from findwall.report.texts.op_text import document, to_text

    question = parse(op, shape, number_format, reads)
    target = find_gpu() if probe else None
    here = target.gpu if target is not None else gpu_here()
    paper = on_paper(question, ceilings_of(gpu, here))
    if probe is False:
        probed = Probed(why_not="--no-probe was given", tells=False)
    else:
        probed = run_here(paper, here, target)
    if json_target is not None:
        from findwall.cli.ceilings import write_json

        write_json(document(paper, probed), json_target)
    if json_target != "-":
        from findwall.report.stream import say

        say(to_text(paper, probed))


# -- what a person asked ---------------------------------------------------------------------------------


def parse(op: str, shape: str, number_format: str, reads: int | None = None) -> Question:
    """The question in the words of the command line; InputError says how to write it."""
    from findwall.op.op_on_paper import FORMATS, OPS, Question

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
    from findwall.op.op_on_paper import OPS

    asked, words = OPS[op], [word.strip() for word in _TIMES.split(shape)]
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


def ceilings_of(gpu: str | None, here: str | None = None) -> Ceilings:
    """What was measured of a GPU on this machine, else the table's figures; by default of the one here."""
    from findwall.machine.ceilings import kept_gpus
    from findwall.machine.hardware import device_named, table_ceilings

    kept = kept_gpus()
    measured = {ceilings.device: ceilings for ceilings in kept}
    if gpu is None:
        own = (measured.get(here) or table_ceilings(here)) if here else None
        if own is not None and own.known:
            return own
        if kept:
            return kept[0]
        raise InputError(
            "no GPU was measured on this machine, so one must be named",
            'Add --gpu NAME, as in --gpu "NVIDIA H200", or run `findwall ceilings` where the GPU is.',
        )
    name = device_named(gpu, measured)
    return measured.get(name) or table_ceilings(name)
