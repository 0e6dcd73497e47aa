"""A session: findwall inside one process of a job, from before torch's import to the end. It fails open."""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType

from findwall.agent.allocations.failed_requests import failure_in
from findwall.agent.allocations.failure_claim import caught_claim, failure_claim
from findwall.agent.allocations.first_steps import FirstSteps
from findwall.agent.appointment import Appointment
from findwall.agent.ending import analyst
from findwall.agent.ending.analyst import Analyst, say_failure
from findwall.agent.ending.closing import closing_line
from findwall.agent.ending.helper_process import Process
from findwall.agent.ending.measuring_again import FASTER, SAID, Again, came_too_early
from findwall.agent.ending.runfolder import RunFolder, open_folder
from findwall.agent.ending.statusline import StatusLine
from findwall.agent.ending.stderr import say
from findwall.agent.ending.writes import Writes
from findwall.agent.engine import Engine
from findwall.agent.forks import watch_forks
from findwall.agent.importhook import when_imported
from findwall.agent.membership import this_rank
from findwall.agent.options import Options
from findwall.agent.rank_messages import LOOK_S, Told, told_by_others
from findwall.agent.stages import Warmup
from findwall.agent.step_ends import hooks
from findwall.agent.step_ends.lookout import Lookout
from findwall.agent.step_ends.step_gate import Gate
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.tracing.observer import OBSERVER
from findwall.agent.trial_process import TrialArm
from findwall.apply.applying import Effects
from findwall.apply.registry import REGISTRY
from findwall.model.claims import Claim
from findwall.units import ms

FAILURE_AT_MOST_S = 0.9  # that a job waits which has run out of memory: a second, with what ends it
OTHERS_S = 10.0  # that the rank which speaks waits at a job's end for the others. Chosen by hand.

WAITS = "the job has not imported torch yet"
CLOSES = "the run is closed when the job ends, however that is"

Speak = Callable[[Claim], str]  # a claim in words: whoever starts the session knows them
_current: Session | None = None


