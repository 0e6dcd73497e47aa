"""Why there is no verdict, and what would give one; and verdicts on counters and looks alone."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill, gpu, number, spoken
from findwall.report.words.verdicts import OPS_OPTION, SHAPES_OPTION
from findwall.units import format_ms, format_share

WAITS_FOR = {"loader-starved": "for the loader", "gc-pause": "for the garbage collector"}
MEASURE_LATER = "measure it after that (`findwall run --wait STEPS`)"
RECORD_LATER = (
    "record after warm-up (torch.profiler.schedule(wait=5, warmup=3, active=3)), or let `findwall run` do it"
)
WHAT_ONCE = {
    "loading": "first calls that load code",
    "context": "calls that set up the driver or a library",
    "memory": "the first requests for driver memory",
    "capture": "graph capture",
    "compiling": "compiling for the first time",
}
DOES = {
    "ops": "is inside ops of torch",
    "stalls": "sleeps inside ops of torch",
    "python": "runs Python",
    "loader": "is in its data loader",
    "collective": "is in a collective",
    "reads": "reads values from the device",
    "waits": "sleeps, or waits for something else than the device",
}


def numbered(claim: Claim, key: str) -> list[str]:
    """The figures key1, key2 and so on, as they are."""
    return [str(value) for name, value in claim.figures.items() if name.rstrip("0123456789") == key]


def _sentences(claim: Claim) -> str:
    return " ".join(text for text in (spoken(part) for part in claim.parts) if text)


def _worth_a_trial(claim: Claim) -> str:
    fixes = [f"`{fix}`" for fix in numbered(claim, "fix")]
    return (
        f"Whatever the wall is, the job waits {listed([spoken(part) for part in claim.parts])}: `findwall "
        f"try` shows "
        f"whether {listed(fixes)} {'helps' if len(fixes) == 1 else 'help'}."
    )


def _unexplained(claim: Claim) -> str:
    known = fill(
        "For {waits_ms:ms} of the {step_ms:ms} step the device waits, and the trace does not show why: ",
        claim,
    )
    was_run = claim.figures.get("was_run")
    if claim.figures.get("shorter"):
        why = "its steps are shorter than the timed ones. Trace"
        if was_run:
            return f"{known}{why} more of them (`findwall run --trace-steps {claim.figures['more_steps']}`)."
        return f"{known}{why} steps that are as slow as those, or let `findwall run` measure the job."
    if was_run:
        return known + (
            "rows are missing, or the job was still starting up. Trace later steps (`findwall run --wait "
            "STEPS`)."
        )
    return known + (
        "rows are missing, or it was recorded during start-up. Record whole steps after warm-up, with CPU "
        "and CUDA "
        "activities, or let `findwall run` do it."
    )


def _dilation(claim: Claim) -> str:
    causes = " and ".join(numbered(claim, "cause"))
    return fill(
        f"The trace alone cannot tell {causes} apart: without the profiler the step takes something between "
        "{short_ms:ms} and {long_ms:ms}. Time a few steps without the profiler and pass that as "
        "--step-ms, or let "
        "`findwall run` measure the job.",
        claim,
    )


def _unnamed_host(claim: Claim) -> str:
    return fill(
        "For {spent_ms:ms} of the {step_ms:ms} step the device waits while the host makes no CUDA call. "
        "Whether it "
        "waits for data or does other work is unknown without torch's ops: record with {option}, or use "
        "`findwall run`.",
        claim,
        option=OPS_OPTION[str(claim.figures["recorder"])],
    )


def with_option(template: str) -> Words:
    """A template that names how shapes are recorded."""
    return lambda claim: fill(template, claim, option=SHAPES_OPTION[str(claim.figures["recorder"])])


def _no_roof(claim: Claim) -> str:
    worth = f"{100 * number(claim, 'worth_share'):.0f} %"
    return fill(
        "{spent_ms:ms} of the {step_ms:ms} step goes to {cause}, of which hardly anything can be saved. "
        "No cause "
        f"recovers {worth} and no kernels run at a roof, so there is no wall: give the device more work "
        f"per step.",
        claim,
    )


def _blind_graph(claim: Claim) -> str:
    if claim.figures.get("recorder") == "nsys":
        return "kernels that a CUDA graph replays have no shapes; record the same step once without the graph"
    return (
        "kernels replayed from a CUDA graph have no shapes; put a trace of the graph's capture into a "
        "capture_traces "
        "folder beside the file, or trace the same step once without the graph"
    )


def _start_up(claim: Claim) -> str:
    return fill(
        "{once_ms:ms} of the {recorded_ms:ms} in the trace goes to {parts[0]}. It was recorded during "
        "start-up, which "
        "says nothing about the steps that follow: {later}.",
        claim,
        later=MEASURE_LATER if claim.figures.get("was_run") else RECORD_LATER,
    )


def what_once(claim: Claim) -> str:
    kinds = [WHAT_ONCE[kind] for kind in numbered(claim, "kind")]
    return f"{' and '.join(kinds)}" + fill("[[ (the longest is {call})]]", claim)


# -- counters and looks ------------------------------------------------------------------------------------


def _whole(claim: Claim) -> str:
    """What a share is of: a step that was timed, or the time in which a job was watched."""
    step = claim.figures.get("step_ms")
    return "the time" if step is None else f"the {format_ms(number(claim, 'step_ms'))} step"


def _counted(template: str) -> Words:
    def words(claim: Claim) -> str:
        part = claim.figures.get("part_ms")
        share = number(claim, "part_share")
        return fill(
            template,
            claim,
            whole=_whole(claim),
            part=format_share(share) if part is None else format_ms(number(claim, "part_ms")),
            shown_by="`findwall run`" if claim.figures.get("watched") else "a trace",
        )

    return words


def _does(template: str) -> Words:
    return lambda claim: fill(template, claim, does=DOES[str(claim.figures["doing"])])


def _peak(claim: Claim) -> str:
    sources = {"measured": "measured", "table": "from the table", "doubtful": "measured on a busy machine"}
    source = sources.get(str(claim.figures.get("source")), "known")
    return fill(
        f"The matmuls run at {{reached_share:share}} of what this {gpu(claim)} can reach on such work "
        f"(ceilings {source}).",
        claim,
    )


def _steady(claim: Claim) -> str:
    return fill(
        "Step times vary by {spread_share:share} over {steps} [[{profiled:if}profiled ]]steps[[{few:if}, "
        "too few to "
        "call them steady]].",
        claim,
    )


WORDS: dict[str, Words] = {
    "sentences": _sentences,
    "roof/doubtful": "But that ceiling was measured on a busy machine: run `findwall ceilings --refresh` "
    "first.",
    "undecided/worth-a-trial": _worth_a_trial,
    **{f"waits/{cause}": f"{{waits_ms:ms}} per step {whom}" for cause, whom in WAITS_FOR.items()},
    "undecided/unexplained": _unexplained,
    "undecided/dilation": _dilation,
    "undecided/unnamed-host": _unnamed_host,
    "undecided/no-shapes": with_option(
        "{busy_ms:ms} of the {step_ms:ms} step is device work, and without shapes it is unknown how much "
        "of that "
        "could come back. Record with {option}."
    ),
    "undecided/contended": "For {waited_share:share} of the time the job's thread waited for a core that "
    "other "
    "processes used, so what looks like {cause} may be their doing. Run the job alone, or on cores of its "
    "own "
    "(taskset).",
    "undecided/crowded-trace": "The recorded steps took about {times:times} as long as the timed ones, so "
    "something else used the cores meanwhile. What looks like {cause} may be its doing. Run the job again, "
    "alone.",
    "undecided/ceilings": "Only its own work takes the step's time, and it is unknown how near that runs "
    "to the "
    "device's ceiling. Run `findwall ceilings` (under 30 s), then read this again.",
    "undecided/small-kernels": "{spent_ms:ms} of the {step_ms:ms} step goes to kernels too small to use "
    "the device, "
    "which runs them one after the other without a pause. Merge them (torch.compile), or give each more "
    "work.",
    "undecided/no-roof": _no_roof,
    "undecided/no-floor": "{blind_share:share} of the step goes to device work whose floor is unknown "
    "({parts[0]}), and [[{alone:if}nothing else in the step is worth 5 %||that may be worth more than "
    "what is "
    "known]].",
    "undecided/contradiction": "The figures of this step contradict each other[[ ({parts[0]})]], so no "
    "wall is named. "
    "Record a few other steps, and please report this as a bug in findwall.",
    "blind/unnamed-gpu": "the export does not name the GPU; pass --gpu NAME",
    "blind/ceilings": "no ceilings are known for this device, [[{device}||unnamed]]; `findwall ceilings` "
    "measures "
    "them",
    "blind/shapes": with_option("the trace has no shapes; record it with {option}"),
    "blind/graph": _blind_graph,
    "blind/format": "it is unknown how fast this CPU multiplies {format} numbers: `findwall ceilings "
    "--device cpu` measures it, for the next run",
    "blind/ops": "kernels of unknown ops",
    "too-early/growing": "{spent_ms:ms} of the {step_ms:ms} step set up {op} for lengths that grow from "
    "step to step. "
    f"Each is set up once and comes back with the next text, so this says little about later steps: "
    f"{MEASURE_LATER}.",
    "too-early/faster-later": "{step_ms:ms} was the step while it was measured, and {later_ms:ms} after "
    "that: the "
    f"job was still setting itself up, so {MEASURE_LATER}.",
    "too-early/start-up": _start_up,
    "start-up/what": what_once,
    "no-device/events": "The trace holds no device events, so no wall can be named. Record it with "
    "ProfilerActivity.CUDA, or, if the job runs on the CPU, let `findwall run` measure it.",
    "no-device/no-trace": "There is no trace[[: {parts[0]}]].",
    "counters/no-steps": "Neither a trace nor step times were measured, so no wall can be named.",
    "counters/none": "[[{on_cores:if}Without a trace only waiting shows on a CPU, and this job does not "
    "wait for its "
    "loader||Step times alone name no wall, and this GPU gave no counters (GPM needs Hopper or later)]]: "
    "let findwall "
    "trace a few steps.",
    "timed/loader-starved": _counted(
        "For {part} of {whole} the job waits for the next batch. Give the DataLoader more workers."
    ),
    "timed/gc-pause": _counted(
        "For {part} of {whole} the job waits for the garbage collector. Call gc.freeze() after set-up."
    ),
    "counters/where-else": _counted("Only {shown_by} would show where the other {part} goes."),
    "counters/compiles": _counted(
        "For about {idle_share:share} of {whole} the device waits, and torch.compile compiles again while "
        "the job "
        "runs; {shown_by} would show how much of it that is."
    ),
    "counters/idle": _counted(
        "For about {idle_share:share} of {whole} the device waits[[{not_loader:if}, and not for the "
        "loader]]; "
        "{shown_by} would show why."
    ),
    "counters/tensor-busy": _counted(
        "The tensor cores are busy {tensor:.0f} % of {whole}: they run at the roof."
    ),
    "counters/fp32-busy": _counted(
        "The fp32 pipe is busy {fp32:.0f} % of {whole}, the tensor cores {tensor:.0f} %. Move the matmuls "
        "to them "
        "(torch.set_float32_matmul_precision('high'), or bf16 autocast)."
    ),
    "counters/memory-busy": _counted(
        "Memory is busy {dram:.0f} % of {whole}: the wall is bandwidth; {shown_by} would show why."
    ),
    "counters/no-pipe": _counted(
        "No pipe is busy (SM {sm:.0f} %, tensor {tensor:.0f} %, DRAM {dram:.0f} % of {whole}); {shown_by} "
        "would show "
        "why."
    ),
    "watched/others-use-it": "Other processes use this GPU too, so that may be their work.",
    "watched/stopped": "The job is stopped (SIGSTOP, or a debugger holds it): kill -CONT lets it go on. "
    "Then watch "
    "it.",
    "watched/imports": "The job still imports its modules, so nothing is known yet. Watch it once it trains.",
    "watched/compiles": "torch.compile compiles in {seen_share:share} of the looks ({parts[0]}). Watch "
    "the job once "
    "that is done; if it never is, its shapes or values change from step to step.",
    "watched/too-short": "{seconds:.0f} s is too short to tell. Watch the job for 20 s.",
    "watched/loader-itself": "In {seen_share:share} of {looks} looks the job makes its next batch in the "
    "training "
    "process, most often at {parts[0]}. Let loader workers make it (num_workers), or make that line faster.",
    "watched/loader-workers": "In {seen_share:share} of {looks} looks the job waits for its next batch. "
    "Its loader "
    "workers ({have}) are most often at {parts[0]}. Make that line faster, or give the DataLoader more "
    "workers.",
    "watched/python": "In {seen_share:share} of the looks the job runs Python and no op, most often at "
    "{parts[0]}. "
    "[[{reads:if}Read numbers less often, and all at once (tensor.tolist()), not one by one.||Do it less "
    "often, or "
    "move it out of the step.]]",
    "watched/reads": "In {seen_share:share} of the looks the host waits for a value from the device, most "
    "often at "
    "{parts[0]}, while the device has little to do. Read it less often.",
    "watched/nothing-known": "[[{on_gpu:if}Neither counters nor Python lines are known||The job uses no "
    "GPU and its "
    "Python lines are unknown]], so no wall can be named.",
    "watched/by-lines": _does(
        "In {seen_share:share} of {looks} looks the job {does}, most often at {parts[0]}. "
        "[[{on_gpu:if}This GPU gave "
        "no counters (GPM needs Hopper or later, and a driver that allows it)||From outside, nothing "
        "tells what its "
        "ops wait for]]: `findwall run` would show it."
    ),
    "watched/host-at": "The host is most often at {parts[0]}.",
    "watched/differs": "Rank {rank} differs from the others ({parts[0]}).",
    "watched/line": "{places[0]}[[ in {function}]]",
    "watched/unknown-line": "an unknown line",
    "watched/in-line": "For {waited_share:share} of the time the job's thread waited for a core that "
    "others used, so "
    "part of what is seen on the host may be their doing.",
    "watched/held-down": "{parts[0]}.",
    "watched/other-processes": lambda claim: fill(
        "{others} other process[[{more:if}es]] on this GPU: its counters are of all of them.",
        claim,
        more=number(claim, "others") > 1,
    ),
    "watched/collector": "A pause of the garbage collector counts to the line that it falls in; `findwall "
    "run` times "
    "it.",
    "watched/missed": "{missed} of {looks} looks at the Python line failed.",
    "watched/other-thread": "The main thread only waits, so the lines are of the thread {thread}.",
    "watched/is-worker": "This process is a loader worker: watch the process that started it.",
    "odd/clock": "its clock is {own_mhz:.0f} MHz, the others' {others_mhz:.0f}",
    "odd/looks": _does(
        "it {does}[[ at {places[0]}]] in {own_share:share} of the looks, the others in {others_share:share}"
    ),
    "odd/counters": "its multiprocessors are busy {own:.0f} % of the time, the others' {others:.0f} %",
    "stable/kinds": "Steps come in {kinds} kinds: {parts[0]}",
    "stable/one-step": "Only one step was seen, so it is unknown whether steps vary.",
    "stable/none": "No steps were timed.",
    "stable/spread": _steady,
    "busy/hidden": "The {gpu} works {low_share:share} to {high_share:share} of the step; the profiler "
    "hides how "
    "much.",
    "busy/works": "The {gpu} works {busy_share:share} of the step and idles {idle_ms:ms}.",
    "busy/counted": "Counters see work on the multiprocessors {busy_share:share} of the time.",
    "matmul/no-work": "No device time was seen.",
    "matmul/unknown": "It is unknown how much is matmul: nothing tells what {unknown_share:share} of the "
    "busy time "
    "computes.",
    "matmul/share": "{matmul_share:share} of the busy time is matmul, convolution or attention.",
    "peak/no-matmuls": "There are no matmuls to compare with the ceiling.",
    "peak/unknown": "It is unknown how near the ceiling the matmuls run: [[{ceilings_known:if}most of "
    "them have no "
    "shapes||no ceilings are known]].",
    "peak/reached": _peak,
    "nothing/no-device": "No device events.",
    "nothing/not-traced": "No steps were traced.",
    "nothing/from-outside": "Seen from outside: no steps, and no device events.",
    "nothing/no-counters": "No counters were read.",
}
