"""Run the step's own ops on this device as fixes would run them, so that predictions rest on measurement.

PATH is a run folder that `findwall run` wrote, or a torch.profiler trace; without one it is the newest run in
findwall-runs. Needs torch and the device that the job ran on, for about ten seconds; run it while nothing
else uses that device. What is measured is kept by GPU, driver and torch, and in the run folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from findwall.cli.around.progress import say
from findwall.errors import InputError

if TYPE_CHECKING:
    from findwall.facts.facts import Facts
    from findwall.model.diagnosis import Diagnosis
    from findwall.model.measured_run import Run
    from findwall.model.probes import Probe, Probes, Rewrite
    from findwall.probe.measuring import Target


@click.command("probe", help=__doc__)
@click.argument("path", required=False, type=click.Path())
@click.option("--step-ms", type=float, metavar="X", help="The true step time, measured without the profiler.")
@click.option("--refresh", is_flag=True, help="Probe again what was probed before.")
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(1, 600),
    default=20.0,
    show_default=True,
    help="The most seconds it may take.",
)
@click.option("--brief", "is_brief", is_flag=True, help="Show only the verdict and what to try.")
@click.option("--json", "json_target", metavar="FILE", help="Write the Diagnosis as JSON; - for stdout only.")
def command(
    path: str | None,
    step_ms: float | None,
    refresh: bool,
    budget_s: float,
    is_brief: bool,
    json_target: str | None,
) -> None:
    from msgspec.structs import replace

    from findwall.cli.around.newest import resolve
    from findwall.cli.read import draw, show
    from findwall.examine import look_into
    from findwall.model.measurement import REPORT_FILE
    from findwall.readers import open_run
    from findwall.report import document

    chosen, which = resolve((path,) if path is not None else ())
    if which:
        say(which)
    run = open_run([Path(one) for one in chosen])
    found = _probed(run, step_ms, refresh, budget_s)
    run = replace(run, probes=found)
    examined = look_into(run, step_ms=step_ms)
    diagnosis = examined.diagnosis
    if run.kind == "run-folder":
        _into_folder(Path(run.paths[0]), found, diagnosis)
    if json_target is not None:
        document.write(diagnosis, json_target)
    if json_target != "-":
        show(diagnosis, is_brief)
    if run.kind == "run-folder" and (Path(run.paths[0]) / REPORT_FILE).is_file():
        draw(run, examined, Path(run.paths[0]) / REPORT_FILE)


def _probed(run: Run, step_ms: float | None, refresh: bool, budget_s: float) -> Probes:
    """Plan, run and keep; of what is kept, the ops of this step."""
    from msgspec.structs import replace

    from findwall.cli.around.progress import progress_bar
    from findwall.examine import facts_of
    from findwall.fixes import fix_modules
    from findwall.probe.measuring import find_target, run_probes
    from findwall.probe.probe_cache import kept_probes, path_of, store
    from findwall.probe.probe_plan import plan
    from findwall.probe.probed_rewrites import plan_rewrites

    ranks = facts_of(run, step_ms)
    if not ranks:
        raise InputError(
            "There is nothing to probe: the run has no trace of its device.",
            "Measure the job with its trace: findwall run train.py",
        )
    probes = [*plan(ranks[0]), *plan_rewrites(_rewrites(ranks[0]))]
    if not probes:
        raise InputError(
            "There is nothing to probe: no fix changes how an op of this step runs, or the trace has no "
            "shapes.",
            "Record shapes (record_shapes=True), or let `findwall run` trace the job.",
        )
    target = find_target(ranks[0].rank.device_kind, run.device_name)
    known = None if refresh else kept_probes(target.gpu, target.driver, target.version)
    _announce(target, probes, known)
    with progress_bar("probing") as progress:
        found = run_probes(target, probes, known, budget_s, progress, lambda fix: fix_modules()[fix])
    path = path_of(target.gpu, target.driver, target.version)
    where = f"kept in {path}" if store(found, path) else f"not kept: {path} cannot be written"
    wanted = {probe.key for probe in probes}
    mine = {key: ns for key, ns in found.ns.items() if key in wanted}
    say(f"{len(mine)} of {len(probes)} probes in {found.seconds:.1f} s, {where}")
    for why in dict.fromkeys(found.skipped.values()):
        say(f"not run: {sum(one == why for one in found.skipped.values())} ({why})")
    return replace(found, ns=mine)


def _rewrites(facts: Facts) -> list[Rewrite]:
    """All that fixes would write in another way."""
    from findwall.fixes import Use, all_fixes

    said = [fix.advise(facts) for fix in all_fixes().values()]
    return [rewrite for one in said if isinstance(one, Use) for rewrite in one.rewrites]


def _announce(target: Target, probes: list[Probe], known: Probes | None) -> None:
    from findwall.agent.ending.analyst import ENDED_JOB_VARIABLE

    fresh = sum(known is None or probe.key not in known.ns for probe in probes)
    say(f"{len(probes)} ways to run the step's ops on {target.gpu}, {fresh} not probed before")
    after_job = ENDED_JOB_VARIABLE in os.environ  # its own verdict has said who else was there
    if fresh and not after_job:
        warn_if_shared(target)


def warn_if_shared(target: Target) -> None:
    """Say so where somebody else uses the GPU."""
    from findwall.machine.environment import audit
    from findwall.model.machine import SHARED_GPU

    if target.device.type == "cuda":
        for finding in audit(target.torch):
            if finding.id == SHARED_GPU:
                say(f"{finding.sentence} What is probed now may be too slow.")


def _into_folder(folder: Path, probes: Probes, diagnosis: Diagnosis) -> None:
    """Beside the measurement, with the document that rests on it."""
    from findwall.model.measurement import DIAGNOSIS_FILE
    from findwall.model.probes import PROBES_FILE
    from findwall.probe.probe_cache import store
    from findwall.report import document

    if not store(probes, folder / PROBES_FILE):
        say(f"{folder / PROBES_FILE} cannot be written: `findwall read` will not know of these probes")
    elif (folder / DIAGNOSIS_FILE).is_file():
        document.write(diagnosis, str(folder / DIAGNOSIS_FILE))
