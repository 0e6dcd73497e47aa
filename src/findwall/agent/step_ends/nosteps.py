"""Why a job had no step: what was seen, and what would give one."""

from __future__ import annotations

from findwall.agent.options import COMMAND, Options
from findwall.agent.step_ends.loopfinder import SLOWEST_TURN_NS, monitoring
from findwall.agent.step_ends.stepfinder import PATIENCE, PATIENCE_IN_TRAINING, StepEnd

NO_STEPS = (
    "no step was found: this process called no optimizer, no module often enough, no data loader and no "
    f"no_grad. A call of a module is a step once {PATIENCE[StepEnd.FORWARD] + 1} were seen, with gradients "
    f"{PATIENCE_IN_TRAINING + 1}: run more of them, or mark steps (with findwall.measure() as m: ... "
    "m.step()). Measure a job that starts its own worker processes with torchrun -m findwall run"
)
SEES_LOOPS = (
    f". Nor did a loop of its main thread turn for long, once in {SLOWEST_TURN_NS // 10**9} s or sooner"
)
NO_LOOPS = ". Under Python 3.12 or later findwall sees the job's loop by itself, without a mark"
DEFAULTS = Options()
MARKS = {  # what may end a step, one and several
    StepEnd.FORWARD: ("call of a module", "calls of a module"),
    StepEnd.REPLAY: ("replay of a CUDA graph", "replays of a CUDA graph"),
    StepEnd.LOADER: ("batch from a data loader", "batches from a data loader"),
    StepEnd.REGION: ("torch.no_grad() region", "torch.no_grad() regions"),
    StepEnd.LOOP: ("turn of a loop", "turns of a loop"),
}


def no_steps(
    seen: list[tuple[StepEnd, int, int]],
    training_expected: bool,
    options: Options = DEFAULTS,
    looks_at_loops: bool = False,
) -> str:
    """Why there is no step: what was seen, and how much more of it would do."""
    found = [(*MARKS[source], count, more) for source, count, more in seen if source in MARKS]
    if not found:
        if options.caller != COMMAND:
            return f"no step was found. {options.more_steps}"
        if training_expected or not looks_at_loops:
            return NO_STEPS
        return NO_STEPS + (NO_LOOPS if monitoring() is None else SEES_LOOPS)
    told = "; ".join(
        f"{count} {one if count == 1 else many}, {more} more needed" for one, many, count, more in found
    )
    waits = " (with gradients on, findwall waits for an optimizer; torch.no_grad() says that none comes)"
    return (
        f"no step was found: the job ended too soon, and no optimizer stepped. Seen: {told}"
        f"{waits if training_expected else ''}. {options.more_steps}"
    )