class Session:
    """Sets the engine up, decides when a measurement begins, starts over and ends, and prints the verdict."""

    def __init__(
        self,
        script: str,
        argv: list[str],
        options: Options,
        effects: Effects | None = None,
        speak: Speak | None = None,
    ) -> None:
        self.script, self.argv, self.options = script, argv, options
        self._speak = speak
        self._effects = effects or Effects({})
        self.rank = this_rank()
        self._arm = TrialArm.of_environment(self.rank)
        self._saying: tuple[Process, int] | None = None  # what would have fitted, and since when
        self._writes = Writes.of_environment() if self.rank.speaks else None
        self.off = False
        self.gate = Gate()
        self.engine: Engine | None = None
        self._folder: RunFolder | None = None
        self._base = Path.cwd()  # the job may change it
        self._lookout: Lookout | None = None
        self._analyst = Analyst(options, self.rank)
        self._again = Again(options, self.rank)
        self.thread_id = threading.get_ident()
        self._closed = self._stop_now = False
        self._look_again = 0.0  # at what the other ranks tell
        self._appointment: Appointment | None = None
        self._status: StatusLine | None = None

    @classmethod
    def begin(
        cls,
        script: str,
        argv: list[str],
        options: Options,
        effects: Effects | None = None,
        speak: Speak | None = None,
    ) -> Session | None:
        """Start watching this process, or say why not and leave the job alone."""
        global _current
        try:
            session = cls(script, argv, options, effects, speak)
            _current = session
            watch_forks(lambda: _current)
            when_imported("torch", session._torch_imported, "session", WAITS)
            if session.rank.speaks:
                session._status = StatusLine.begin(lambda: session.engine)
            atexit.register(session.close, "")
            at_exit = functools.partial(atexit.unregister, session.close)
            REGISTRY.hold("session", "atexit", at_exit, past_trace=CLOSES)
        except Exception as error:  # noqa: BLE001 - fail open: nothing of ours may keep a job from starting
            say(f"cannot measure this job ({type(error).__name__}: {error}); it runs on without findwall")
            REGISTRY.job_ended()
            return None
        return session

    def _torch_imported(self, torch: ModuleType) -> None:
        if self.off:
            return
        try:
            if self._arm is not None:
                self._arm.torch_imported(torch)
            self._effects.install(torch)
            self.find_folder()
            engine = Engine(torch, self.options, self.rank, self.gate, self)
            engine.first_steps = FirstSteps(engine)
            self.engine = engine
            for text in hooks.install(torch, engine):
                engine.note(f"not watched in this torch: {text}")
            self._lookout = Lookout(torch, self.thread_id, engine, engine.finds_loops)
        except Exception as error:  # noqa: BLE001 - fail open
            self.fail(error)

    def find_folder(self) -> RunFolder | None:
        if self._folder is None:
            self._folder = open_folder(self.script, self.argv, self.options, self.rank, self._base)
        return self._folder

    @property
    def folder(self) -> Path | None:
        return None if self._folder is None else self._folder.path

    @property
    def is_closed(self) -> bool:
        return self._closed

    def fail(self, error: BaseException) -> None:
        """findwall broke: say so once, and be gone."""
        if self.off:
            return
        self._switch_off()
        self._hide_status()
        say(f"stopped measuring ({type(error).__name__}: {error}); the job runs on")
        stops: list[Callable[[], None]] = [self._stop_threads]
        engine = self.engine
        if engine is not None:
            stops += [engine.abort_window, lambda: engine.broke(error)]
        stops.append(REGISTRY.job_ended)
        for stop in stops:
            try:
                stop()
            except Exception:  # noqa: BLE001 - already failing: what cannot be tidied stays
                continue

    def _switch_off(self) -> None:
        self.off = True
        if self.engine is not None:
            self.engine.off = True
        self.gate.watch = None
        self.gate.shut_for_good()

    def before_fork(self) -> None:
        OBSERVER.end()  # a child would write into its file
        if self.engine is not None:
            self.engine.telemetry.before_fork()

    def after_fork(self) -> None:
        if self.engine is not None:
            self.engine.telemetry.after_fork_in_parent()

    def forked(self) -> None:
        global _current
        analyst.forked()
        if self._status is not None:
            self._status.forked()
        self._closed = True
        self._switch_off()
        if self._lookout is not None:
            self._lookout.forked()
        _current = None

    def _stop_threads(self) -> None:
        if self._lookout is not None:
            self._lookout.stop()
        if self.engine is not None:
            self.engine.telemetry.stop()

    def _hide_status(self) -> None:
        status, self._status = self._status, None
        if status is not None:
            status.stop()

    # What the engine tells

    def step(self) -> None:
        """The job says itself that a step has ended."""
        if self.engine is not None:
            self.engine.step_marked()

    def guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - fail open
            self.fail(error)

    def leave_if_asked(self) -> None:
        if self._stop_now:
            self._stop_now = False
            raise SystemExit(0)

    def marked_when_done(self, engine: Engine, source: StepEnd, key: int) -> None:
        """All is measured. A job of several ranks that is to be stopped still counts its steps; and after an
        evaluation the training may yet begin."""
        if not self.options.stop:
            self.guard(lambda: self._look_for_training(engine, source, key))
            return
        if self.rank.world_size == 1:
            self.guard(lambda: self._look_for_training(engine, source, key))
        elif self._folder is not None and engine.finder.mark(source, key):
            self.guard(lambda: self._stop_together(engine))
        self.leave_if_asked()

    def _look_for_training(self, engine: Engine, source: StepEnd, key: int) -> None:
        now = perf_counter_ns()
        ended = engine.finder.mark(source, key, now)
        if not engine.finder.better:
            self._rest(engine)
        elif ended and (self._analyst.is_there or not self._analyst.begun):
            self.step_found(engine, now)

    def step_found(self, engine: Engine, now: int) -> None:
        restarted, better = engine.finder.take_restart()
        if restarted and engine.record.phase in ("warm-up", "timing"):
            engine.stage = None
            if engine.finder.source is StepEnd.EXPLICIT:
                engine.forget_steps()  # the job counts them itself
        elif better and self._again.is_possible:
            what = engine.record.step_source or "other"
            text = f"the job ran other steps before its first training step ({what}); they are left out"
            self._start_over(engine, text, keep=False)
        if engine.stage is None:
            self._first_step(engine)
            return
        engine.step_ended(now)
        if engine.done:
            self._finished(engine)

    def _start_over(self, engine: Engine, why: str, keep: bool) -> None:
        """What was measured is not what the job is about. `keep`: it stands until there is more."""
        self._again.use()
        engine.start_over(keep)
        hooks.install(engine.torch, engine)  # some of them went with the first trace
        engine.note(why)
        self._analyst = Analyst(self.options, self.rank)
        if self._status is not None:
            self._hide_status()
            self._status = StatusLine.begin(lambda: self.engine)

    def _first_step(self, engine: Engine) -> None:
        engine.thread_id = threading.get_ident()
        engine.take_passed()
        engine.step_number += 1
        engine.enter(Warmup(engine))
        engine.say_what_ends_a_step()
        if engine.finder.source in (StepEnd.EXPLICIT, StepEnd.OPTIMIZER) and self._lookout is not None:
            self._lookout.stop()

    # The end

    def _finished(self, engine: Engine) -> None:
        if self._again.may_come_later:
            engine.telemetry.stop()  # what ends the steps is still looked at
        else:
            self._stop_threads()
        self._write_effects()
        engine.save(final=True)
        self._leave_what_stays()
        if self.rank.world_size == 1:
            self._tell_trial()  # else when all ranks have measured
        self._begin_verdict()
        if not self.options.stop:
            self._rest(engine)
        elif self.rank.world_size == 1:
            self._analyst.end()
            if self._looks_on():
                say(SAID)
                self._rest(engine)
            else:
                self._stop()

    def _leave_what_stays(self) -> None:
        """Nobody counts the steps that follow of a job of several ranks, unless it is stopped at one."""
        if self.rank.world_size > 1 and not self.options.stop:
            REGISTRY.job_ended()
        else:
            REGISTRY.trace_ended()

    def _write_effects(self) -> None:
        """What fixes that were made without an edit did, and what the job wrote where that is asked for: once
        all is measured, and when the job ends."""
        # A rank that does not speak may not have looked for it yet; a job without torch has none.
        folder = self.find_folder() if self.engine is not None else None
        if folder is not None and self._writes is not None:
            folder.write_writes(self._writes)
        if folder is not None and self._effects.names:
            folder.write_applied(self._effects.told())

    def _tell_trial(self, wait_s: float = 0.0) -> None:
        """What a trial asks for, by the rank that speaks; `wait_s`: for the others to have told it theirs."""
        if self._arm is None or self._folder is None or self.engine is None or not self.rank.speaks:
            return
        others = told_by_others(self._folder.path, self.rank.world_size, wait_s)
        if others is not None:
            self._arm.tell([Told(self.engine.record, self._effects.told()), *others])

    def _begin_verdict(self) -> None:
        if self._analyst.begun:
            return
        self._analyst.begin(self._folder)
        if self._status is not None and self._analyst.begun:
            self._status.think()

    def _rest(self, engine: Engine) -> None:
        if self.rank.world_size == 1:
            engine.watch_on(
                lambda mean_ns: self.guard(lambda: self._block_ended(engine, mean_ns)),
                self._again.waits_ns if self._again.may_come_later else 0,
                self._waited_in_vain,
                lambda: self._analyst.is_at_work,
            )
        inferred = engine.finder.source in (StepEnd.FORWARD, StepEnd.LOADER, StepEnd.REGION, StepEnd.LOOP)
        if inferred and self._again.is_possible:
            self.gate.shut_until_better(engine.finder.source)
        else:
            self.gate.shut_for_good()

    def _looks_on(self) -> bool:
        """Whether the verdict, which is there, leaves something to measure again."""
        if self._again.may_come_later and not came_too_early(self.folder):
            self._again.give_up()
        return self._again.may_come_later

    def _block_ended(self, engine: Engine, mean_ns: float) -> None:
        """As many steps as were timed have come after all was measured, with this mean."""
        if not self._again.may_come_later or (self._analyst.begun and not self._analyst.is_there):
            return
        if not self._looks_on():
            self._stop_threads()
        elif self._again.has_settled(engine.timed_ns, mean_ns):
            self._analyst.end(quietly=True)
            say(f"{FASTER}, so it is measured again")
            self._start_over(engine, f"{FASTER}, so it was measured again", keep=True)
            self.gate.open_again()

    def _waited_in_vain(self) -> None:
        """The job did not become faster, or does something else by now."""
        self._again.give_up()
        self.guard(self._stop if self.options.stop else self._stop_threads)
        self.leave_if_asked()

    def _stop(self) -> None:
        self._stop_threads()
        self._hide_status()
        self._closed = self._stop_now = True
        self._switch_off()
        REGISTRY.job_ended()

    def _stop_together(self, engine: Engine) -> None:
        """Several ranks: the one that speaks names the step once its verdict is there, all end at it."""
        assert self._folder is not None
        engine.step_number += 1
        self._appointment = self._appointment or Appointment(self._folder.path)
        if self._analyst.is_there or self._all_measured():
            self._tell_trial()
            self._analyst.end()
            self._appointment.make(engine.step_number)
        if self._appointment.is_due(engine.step_number):
            self._stop()

    def _all_measured(self) -> bool:
        """Where no verdict is worked out, the ranks' own ends are waited for, and told once."""
        now = time.monotonic()
        if self.options.verdict or not self.rank.speaks or self._folder is None or now < self._look_again:
            return False
        waits = told_by_others(self._folder.path, self.rank.world_size) is None
        self._look_again = now + LOOK_S if waits else inf
        return not waits

    def close(self, failure: str = "", error: BaseException | None = None) -> None:
        """The job has ended, maybe with this exception. Whatever was measured is kept, and the verdict is
        printed if the job went well."""
        if self._closed:
            return
        self._closed = True
        if not self.off:
            with suppress(Exception):  # a process more, where memory has just ended
                self._begin_to_say(error)
            with suppress(Exception):  # words are made of modules that are loaded now, in little memory
                self._tell_memory(error)
            self.guard(self._write_effects)
            self.guard(lambda: self._close(failure))
            self.guard(lambda: self._tell_trial(0.0 if failure else OTHERS_S))
        self._hide_status()
        self._switch_off()
        REGISTRY.job_ended()

    def _tell_memory(self, error: BaseException | None) -> None:
        """Each rank of its own requests that failed: the others know nothing of them."""
        if self.engine is None:
            return
        oom = self.engine.ran_out(error)
        claims = [] if oom is None else failure_claim(oom).parts
        claims += [] if self.engine.caught is None else [caught_claim(self.engine.caught)]
        if claims:
            self._hide_status()
        of = f"rank {self.rank.rank}: " if self.rank.world_size > 1 else ""
        for words in [] if self._speak is None else map(self._speak, claims):
            say(f"{of}{words}")

    def _close(self, failure: str) -> None:
        engine = self.engine
        if engine is None:
            before = f"ended with {failure} before it imported" if failure else "did not import"
            say(f"the job {before} torch, so there is nothing to measure")
            return
        self._stop_threads()
        if engine.first_steps is not None:
            engine.first_steps.end()
        if self._lookout is not None:
            self._lookout.join()
        if not engine.done and engine.takes_back(failure):
            if not failure and self._folder is not None and self.rank.speaks:
                say(closing_line(self._folder.path))  # its verdict is there
                return
        elif not engine.done:
            engine.job_ended(failure)
        elif failure:
            engine.crashed(failure)
        elif engine.look_back():
            # What came too seldom to be timed and traced changes the mean: the verdict is worked out again.
            told = self._analyst.begun
            self._analyst.end(quietly=True)
            if told:
                say("steps that came later change the mean step: the next verdict replaces the one above")
            self._analyst = Analyst(self.options, self.rank)
        else:
            engine.keep_memory()
        if self._folder is None or not self.rank.speaks:
            return
        if self._saying is not None:
            with suppress(Exception):  # a process more, where memory has just ended
                self._wait_for_said(engine, self._folder)
        if failure:
            self._end_after_failure(failure)
        else:
            if engine.record.steps.host_ns or engine.done:
                self._begin_verdict()
            self._analyst.end()

    def _begin_to_say(self, error: BaseException | None) -> None:
        """What takes a process is begun at once: its modules load while the job looks at itself."""
        can = self.options.verdict and self.rank.speaks and not self._analyst.is_at_work
        if can and self._folder is not None and self.engine is not None and failure_in(error) is not None:
            self._saying = say_failure(self._folder.path, self.rank.rank), perf_counter_ns()

    def _wait_for_said(self, engine: Engine, folder: RunFolder) -> None:
        """Within what is left of the time that a job's failure may take."""
        assert self._saying is not None
        (process, began), self._saying = self._saying, None
        if engine.oom is None:
            process.kill()
            return
        spent_s = (perf_counter_ns() - began) / 1e9
        if not analyst.wait(process, max(FAILURE_AT_MOST_S - spent_s, 0.0)):
            say(f"`findwall read {folder.path}` says which lines hold most of it, and what would fit")
        engine.record.cost["failure_ms"] = ms(perf_counter_ns() - began)
        folder.write_measurement(engine.record)

    def _end_after_failure(self, failure: str) -> None:
        """The job's own message is what counts now: a verdict under way may end, none is begun."""
        assert self._folder is not None
        if self._analyst.begun and failure != "KeyboardInterrupt":
            self._analyst.end()
        else:
            say(f"the job ended with {failure}; `findwall read {self._folder.path}` shows what was measured")


def current() -> Session | None:
    """The session that watches this process, while it does."""
    return _current if _current is not None and not _current.off else None
