"""`findwall sweep`: try batches of other sizes without an edit, for where more of them stop being faster."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from findwall.cli.around.progress import say
from findwall.errors import FindwallError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from findwall.cli.jobs.trying import Job
    from findwall.memory.device_memory import DeviceMemoryFacts
    from findwall.model.arms import BatchLines, FedLoader
    from findwall.model.diagnosis import Diagnosis
    from findwall.trial.sweep_sizes import Ran, Tried, Way

_VARIED = re.compile(r"-{0,2}([A-Za-z][\w.-]*)=(\d{1,9}(?:,\d{1,9})*)")
VARY = "vary an argument of the job instead: --vary batch-size=8,16,32"


@click.command(
    "sweep",
    context_settings={"allow_interspersed_args": False},
    epilog="Put it in front of the command you use: findwall sweep train.py --lr 3e-4. Each size runs the "
    "script again in a fresh process, with everything it does: what it writes, it writes each time. A larger "
    "batch changes the training itself; the learning rate stays as it is.",
)
@click.option("-m", "is_module", is_flag=True, help="TARGET is a module, as in python -m.")
@click.option(
    "--vary",
    metavar="NAME=A,B,C",
    help="Give the job --NAME A, --NAME B and so on, instead of changing its training loader.",
)
@click.option(
    "--budget", metavar="TIME", default="5m", show_default=True, help="The most that all sizes may take."
)
@click.option("--steps", type=click.IntRange(min=5), help="Steps to time with each size.")
@click.option(
    "--sandbox-dir",
    type=click.Path(file_okay=False),
    help="Run each process in a new folder in this one, gone after it.",
)
@click.option("--markdown", "is_markdown", is_flag=True, help="Print it as Markdown.")
@click.option(
    "--json", "json_target", metavar="FILE", help="Write the Diagnosis with its sweep; - for stdout."
)
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    is_module: bool,
    vary: str | None,
    budget: str,
    steps: int | None,
    sandbox_dir: str | None,
    is_markdown: bool,
    json_target: str | None,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Run TARGET with batches of other sizes, for the size from which on more samples a step gain nothing.

    The training loader's batch size is doubled from the job's own, then halved; where that runs out of
    memory already, it is halved until it fits. Loaders for evaluation stay as they are. Each size is told
    with its samples per second, step, peak memory and wall, and the peak is predicted before it is tried:
    what would not fit is not started.
    """
    from findwall.cli.around.inputs import check_places, seconds
    from findwall.cli.jobs.launchers import launch_of
    from findwall.cli.jobs.trying import Job, run_folder

    name, sizes = varied(vary)
    launch = launch_of((target, *arguments), is_module)
    check_places("sweep", launch, sandbox_dir, json_target)
    launch = launch.elsewhere() if sandbox_dir else launch
    job = Job(
        target=launch.target,
        arguments=launch.arguments,
        is_module=launch.is_module,
        launcher=launch.launcher,
        folder=run_folder(launch.target, "sweep"),
        cwd=sandbox_dir,
        steps=steps,
        budget_s=seconds(budget),
    )
    found = _Sweeping(job, name, sizes).go()
    _tell(found, job, is_markdown, json_target)


def varied(text: str | None) -> tuple[str, tuple[int, ...]]:
    """ "batch-size=8,16,32"."""
    if text is None:
        return "", ()
    found = _VARIED.fullmatch(text.strip())
    sizes = sorted({int(word) for word in found[2].split(",")}) if found is not None else []
    if found is None or sizes[0] < 1:
        raise InputError(f"--vary {text} names no sizes", "Write it as --vary batch-size=8,16,32.")
    return found[1], tuple(sizes)


def with_argument(arguments: Sequence[str], name: str, value: int) -> tuple[str, ...]:
    """The job's command line with this value in place of what it has, or behind the rest. A job that spells
    it with underscores keeps that."""
    wanted, found, at = name.replace("_", "-"), list(arguments), 0
    while at < len(found):
        option, is_joined, _ = found[at].partition("=")
        if option.startswith("--") and option[2:].replace("_", "-") == wanted:
            if is_joined:
                found[at] = f"{option}={value}"
            else:
                found[at + 1 : at + 2] = [str(value)]
            return tuple(found)
        at += 1
    return (*found, f"--{name}", str(value))


