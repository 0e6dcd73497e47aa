"""What a person is told of a measurement: how far it is, the verdict, and why memory did not suffice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

from findwall.agent.allocations.failed_requests import failure_in
from findwall.agent.ending import analyst
from findwall.agent.ending.analyst import Analyst
from findwall.agent.ending.helper_process import Process
from findwall.agent.ending.runfolder import RunFolder
from findwall.agent.ending.statusline import StatusLine
from findwall.agent.ending.stderr import say
from findwall.agent.engine import Engine
from findwall.agent.membership import Membership
from findwall.agent.options import Options
from findwall.model.claims import Claim
from findwall.units import ms

FAILURE_AT_MOST_S = 0.9  # that a job waits which has run out of memory: a second, with what ends it

Speak = Callable[[Claim], str]  # a claim in words: whoever starts the session knows them


class Telling:
    """By one process of the job: the rank that speaks, but for memory, of which each knows its own."""

    def __init__(
        self,
        options: Options,
        rank: Membership,
        engine: Callable[[], Engine | None],
        speak: Speak | None,
    ) -> None:
        self.verdict = Analyst(options, rank)
        self._rank, self._engine, self._speak = rank, engine, speak
        self._can_say = options.verdict
        self._saying: tuple[Process, int] | None = None  # what would have fitted, and since when
        self._status: StatusLine | None = None
        self._reduced = False  # this rank's trace, to its summary

    def begin(self) -> None:
        if self._rank.speaks:
            self._status = StatusLine.begin(self._engine)

    def hide(self) -> None:
        status, self._status = self._status, None
        if status is not None:
            status.stop()

    def forked(self) -> None:
        """In a child of the job."""
        analyst.forked()
        if self._status is not None:
            self._status.forked()

    def start_over(self) -> None:
        """What was said, or is worked out, is not the last word."""
        self.verdict.end(quietly=True)
        if self._status is not None:
            self.hide()
            self.begin()

    def where_it_is(self, folder: RunFolder | None) -> None:
        """Of a machine that shares no folder with the first rank's."""
        if folder is not None and folder.is_apart:
            say(
                f"rank 0's run folder is not on this machine: its ranks are kept in {folder.path}, and "
                "`findwall read` takes both folders together"
            )

    def begin_verdict(self, folder: RunFolder | None) -> None:
        if not self._rank.speaks:
            self._begin_summary(folder)
            return
        if self.verdict.begun:
            return
        self.verdict.begin(folder)
        if self._status is not None and self.verdict.begun:
            self._status.think()

    def _begin_summary(self, folder: RunFolder | None) -> None:
        """What the rank that speaks reads of this one, in place of its trace."""
        engine = self._engine()
        if folder is None or engine is None or engine.record.trace.file is None:
            return
        if self._can_say and not self._reduced:
            self._reduced = True
            analyst.summarise(folder)

    def tell_failures(self, engine: Engine, error: BaseException | None) -> None:
        """Each rank of its own requests that failed: the others know nothing of them."""
        engine.memory.job_ends(error, engine.device, engine.steps_ended, engine.record)
        claims = engine.memory.claims()
        if claims:
            self.hide()
        of = f"rank {self._rank.rank}: " if self._rank.world_size > 1 else ""
        for words in [] if self._speak is None else map(self._speak, claims):
            say(f"{of}{words}")

    def begin_what_fits(self, folder: RunFolder | None, error: BaseException | None) -> None:
        """What would have fitted takes a process: its modules load while the job looks at its own end."""
        can = self._can_say and self._rank.speaks and not self.verdict.is_at_work
        if can and folder is not None and failure_in(error) is not None:
            self._saying = analyst.say_failure(folder.path, self._rank.rank), perf_counter_ns()

    def end(self, engine: Engine, folder: RunFolder, failure: str) -> None:
        """The job has ended."""
        if not self._rank.speaks:
            if not failure:
                self.begin_verdict(folder)
            return
        with suppress(Exception):  # a process more, where memory has just ended
            self._end_what_fits(engine, folder)
        if failure:
            self._end_after_failure(folder.path, failure)
            return
        if engine.record.steps.host_ns or engine.done:
            self.begin_verdict(folder)
        self.verdict.end()

    def _end_what_fits(self, engine: Engine, folder: RunFolder) -> None:
        """Within what is left of the time that a job's failure may take."""
        if self._saying is None:
            return
        (process, began), self._saying = self._saying, None
        if engine.memory.failed is None:
            process.kill()
            return
        spent_s = (perf_counter_ns() - began) / 1e9
        if not analyst.wait(process, max(FAILURE_AT_MOST_S - spent_s, 0.0)):
            say(f"`findwall read {folder.path}` says which lines hold most of it, and what would fit")
        engine.record.cost["failure_ms"] = ms(perf_counter_ns() - began)
        folder.write_measurement(engine.record)

    def _end_after_failure(self, folder: Path, failure: str) -> None:
        """The job's own message is what counts now: a verdict under way may end, none is begun."""
        if self.verdict.begun and failure != "KeyboardInterrupt":
            self.verdict.end()
        else:
            say(f"the job ended with {failure}; `findwall read {folder}` shows what was measured")
