"""What is kept of a measurement: written as it goes on, and however the job ends."""

from __future__ import annotations

from time import perf_counter_ns

from findwall.agent.ending.measuring_again import ENDED_BEFORE
from findwall.agent.ending.stderr import say
from findwall.agent.engine import Engine
from findwall.agent.step_ends.loopfinder import is_wanted
from findwall.agent.step_ends.nosteps import no_steps
from findwall.agent.timing import cost
from findwall.agent.timing.collector import asked_at
from findwall.model.measurement import ENDED

BEFORE_TRACE = ("starting", "warm-up", "timing")


def save(engine: Engine, final: bool = False) -> None:
    if engine.former is not None and not has_trace(engine):
        return  # what was measured before is still the better one
    record, folder = engine.record, engine.folder
    if engine.timed is not None:
        # The device had not passed the last of the timed steps when their stage ended; by now it has.
        engine.timed.resolve()
    record.final = final
    record.beside = engine.diary.entries
    record.collected_at = asked_at()
    record.elapsed = engine.diary.elapsed(perf_counter_ns())
    record.steps_seen = engine.step_number
    engine.memory.write(record, engine.device)
    if record.phase in BEFORE_TRACE:  # what comes later is not what was timed
        record.step_source = None if engine.finder.source is None else engine.finder.source.label
    record.cost["sentence"] = cost.sentence(record.cost)
    if folder is None:
        return
    for text in folder.notes:
        engine.note(text)
    folder.write_measurement(record)


def has_trace(engine: Engine) -> bool:
    """Or all that was asked for."""
    trace = engine.record.trace
    return bool(trace and trace.file) or (not engine.options.trace and len(engine.record.steps) > 0)


def job_ended(engine: Engine, failure: str) -> None:
    """Before all was measured: keep what there is."""
    engine.record.job_ended = failure or ENDED
    if engine.stage is not None:
        engine.stage.close(engine)
    else:
        finder = engine.finder
        looks_at_loops = is_wanted(engine.options, engine.rank)
        text = no_steps(finder.so_far(), finder.training_expected, engine.options, looks_at_loops)
        engine.note(text)
        if engine.rank.speaks and engine.memory.failed is None:
            say(text)
    save(engine, final=True)


def takes_back(engine: Engine, failure: str) -> bool:
    """The job ended while it was measured again: what there was stands, unless this has a trace."""
    former, engine.former = engine.former, None
    if former is None or has_trace(engine):
        return False
    if engine.stage is not None:
        engine.stage.close(engine)
    engine.abort_window()
    engine.record = former
    former.job_ended = failure or ENDED
    engine.memory.write_failures(former)
    engine.note(ENDED_BEFORE)
    if engine.folder is not None:
        engine.folder.write_measurement(former)
    return True


def keep_memory(engine: Engine) -> None:
    """All was measured before: what memory did since is read with it, nothing else is new."""
    engine.memory.write(engine.record, engine.device)
    if engine.folder is not None:
        engine.folder.write_measurement(engine.record)


def crashed(engine: Engine, failure: str) -> None:
    """The job ended badly after all was measured: the folder says so."""
    engine.record.job_ended = failure
    save(engine, final=True)


def broke(engine: Engine, error: BaseException) -> None:
    engine.note(f"findwall stopped measuring: {type(error).__name__}: {error}")
    save(engine, final=True)
