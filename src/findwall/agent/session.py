"""A session: findwall inside one process of a job, from before torch's import to the end. It fails open."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType

from findwall.agent.allocations.first_steps import FirstSteps
from findwall.agent.appointment import Appointment
from findwall.agent.ending import account
from findwall.agent.ending.closing import closing_line
from findwall.agent.ending.job_report import JobReport
from findwall.agent.ending.later_steps import look_back, timed_ns, watch_on
from findwall.agent.ending.measuring_again import FASTER, SAID, Again, came_too_early
from findwall.agent.ending.runfolder import RunFolder, open_folder
from findwall.agent.ending.stderr import say
from findwall.agent.ending.telling import Speak, Telling
from findwall.agent.engine import Engine
from findwall.agent.forks import watch_forks
from findwall.agent.importhook import when_imported
from findwall.agent.membership import this_rank
from findwall.agent.options import Options
from findwall.agent.stages.timing_stages import Warmup
from findwall.agent.step_ends import hooks
from findwall.agent.step_ends.listener import Listener
from findwall.agent.step_ends.lookout import Lookout
from findwall.agent.step_ends.step_gate import Gate
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.tracing.observer import OBSERVER
from findwall.apply.applying import Effects
from findwall.apply.registry import REGISTRY

OTHERS_S = 10.0  # that the rank which speaks waits at a job's end for the others. Chosen by hand.

WAITS = "the job has not imported torch yet"
CLOSES = "the run is closed when the job ends, however that is"

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
        self.rank = this_rank()
        self._report = JobReport(self.rank, effects)
        self.off = False
        self.gate = Gate()
        self.engine: Engine | None = None
        self.listener: Listener | None = None
        self._folder: RunFolder | None = None
        self._base = Path.cwd()  # the job may change it
        self._lookout: Lookout | None = None
        self._telling = Telling(options, self.rank, lambda: self.engine, speak)
        self._verdict = self._telling.verdict
        self._again = Again(options, self.rank)
        self.thread_id = threading.get_ident()
        self._closed = self._stop_now = False
        self._appointment: Appointment | None = None

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
            session._telling.begin()
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
            self._report.torch_imported(torch)
            self.find_folder()
            self.engine = engine = Engine(torch, self.options, self.rank, self.gate, self)
            engine.live = self._report.live
            engine.memory.first_steps = FirstSteps(engine)
            self.listener = listener = Listener(engine, self)
            for text in hooks.install(torch, listener):
                engine.note(f"not watched in this torch: {text}")
            self._lookout = Lookout(torch, self.thread_id, listener, listener.finds_loops)
        except Exception as error:  # noqa: BLE001 - fail open: torch may be any, and fixes change it
            self.fail(error)

    def find_folder(self, at_last: bool = False) -> RunFolder | None:
        if self._folder is None:
            self._folder = open_folder(self.script, self.argv, self.options, self.rank, self._base, at_last)
            self._telling.where_it_is(self._folder)
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
        self._telling.hide()
        say(f"stopped measuring ({type(error).__name__}: {error}); the job runs on")
        stops: list[Callable[[], None]] = [self._stop_threads]
        engine = self.engine
        if engine is not None:
            stops += [engine.abort_window, lambda: account.broke(engine, error)]
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
            self.engine.memory.stop_recording()
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
        self._telling.forked()
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

    # What the engine tells

    def step(self) -> None:
        """The job says itself that a step has ended."""
        if self.listener is not None:
            self.listener.step_marked()

    def guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - fail open: any part of findwall may have broken
            self.fail(error)

    def leave_if_asked(self) -> None:
        if self._stop_now:
            self._stop_now = False
            raise SystemExit(0)

    def marked_when_done(self, engine: Engine, source: StepEnd, key: int) -> None:
        """All is measured. A job of several ranks that is to be stopped still counts its steps; and after an
        evaluation the training may yet begin."""
        if not self.options.stop or self.rank.world_size == 1:
            self.guard(lambda: self._look_for_training(engine, source, key))
        elif self._folder is not None and engine.finder.mark(source, key):
            self.guard(lambda: self._stop_together(engine))
        self.leave_if_asked()

    def _look_for_training(self, engine: Engine, source: StepEnd, key: int) -> None:
        now = perf_counter_ns()
        ended = engine.finder.mark(source, key, now)
        if not engine.finder.better:
            self._rest(engine)
        elif ended and not self._verdict.is_at_work:
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
        if self.listener is not None:
            hooks.install(engine.torch, self.listener)  # some of them went with the first trace
        engine.note(why)
        self._telling.start_over()

    def _first_step(self, engine: Engine) -> None:
        engine.thread_id = threading.get_ident()
        engine.take_passed()
        engine.step_number += 1
        engine.enter(Warmup(engine))
        if self.listener is not None:
            self.listener.say_what_ends_a_step()
        if engine.finder.source in (StepEnd.EXPLICIT, StepEnd.OPTIMIZER) and self._lookout is not None:
            self._lookout.stop()

    # The end

    def _finished(self, engine: Engine) -> None:
        if self._again.may_come_later:
            engine.telemetry.stop()  # what ends the steps is still looked at
        else:
            self._stop_threads()
        self._write_report()
        account.save(engine, final=True)
        self._leave_what_stays()
        if self.rank.world_size == 1:
            self._tell_trial()  # else when all ranks have measured
        self._telling.begin_verdict(self._folder)
        if not self.options.stop:
            self._rest(engine)
        elif self.rank.world_size == 1:
            self._verdict.end()
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

    def _write_report(self) -> None:
        # A rank that does not speak may not have looked for it yet; a job without torch has none.
        folder = self.find_folder(self.engine.steps_ended > 0) if self.engine is not None else None
        if folder is not None:
            self._report.write(folder)

    def _tell_trial(self, wait_s: float = 0.0) -> None:
        if self._folder is not None and self.engine is not None:
            self._report.tell_trial(self._folder, self.engine.record, wait_s)

    def _rest(self, engine: Engine) -> None:
        if self.rank.world_size == 1:
            watch_on(
                engine,
                lambda mean_ns: self.guard(lambda: self._block_ended(engine, mean_ns)),
                self._again.waits_ns if self._again.may_come_later else 0,
                self._waited_in_vain,
                lambda: self._verdict.is_at_work,
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
        if not self._again.may_come_later or self._verdict.is_at_work:
            return
        if not self._looks_on():
            self._stop_threads()
        elif self._again.has_settled(timed_ns(engine), mean_ns):
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
        self._telling.hide()
        self._closed = self._stop_now = True
        self._switch_off()
        REGISTRY.job_ended()

    def _stop_together(self, engine: Engine) -> None:
        """The rank that speaks names the step once its verdict is there, all end at it."""
        assert self._folder is not None
        engine.step_number += 1
        self._appointment = self._appointment or Appointment(self._folder.path)
        # Where no verdict is worked out, the ranks' own ends are waited for.
        # Who does not share the folder would not learn of it, and wait for the others for ever.
        if (self._verdict.is_there or not self.options.verdict) and self._report.all_measured(self._folder):
            self._tell_trial()
            self._verdict.end()
            self._appointment.make(engine.step_number)
        if self._appointment.is_due(engine.step_number):
            self._stop()

    def close(self, failure: str = "", error: BaseException | None = None) -> None:
        """The job has ended, maybe with this exception. Whatever was measured is kept, and the verdict is
        printed if the job went well."""
        if self._closed:
            return
        self._closed = True
        if not self.off:
            if self.engine is not None:
                with suppress(Exception):  # a process more, where memory has just ended
                    self._telling.begin_what_fits(self._folder, error)
                with suppress(Exception):  # words are made of modules that are loaded now, in little memory
                    self._telling.tell_failures(self.engine, error)
            self.guard(self._write_report)
            self.guard(lambda: self._close(failure))
            self.guard(lambda: self._tell_trial(0.0 if failure else OTHERS_S))
        self._telling.hide()
        self._switch_off()
        REGISTRY.job_ended()

    def _close(self, failure: str) -> None:
        engine = self.engine
        if engine is None:
            before = f"ended with {failure} before it imported" if failure else "did not import"
            say(f"the job {before} torch, so there is nothing to measure")
            return
        self._stop_threads()
        if self._lookout is not None:
            self._lookout.join()
        if not engine.done and account.takes_back(engine, failure):
            if not failure and self._folder is not None and self.rank.speaks:
                say(closing_line(self._folder.path))  # its verdict is there
                return
        elif not engine.done:
            account.job_ended(engine, failure)
        elif failure:
            account.crashed(engine, failure)
        elif look_back(engine):
            # What came too seldom to be timed and traced changes the mean: the verdict is worked out again.
            if self._verdict.begun:
                self._verdict.end(quietly=True)
                say("steps that came later change the mean step: the next verdict replaces the one above")
        else:
            account.keep_memory(engine)
        if self._folder is not None:
            self._telling.end(engine, self._folder, failure)


def current() -> Session | None:
    """The session that watches this process, while it does."""
    return _current if _current is not None and not _current.off else None
