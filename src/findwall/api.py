"""findwall from Python: `findwall.read(path)` gives the Diagnosis of files that exist already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from findwall.model.diagnosis import Diagnosis

if TYPE_CHECKING:
    from findwall.examine import Examined
    from findwall.loop import measure as measure
    from findwall.model.measured_run import Run

__all__ = ["measure", "read"]

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def read(
    paths: Paths,
    *,
    step_ms: float | None = None,
    ceilings: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    max_memory: int | None = None,
    what_if: str | None = None,
    ncu: str | PathLike[str] | None = None,
    execution: str | PathLike[str] | None = None,
    gpu: str | None = None,
    ray: str | None = None,
    baseline: Paths | None = None,
) -> Diagnosis:
    """The Diagnosis of a trace, an export, a folder of ranks, a run folder, what Nsight Compute counted, or a
    memory snapshot.

    A notebook shows it, print() does too.

    `step_ms` is the true step time, measured without the profiler; `ceilings` a file of measured ceilings.
    `max_memory`, in bytes, is what reading may take: by default half of what the machine has left.
    `what_if` names fixes, as in "loader-workers=4,pin-memory": the step they would give is in the document.
    `ncu` is a file of Nsight Compute: bytes it counted of these kernels replace those worked out from shapes.
    `execution` is a file of torch's ExecutionTraceObserver, of the same job: who reads what each op makes.
    `baseline` is the same job on fewer ranks: the document then says how well it scales.
    `gpu` names the device where the file does not, as in "NVIDIA H200".
    `ray` is the address of a Ray cluster that reads the ranks' files, each where a task of it runs.
    """
    from findwall import notebook

    _, found = look(
        paths, step_ms, ceilings, progress, max_memory, what_if, ncu, execution, gpu, ray, baseline
    )
    return notebook.shown(found.diagnosis)


def look(
    paths: Paths,
    step_ms: float | None = None,
    ceilings: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    max_memory: int | None = None,
    what_if: str | None = None,
    ncu: str | PathLike[str] | None = None,
    execution: str | PathLike[str] | None = None,
    gpu: str | None = None,
    ray: str | None = None,
    baseline: Paths | None = None,
) -> tuple[Run, Examined]:
    """The same, with the run and the facts that the Diagnosis rests on: what is drawn is taken from them."""
    from findwall.examine import look_into
    from findwall.examine.many_ranks import open_many
    from findwall.fixes.what_if import parse
    from findwall.machine.hardware import ceilings_of, load_ceilings
    from findwall.ncu.ncu_reader import counted_with
    from findwall.readers import open_run
    from findwall.readers.nccl_log import connected_by, parted
    from findwall.readers.observed_steps import observed_with
    from findwall.readers.remote_paths import place

    if what_if is not None:
        parse(what_if)  # what cannot be asked is refused before minutes of reading
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    measured = load_ceilings(Path(ceilings)) if ceilings is not None else None
    named = ceilings_of(gpu) if gpu is not None else None
    logs, given = parted([place(path) for path in several])
    run = open_many(given, progress, max_memory, ray) or open_run(
        given, progress=progress, max_memory=max_memory
    )
    if ncu is not None:
        run = counted_with(run, Path(ncu), max_memory)
    run = connected_by(run, logs)
    if execution is not None:
        run = observed_with(run, Path(execution))
    if named is not None and run.device_name not in (None, named.device):
        note = f"The ceilings are those of {named.device}, as --gpu says; the file says {run.device_name}."
        run = replace(run, notes=(*run.notes, note))
    elif named is not None:
        run = replace(run, ranks=tuple(replace(rank, device_name=named.device) for rank in run.ranks))
    found = look_into(run, step_ms=step_ms, ceilings=measured or named, what_if=what_if)
    if baseline is not None:
        from findwall.examine.ranks_told import scaled  # few ask for it

        before, its = look(baseline, ceilings=ceilings, max_memory=max_memory, gpu=gpu)
        scaled(found.diagnosis, run, its.diagnosis, before)
    return run, found


def __getattr__(name: str) -> object:
    if name == "measure":
        from findwall.loop import measure

        return measure
    raise AttributeError(f"module 'findwall.api' has no attribute {name!r}")
