"""What trials found, as a table and a sentence."""

from __future__ import annotations

import textwrap

from msgspec.structs import replace

from findwall.model.diagnosis import Diagnosis, Range, Trial
from findwall.model.patch import Patch
from findwall.report.patch_text import WIDTH, diff_text, to_keep
from findwall.units import format_bytes, format_interval, format_ms
from findwall.verify.judge import Attempt, bare
from findwall.verify.search import Found

WORDS = {"same": "same losses", "differs": "other losses", "not-checked": "losses not checked"}


def with_trials(diagnosis: Diagnosis, found: Found) -> Diagnosis:
    """The document of the plain job, with what was tried on it."""
    kept = set(found.stack)
    rows = [_trial(one, kept) for stage in found.stages for one in stage.attempts]
    return replace(diagnosis, trials=rows)


def _trial(one: Attempt, kept: set[str]) -> Trial:
    measured = speedup = Range()
    if one.faster is not None and one.step_ms is not None:
        speedup = Range(one.faster.low, one.faster.ratio, one.faster.high)
        plain = one.step_ms * one.faster.ratio
        measured = Range(plain / one.faster.high, one.step_ms, plain / one.faster.low)
    return Trial(
        fix=" + ".join(one.fixes),
        predicted=one.predicted,
        measured=measured,
        verdict=one.verdict,
        speedup=speedup,
        losses=one.losses.likeness,
        peak_memory=one.peak_memory,
        seconds=one.seconds,
        why=one.why,
        kept=set(one.fixes) <= kept and one.verdict == "faster",
    )


def to_text(
    diagnosis: Diagnosis,
    found: Found,
    after: Diagnosis | None,
    command: str,
    patch: Patch | None = None,
    front: str = "findwall run",
) -> str:
    """`command`: the script and its arguments; `front`: what a person writes before findwall's options."""
    lines = [*textwrap.wrap(sentence(diagnosis, found, after), WIDTH), ""]
    for one in diagnosis.trials:
        lines += textwrap.wrap(_row(one), WIDTH, initial_indent="  - ", subsequent_indent="    ")
    noise = f"two plain arms differ by up to {100 * found.noise:.1f} %" if found.noise is not None else ""
    lines += [""] * bool(diagnosis.trials)
    lines.append(f"  {found.seconds:.0f} s in all{f'; {noise}' if noise else ''}; {found.ended}.")
    if found.stack:
        lines += [
            "",
            f"  To run with it: {front} --apply {','.join(found.stack)} {command}",
            "  To keep it:",
        ]
        said = [*diagnosis.prescriptions, *(after.prescriptions if after is not None else ())]
        for name in found.stack:
            how = next((one.how for one in said if one.fixes == [bare(name)]), name)
            lines += to_keep(name, how, patch)
    return "\n".join(_wrapped(line) for line in lines) + "\n" + diff_text(patch)


def _wrapped(line: str) -> str:
    return line if len(line) <= WIDTH else "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="    "))


def sentence(diagnosis: Diagnosis, found: Found, after: Diagnosis | None) -> str:
    """The number first, then what made it, then where the job stands."""
    if not diagnosis.wall.cause:
        return f"Nothing was tried, because no wall was found. {diagnosis.wall.sentence}"
    wall = f"{diagnosis.wall.wall} / {diagnosis.wall.cause}"
    if not diagnosis.trials:
        why = "no fix that is prescribed for it can be made without an edit"
        return f"Nothing was tried. The job stands at {wall}, and {why}."
    if not found.stack or found.total is None or found.total.faster is None:
        return f"Nothing that was tried is proven to make the job faster. It stands at {wall}."
    total = found.total.faster
    then = ""
    if after is not None and after.wall.cause:
        then = f" It stood at {wall}, and stands at {after.wall.wall} / {after.wall.cause} now."
    step = f"{format_ms(found.total.step_ms)} per step instead of {format_ms(found.plain_ms)}"
    between = f"{total.low:.2f} to {total.high:.2f}"
    return f"{total.ratio:.2f} times faster ({between}), {step}, with {' + '.join(found.stack)}.{then}"


def _row(one: Trial) -> str:
    parts = [f"{one.fix}: {one.verdict}{', kept' if one.kept else ''}"]
    if one.measured.mid is not None and one.speedup.mid is not None:
        ends = format_interval(one.speedup.low, one.speedup.high).replace(" ms", "")
        parts.append(f"{format_ms(one.measured.mid)} per step, {one.speedup.mid:.2f}× ({ends})")
    if one.predicted.mid is not None:
        parts.append(f"predicted {format_ms(one.predicted.mid)}")
    if one.verdict != "failed":
        parts.append(WORDS[one.losses])
    if one.peak_memory:
        parts.append(f"peak {format_bytes(one.peak_memory)}")
    return "; ".join(parts) + (f" ({one.why})" if one.why else "")
