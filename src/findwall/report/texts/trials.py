"""What trials found, as a table and a sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from itertools import pairwise

from msgspec.structs import replace

from findwall.model.applied import Trial
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, Prescription
from findwall.model.patch import Patch
from findwall.model.switches.typed_switches import BY, is_by_switch, own_name, typed_of
from findwall.report import fix_phrases
from findwall.report.printable_names import clean
from findwall.report.texts import by_hand_text, screened_text
from findwall.report.texts.patch_text import WIDTH, diff_text, to_keep
from findwall.trial.equivalence import plotted
from findwall.trial.judge import NOT_SETTLED, Attempt, bare
from findwall.trial.stacks_tried import ALSO, EARLY, OUT_OF_TIME, TOO_SHORT, Found, joined
from findwall.trial.statistics import Comparison
from findwall.units import SECONDS_PER_HOUR, format_bytes, format_ms, format_share

WIDEST_NAME = 22  # of the table's columns
LONGER_START_S = 3.0  # than a plain process: less is no start worth a word. Chosen by hand.
MINUTES_FROM_S = 60.0  # a shorter time is told in seconds
MUCH_MORE = 0.8  # of the step that is reached: an edit that gives less is named at once. Chosen by hand.
LITTLE = 0.001  # of the losses: less is told as a number. Chosen by hand.
NO_WALL = "no wall that is known"
WORDS = {"same": "same {}", "differs": "other {}", "not-checked": "{} not checked"}


def with_trials(diagnosis: Diagnosis, found: Found) -> Diagnosis:
    """The document of the plain job, with what was tried on it."""
    kept = set(found.stack)
    rows = [_trial(one, kept) for stage in found.stages for one in stage.attempts]
    return replace(diagnosis, trials=rows, screened=screened_text.as_rows(found.screened))


def _trial(one: Attempt, kept: set[str]) -> Trial:
    measured, speedup = Range(mid=one.step_ms), Range()
    even = None
    if one.faster is not None and one.step_ms is not None:
        speedup = _range(one.faster)
        plain = one.plain_ms or 0.0
        measured = Range(plain / one.faster.high, one.step_ms, plain / one.faster.low)
        if one.starts_s > LONGER_START_S and one.verdict == "faster" and plain > one.step_ms:
            even = round(one.starts_s * 1e3 / (plain - one.step_ms))
    return Trial(
        fix=joined(tuple(map(own_name, one.fixes))),
        predicted=one.predicted,
        measured=measured,
        verdict=one.verdict,
        speedup=speedup,
        base=joined(tuple(map(own_name, one.base.split(ALSO)))),
        speedup_over_base=_range(one.on_base),
        losses=one.losses.likeness,
        compared=one.losses.of,
        apart=one.losses.apart,
        allowed=one.losses.allowed,
        peak_memory=one.peak_memory,
        break_even_steps=even,
        seconds=one.seconds,
        why="; ".join(filter(None, (one.losses.why and f"{one.losses.of}: {one.losses.why}", one.why))),
        kept=set(one.fixes) <= kept and one.verdict == "faster",
        switches={own_name(name): typed_of(name) for name in one.fixes if is_by_switch(name)},
    )


def _range(found: Comparison | None) -> Range:
    return Range() if found is None else Range(found.low, found.ratio, found.high)


def to_text(
    diagnosis: Diagnosis,
    found: Found,
    after: Diagnosis | None,
    command: str,
    patch: Patch | None = None,
    front: str = "findwall run",
    price: float | None = None,
    stand_ins: Collection[str] = (),
    only: Collection[str] = (),
    left: Sequence[Prescription] = (),
    plain: str = "",
) -> str:
    """`command`: the script and its arguments; `plain`: the whole line that runs it without findwall; both
    with the switches of its own that are kept; `front`: what a person writes before findwall's options;
    `stand_ins`: fixes that need an edit, and were tried without; `only`: the fixes a person named; `left`:
    those that only a person can make, which come first where nothing is kept."""
    said = sentence(diagnosis, found, after, stand_ins, only) + _more_by_hand(diagnosis, found, left)
    edits = by_hand_text.to_text(left, bool(found.stack), after is not None)
    lines = textwrap.wrap(said, WIDTH)
    seen = clean(diagnosis.wall.sentence)
    if not found.stack and seen not in said:
        before = "The look before the trial said: " if diagnosis.trials else ""
        lines += ["", *textwrap.wrap(before + seen, WIDTH)]
    if not found.stack:
        lines += edits.splitlines()
    lines += screened_text.lines(diagnosis.screened) + _table(diagnosis.trials, stand_ins)
    lines += [*_road(found, after), *_curves(found), "", *_cost(found, diagnosis.machine.count or 0, price)]
    run, kept = _kept(diagnosis, found, after, (command, front, plain), patch, stand_ins)
    lines += kept
    commands = [one for one in (run, plain) if one]  # each stays in one line, to be copied
    return (
        "\n".join(f"    {line}" if line in commands else _wrapped(line) for line in lines)
        + "\n"
        + diff_text(patch)
        + (edits if found.stack else "")
    )


def _kept(
    diagnosis: Diagnosis,
    found: Found,
    after: Diagnosis | None,
    typed: tuple[str, str, str],
    patch: Patch | None,
    stand_ins: Collection[str],
) -> tuple[str, list[str]]:
    """The command that runs the job with what was made in it, if there is one; how each fix is kept, and what
    no command makes. `typed`: as `command`, `front` and `plain` above."""
    if not found.stack:
        return "", []
    command, front, plain = typed
    switched = [own_name(name) for name in found.stack if is_by_switch(name)]
    others = [name for name in found.stack if not is_by_switch(name)]
    applied = [name for name in others if name not in stand_ins]
    run = f"{front} --apply {','.join(applied)} {command}" if applied else ""
    lines = ["", "  To run with it:", run] if run else []
    lines += _edits(found.stack, stand_ins, bool(applied))
    if switched:
        own = "the script's own switches" if len(switched) > 1 else "the script's own switch"
        lines += ["", f"  To keep {' and '.join(switched)}, use {own}:", plain]
    if others:
        lines.append("  To keep the rest:" if switched else "  To keep it:")
    known = [*diagnosis.prescriptions, *(after.prescriptions if after is not None else ())]
    for name in others:
        how = next((one.how for one in known if one.fixes == [bare(name)]), name)
        lines += to_keep(name, how, patch)
    return run, lines


def _more_by_hand(diagnosis: Diagnosis, found: Found, left: Sequence[Prescription]) -> str:
    """A word in time of an edit that is worth more than all that is kept."""
    reached = found.total.step_ms if found.stack and found.total is not None else diagnosis.step.ms
    steps = [(one.step_ms.mid or one.step_ms.low, one) for one in left[: by_hand_text.MOST_SHOWN]]
    known = [(step, one) for step, one in steps if step is not None]
    if reached is None or not known:
        return ""
    step, best = min(known, key=lambda pair: pair[0])
    if step >= MUCH_MORE * reached:
        return ""
    return f" More may be in an edit: {clean(best.fixes[0])}, {fix_phrases.step_after(best.step_ms)} (below)."


def _edits(stack: tuple[str, ...], stand_ins: Collection[str], others: bool) -> list[str]:
    """What of a stack no command makes."""
    shown = [name for name in stack if name in stand_ins]
    if not shown:
        return []
    what = "That command leaves out" if others else "No command makes"
    parts = f"{' and '.join(shown)}: a stand-in showed what {'they are' if len(shown) > 1 else 'it is'} worth"
    return [*([] if others else [""]), f"  {what} {parts}, and only the edit gives it."]


def labelled(fixes: Sequence[str], stand_ins: Collection[str]) -> str:
    """As the table names them."""
    return " + ".join(f"{one} (stand-in)" if one in stand_ins else one for one in fixes)


def _fixes(one: Trial) -> list[str]:
    """With the switches that made them."""
    known = one.switches
    return [f"{name}{BY}{known[name]}" if name in known else name for name in one.fix.split(ALSO)]


def _table(trials: list[Trial], stand_ins: Collection[str] = ()) -> list[str]:
    """A line of figures for each trial, and one of what it rests on."""
    if not trials:
        return []
    names = [labelled(_fixes(one), stand_ins) for one in trials]
    wide = min(max(map(len, names)), WIDEST_NAME)
    lines = ["", f"  {'fix':{wide}}  {'predicted':>9}  {'measured':>9}  faster{'':11}  verdict"]
    for one, fixes in zip(trials, names, strict=True):
        name = textwrap.wrap(fixes, wide) or [""]
        predicted = format_ms(one.predicted.mid) if one.predicted.mid is not None else "–"
        measured = format_ms(one.measured.mid) if one.measured.mid is not None else "–"
        lines += [f"  {part}" for part in name[:-1]]
        lines.append(
            f"  {name[-1]:{wide}}  {predicted:>9}  {measured:>9}  {_times(one.speedup):17}  {_verdict(one)}"
        )
        lines += textwrap.wrap(_rests_on(one), WIDTH, initial_indent="    ", subsequent_indent="    ")
    return lines


def _times(speedup: Range) -> str:
    if speedup.mid is None or speedup.low is None or speedup.high is None:
        return ""
    digits = 1 if speedup.high >= 10 else _digits(speedup.low, speedup.high)
    low, mid, high = (f"{value:.{digits}f}" for value in (speedup.low, speedup.mid, speedup.high))
    return f"{mid}× ({low}–{high})"


def _digits(low: float, high: float) -> int:
    """Two, or more where an end would read as 1 and is not: whether the interval holds 1 is the verdict."""
    ends = [end for end in (low, high) if end != 1.0]
    return next((many for many in (2, 3) if all(round(end, many) != 1.0 for end in ends)), 4)


def _so_far(share: float | None) -> str:
    """As format_share tells it; so little that it would round to nothing as a number."""
    return f"{share:.0e}" if share is not None and 0 < share < LITTLE else format_share(share)


def _rests_on(one: Trial) -> str:
    parts = [f"{_times(one.speedup_over_base)} on top of {one.base}"] if one.base else []
    if one.verdict != "failed":
        by = f", {_so_far(one.apart)} apart, {_so_far(one.allowed)} allowed" if one.apart else ""
        parts.append(WORDS[one.losses].format(one.compared) + by)
    if one.peak_memory:
        parts.append(f"peak {format_bytes(one.peak_memory)}")
    if one.break_even_steps:
        after_s = one.break_even_steps * (one.measured.mid or 0.0) / 1e3
        parts.append(
            f"its longer start is made up for after {one.break_even_steps:,} steps ({_time(after_s)})"
        )
    return "; ".join([*parts, *([one.why] if one.why else [])])


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < MINUTES_FROM_S else f"{seconds / 60:.1f} min"


def _road(found: Found, after: Diagnosis | None) -> list[str]:
    """From the first step to the last, with the wall that stood there."""
    if not found.stack:
        return []
    steps = {one.fixes: one.step_ms for stage in found.stages for one in stage.attempts}
    plain_ms = found.total.plain_ms if found.total is not None else found.plain_ms
    stops = [(plain_ms, "today", found.stages[0].view.wall)]
    stops += [
        (steps.get(stage.stack), joined(stage.stack), stage.view.wall)
        for before, stage in pairwise(found.stages)
        if stage.stack != before.stack
    ]
    why = ""
    if found.stages[-1].stack != found.stack:
        wall, why = _wall_left(found, after)
        stops.append((found.total.step_ms if found.total else None, joined(found.stack), wall))
    told = [f"  {format_ms(step):>9}  {made}: {wall}" for step, made, wall in stops]
    return ["", *told, *([f"  {why}"] if why else [])]


def _wall_left(found: Found, after: Diagnosis | None) -> tuple[str, str]:
    """Where the job stands with all that is kept, and why nobody knows, where that is so."""
    if after is None:
        early = f", as {found.ended}" if found.ended in OUT_OF_TIME else ""
        return f"not looked at again{early}", ""
    if after.wall.cause:
        return f"{after.wall.wall} / {after.wall.cause}", ""
    return "its wall is not known", after.wall.sentence


def _curves(found: Found) -> list[str]:
    """Both losses, where the numbers may differ."""
    losses = found.total.losses if found.total is not None else None
    if losses is None or not losses.apart or not losses.plain:
        return []
    plain, fixed = plotted(losses.plain, losses.fixed)
    many = len(losses.plain)
    decide = f"; the first {losses.steps} decide, as plain processes differ too much later"
    return [
        "",
        f"  {losses.of} of the first {many} steps{decide if losses.steps < many else ''}",
        f"    plain    {plain}",
        f"    with it  {fixed}",
    ]


def _cost(found: Found, gpus: int, price: float | None) -> list[str]:
    """What the trial took and what the gain saves. `gpus`: that the job uses; `price`: of one for an hour."""
    noise = (
        f"; two plain arms may differ by up to {100 * found.noise:.1f} %" if found.noise is not None else ""
    )
    lines = [f"  The trial took {_spent(found.seconds, gpus, price)}{noise}; {found.ended}."]
    if not found.stages:
        lines = [f"  Looking at the job took {_spent(found.seconds, gpus, price)}."]
    if found.untried and found.ended in OUT_OF_TIME:
        left = [joined(one.fixes) + _predicted(one.predicted) for one in found.untried]
        more = f" (about {_time(max(found.short_s, 1.0))} more)" if found.ended == TOO_SHORT else ""
        lines.append(f"  There was no time left to try {' or '.join(left)}: give it a longer --budget{more}.")
    if found.total is not None and found.total.faster is not None and found.stack:
        saved = 24.0 * (1.0 - 1.0 / found.total.faster.ratio)
        worth = f": {saved * price:.2f} for each GPU, at {price:g} an hour" if price is not None else ""
        lines.append(f"  What takes a day takes {saved:.1f} hours less{worth}.")
    return lines


def _spent(seconds: float, gpus: int, price: float | None) -> str:
    if not gpus:
        return f"{seconds:.0f} s of this machine"
    hours = seconds * gpus / SECONDS_PER_HOUR
    cost = f" ({hours * price:.2f} at {price:g} an hour)" if price is not None else ""
    if gpus == 1:
        return f"{seconds:.0f} GPU seconds{cost}"
    return f"{seconds:.0f} s on {gpus} GPUs, {seconds * gpus:.0f} GPU seconds{cost}"


def _predicted(step: Range) -> str:
    return f" (predicted {format_ms(step.mid)})" if step.mid is not None else ""


def _wrapped(line: str) -> str:
    return line if len(line) <= WIDTH else "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="    "))


def sentence(
    diagnosis: Diagnosis,
    found: Found,
    after: Diagnosis | None,
    stand_ins: Collection[str] = (),
    only: Collection[str] = (),
) -> str:
    """The number first, then what made it, then where the job stands. `only`: the fixes a person named."""
    wall = f"{diagnosis.wall.wall} / {diagnosis.wall.cause}" if diagnosis.wall.cause else NO_WALL
    if diagnosis.screened and not (diagnosis.trials or found.stages or found.untried):
        return f"Nothing that was screened makes the job faster. It stands at {wall}."
    if not diagnosis.trials and found.stages:
        step = f" takes {format_ms(found.plain_ms)} per step and" if found.plain_ms is not None else ""
        none = "no process with a fix was through yet"
        return f"Nothing is known so far: {none} ({found.ended}). The job{step} stands at {wall}."
    if not diagnosis.trials and found.ended == TOO_SHORT:
        return f"Nothing was tried: {found.ended}. The job stands at {wall}."
    if not diagnosis.trials and not diagnosis.wall.cause:
        return f"Nothing was tried, because {why_nothing(diagnosis, only)}"
    if not diagnosis.trials:
        return f"Nothing was tried. The job stands at {wall}, and {why_nothing(diagnosis, only)}."
    if not found.stack or found.total is None or found.total.faster is None:
        nothing = "Nothing that was tried is proven to make the job faster."
        return f"{nothing}{_promise(diagnosis, found)} It stands at {wall}."
    total = found.total.faster
    then = ""
    if after is not None and after.wall.cause:
        now = f"{after.wall.wall} / {after.wall.cause}"
        then = (
            f" It stood at {wall}, and stands at {now} now."
            if now != wall
            else f" It still stands at {wall}."
        )
    step = f"{format_ms(found.total.step_ms)} per step instead of {format_ms(found.total.plain_ms)}"
    digits = _digits(total.low, total.high)
    between = f"{total.low:.{digits}f} to {total.high:.{digits}f}"
    made = " + ".join(f"a stand-in for {one}" if one in stand_ins else one for one in found.stack)
    needs = " It takes an edit to have it." if set(found.stack) & set(stand_ins) else ""
    return f"{total.ratio:.{digits}f} times faster ({between}), {step}, with {made}.{needs}{then}"


def why_nothing(diagnosis: Diagnosis, only: Collection[str] = ()) -> str:
    """Why a job has nothing to try. `only`: the fixes that a person named, if any."""
    if only:
        named = " and ".join(sorted(only))
        return f"{named} may change the numbers, which --no-numerics leaves out"
    if not diagnosis.wall.cause:
        return f"no wall was found. {diagnosis.wall.sentence}"
    if not diagnosis.prescriptions:
        return "; ".join(["no fix is prescribed for it", *diagnosis.notes[:1]])
    return "no fix that is prescribed for it can be made without an edit"


def _promise(diagnosis: Diagnosis, found: Found) -> str:
    """Of what there was no time to prove, the shortest step."""
    once = [one for one in diagnosis.trials if one.verdict == "failed" and one.measured.mid is not None]
    best = min(once, key=lambda one: one.measured.mid or 0.0, default=None)
    if best is None or found.plain_ms is None or (best.measured.mid or 0.0) >= found.plain_ms:
        return ""
    step = f"{format_ms(best.measured.mid)} per step instead of {format_ms(found.plain_ms)}"
    if found.ended == EARLY["interrupted"]:
        return f" {ALSO.join(_fixes(best))} took {step} in what was through when it was interrupted."
    return (
        f" {ALSO.join(_fixes(best))} took {step} in the little there was time for: give it more (--budget)."
    )


def row_of_trial(one: Trial) -> str:
    """What one trial found, in a line."""
    parts = [f"{ALSO.join(_fixes(one))}: {_verdict(one)}"]
    if one.measured.mid is not None:
        parts.append(f"{format_ms(one.measured.mid)} per step, {_times(one.speedup)}")
    if one.predicted.mid is not None:
        parts.append(f"predicted {format_ms(one.predicted.mid)}")
    return "; ".join(part for part in (*parts, _rests_on(one)) if part)


def _verdict(one: Trial) -> str:
    if one.why.startswith(NOT_SETTLED):
        return NOT_SETTLED
    return f"{one.verdict}, kept" if one.kept else one.verdict