class _Sweeping:
    """Runs the points of a sweep, and looks at the wall of each."""

    def __init__(self, job: Job, name: str, sizes: tuple[int, ...]) -> None:
        self._job, self._name, self._sizes = job, name, sizes
        self._begun = time.monotonic()
        self._looks: dict[int, Diagnosis] = {}
        self._recorded: dict[int, DeviceMemoryFacts] = {}
        self._lines: dict[int, BatchLines] = {}  # of these, each with its nearest
        self._others: list[float] = []
        self._has_run = False
        self._loader: FedLoader | None = None

    @property
    def left_s(self) -> float:
        return self._job.budget_s - (time.monotonic() - self._begun)

    def go(self) -> Diagnosis:
        from msgspec.structs import replace

        from findwall.report.words.documents import worded
        from findwall.trial.process_groups import Stop
        from findwall.trial.sweep_document import sweep_document
        from findwall.trial.sweep_sizes import sweep

        with Stop() as self._stop:  # between two processes, too
            way, first = self._argument() if self._name else self._found_loader()
            tried, ended = sweep(way, first)
        ended = "interrupted" if self._stop.asked else ended
        if not self._looks:
            raise KeyboardInterrupt if ended == "interrupted" else _no_figures(tried)
        walls = {size: one.wall for size, one in self._looks.items() if one.wall.wall is not None}
        others = max(self._others, default=None)
        took = time.monotonic() - self._begun
        found = sweep_document(tried, way, walls, ended, took, self._name, others)
        return worded(replace(self._looks.get(way.own) or next(iter(self._looks.values())), sweep=found))

    def _argument(self) -> tuple[Way, None]:
        """The smallest first: it is cheap, and what the others take is predicted from it."""
        return self._way(self._sizes[0], given=self._sizes), None

    def _found_loader(self) -> tuple[Way, Ran]:
        """The job as it is, for the loader that feeds its steps."""
        say("running the job as it is")
        ran = self._run(0)
        if ran.trouble == "interrupted":
            raise KeyboardInterrupt
        fed = ran.swept.fed if ran.swept is not None else ran.fed
        is_too_large = ran.trouble == "out-of-memory" and bool(fed)  # then smaller ones are tried
        if (ran.trouble or ran.swept is None) and not is_too_large:
            what = "there was no time for it" if ran.trouble == "deadline" else ran.why or "no step was timed"
            raise FindwallError(
                f"The job gave no figures with its own batch size: {what}",
                f"If it needs more time, --budget gives it; if its batch is too large, {VARY}.",
            )
        self._loader = trainer_of(fed)
        own = self._loader.size or 0
        if is_too_large:
            say(f"batches of {own}, the job's own, run out of memory: smaller ones are tried")
        self._looks |= {own: self._looks.pop(0)} if self._looks else {}
        self._recorded |= {own: self._recorded.pop(0)} if self._recorded else {}
        return self._way(own, loader=self._loader, samples=self._loader.samples), ran

    def _way(
        self,
        own: int,
        given: tuple[int, ...] = (),
        samples: int | None = None,
        loader: FedLoader | None = None,
    ) -> Way:
        from findwall.machine.host_memory import available_memory
        from findwall.trial.sweep_sizes import Way

        return Way(
            run=self._run,
            left_s=lambda: self.left_s,
            own=own,
            given=given,
            samples=samples,
            limit=available_memory(),
            tell=_progress,
            loader=loader,
            recorded=self._batches,
        )

    def _batches(self) -> dict[int, BatchLines]:
        from findwall.memory.batch_growth import lines_by_size

        if self._lines.keys() != self._recorded.keys():
            self._lines = lines_by_size(self._recorded)
        return self._lines

    def _run(self, size: int) -> Ran:
        """One fresh process. 0: the job as it is."""
        from msgspec.structs import replace

        from findwall.trial.sweep_sizes import Ran

        if self._stop.asked:
            return Ran(trouble="interrupted")
        own, job = not self._has_run, self._job
        self._has_run = True
        with tempfile.TemporaryDirectory(prefix="findwall-sweep-") as name:
            folder = job.folder if own and job.folder is not None else Path(name, "run")
            ran = self._sample(size, folder)
            if ran.swept is not None and not ran.trouble:
                began = time.monotonic()
                self._look(size, folder)
                ran = replace(ran, seconds=ran.seconds + time.monotonic() - began)
        if not ran.trouble and ran.swept is not None and self._loader is not None:
            sizes = [one.size for one in ran.swept.fed]
            if sizes != [size]:
                return Ran(ran.swept, ran.seconds, "failed", f"the loader gave batches of {sizes}")
        return ran

    def _sample(self, size: int, folder: Path) -> Ran:
        import msgspec

        from findwall.model.arms import SWEEP, Varied
        from findwall.trial.arms_in_turn import Arm, Plan, run_trial, step_in_report
        from findwall.trial.sweep_sizes import Ran

        job, changed = self._job, Varied()
        if self._name:
            job = msgspec.structs.replace(job, arguments=with_argument(job.arguments, self._name, size))
        elif self._loader is not None:
            changed = Varied(size, self._loader.loader)
        steps = ("--steps", str(job.steps)) if job.steps is not None else ()
        words = job.command((), "--until", "lines", "--memory", "--out", str(folder), *steps)
        arm = Arm(str(size), words, {**job.env, SWEEP: msgspec.json.encode(changed).decode()}, job.cwd)
        trial = run_trial([arm], Plan(rounds=1, deadline_s=self.left_s, read=step_in_report))
        if not (samples := trial.arms[arm.name].samples):
            return Ran(
                seconds=trial.seconds, trouble="interrupted" if trial.ended == "interrupted" else "deadline"
            )
        sample = samples[0]
        if sample.failure is not None:
            trouble = {"out-of-memory": "out-of-memory", "no-step": "no-step"}.get(sample.failure.trouble)
            fed = sample.report.fed if sample.report is not None else []
            return Ran(None, sample.seconds, trouble or "failed", sample.failure.what, fed=fed)  # type: ignore[arg-type]
        report = sample.report
        if report is not None and report.around.others_busy is not None:
            self._others.append(report.around.others_busy)
        return Ran(report.swept if report is not None else None, sample.seconds)

    def _look(self, size: int, folder: Path) -> None:
        """The wall at that size, and its memory. A folder that cannot be read leaves the figures alone."""
        from findwall import api
        from findwall.examine.job_memory import recorded_steps

        try:
            run, found = api.look(str(folder))
            self._looks[size] = found.diagnosis
            facts = recorded_steps(run)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to lose the figures
            say(f"no wall is known with batches of {size or 'its own size'} ({error})")
            return
        self._recorded |= {size: facts} if facts is not None else {}


def trainer_of(fed: Sequence[FedLoader]) -> FedLoader:
    """The one loader that feeds the steps, if its size can be changed; or a line that says why not."""
    from findwall.apply.swept_loaders import OWN_SAMPLER

    if not fed:
        raise InputError("no data loader feeds this job's steps, so there is no batch size to change", VARY)
    if len(fed) > 1:
        sizes = " and ".join(str(one.size) for one in fed)
        raise InputError(f"{len(fed)} data loaders feed this job's steps, with batches of {sizes}", VARY)
    only = fed[0]
    if only.why_fixed == OWN_SAMPLER:
        raise InputError(
            f"the training loader takes its batches from {only.made_by}, a sampler of the job", VARY
        )
    if only.why_fixed or only.size is None:
        raise InputError("the training loader leaves batches to its dataset (batch_size=None)", VARY)
    if only.samples is not None and only.samples < only.size:
        raise InputError(f"one pass has {only.samples} samples, fewer than a batch of {only.size}", VARY)
    return only


def _no_figures(tried: Sequence[Tried]) -> FindwallError:
    first, hint = tried[0], "Run `findwall run` on it; it shows what is wrong."
    if any(one.rate is not None for one in tried):
        return FindwallError("No run of the job could be read.", hint)
    if first.outcome == "no-time":
        return FindwallError(f"There was no time for batches of {first.size}.", "--budget gives it more.")
    return FindwallError(f"The job gave no figures with any size: {first.why or first.outcome}", hint)


def _progress(tried: Tried) -> None:
    said = (
        f"{tried.rate:,.4g} samples per second" if tried.rate is not None else tried.outcome.replace("-", " ")
    )
    took = f" ({tried.seconds:.0f} s)" if tried.seconds else ""
    say(f"  {tried.size}: {said}{took}")


def _tell(found: Diagnosis, job: Job, is_markdown: bool, json_target: str | None) -> None:
    from findwall.report import document
    from findwall.report.markdown import to_markdown
    from findwall.report.stream import say as show
    from findwall.report.texts import sweep_text

    assert found.sweep is not None
    if json_target != "-":  # first: what took minutes is not lost where a file cannot be written
        show(to_markdown(found) if is_markdown else sweep_text.to_text(found.sweep))
    if json_target is not None:
        document.write(found, json_target)
    if job.folder is not None and job.folder.is_dir():
        _keep(found, job.folder)
    if found.sweep.ended == "interrupted":
        sys.stdout.flush()
        raise KeyboardInterrupt  # what was measured is told: the rest is as of any interrupted command


def _keep(found: Diagnosis, folder: Path) -> None:
    """The sweep beside the job as it is; the document and the page there tell both."""
    import msgspec

    from findwall.cli.jobs.trying import read_again
    from findwall.model.measurement import DIAGNOSIS_FILE, SWEEP_FILE
    from findwall.report import document

    document.save(folder / SWEEP_FILE, msgspec.json.encode(found.sweep))
    try:
        read_again(folder)
    except InputError:  # that run is none: another size's wall is told with the sweep
        document.write(found, str(folder / DIAGNOSIS_FILE))
