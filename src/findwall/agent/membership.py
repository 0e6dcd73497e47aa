"""Which process of the job this is, from the variables that torchrun, SLURM and MPI launchers set."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# What the analysing process must not inherit: it is no rank of the job.
DISTRIBUTED_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
)
DISTRIBUTED_PREFIXES = ("TORCHELASTIC_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MV2_", "PALS_")

CLOCKS_APART_S = 10.0  # that machines of one job, and the disk they share, may differ by. Chosen by hand.


class Launcher(NamedTuple):
    """The variables by which one tells a process its rank, of how many, and the same on its machine."""

    rank: str
    size: str
    local_rank: str
    local_size: str


# Who starts the process itself stands before whoever started that: mpirun in a batch script of SLURM leaves
# the script's variables in its ranks, and its daemons are tasks of a step of their own.
LAUNCHERS = (
    Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Launcher(
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    Launcher(
        *("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
        *("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
SLURM = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")  # of the step, where it says that
# SLURM's own steps (a batch script, an interactive shell) bear numbers from here on, or none.
FIRST_OWN_STEP = 0xFFFFFFF0
# Names of one launch that are nobody else's, on all of its machines.
LAUNCHES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID")


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of this process in its job."""

    rank: int = 0
    world_size: int = 1
    job: str = ""  # the same text on every rank of one launch, another for the next launch
    local_rank: int | None = None  # on its machine; None: the launcher does not say
    since: float = 0.0  # when this launch began (Unix time), where `job` may be another launch's too
    spans: bool = False  # more than one machine

    @property
    def speaks(self) -> bool:
        return self.rank == 0


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return None


class _Place(NamedTuple):
    rank: int
    size: int
    local_rank: int | None
    spans: bool  # machines


def _place(environ: Mapping[str, str]) -> _Place | None:
    """As the launcher tells it that started this process itself; None: nobody says."""
    for one in LAUNCHERS:
        rank, size = _number(environ, one.rank), _number(environ, one.size)
        if rank is not None and size is not None:
            here = _number(environ, one.local_size)
            return _Place(rank, size, _number(environ, one.local_rank), here is not None and here < size)
    if _slurm_step(environ) is None:
        return None
    rank, size = _number(environ, "SLURM_PROCID"), _number(environ, *SLURM)
    if rank is None or size is None:
        return None
    machines = _number(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") or 1
    return _Place(rank, size, _number(environ, "SLURM_LOCALID"), machines > 1)


def _slurm_step(environ: Mapping[str, str]) -> int | None:
    """The step that `srun` started this process in. A batch script has the job's number of tasks as well,
    and is none of them; so is the shell that salloc opens."""
    step = _number(environ, "SLURM_STEP_ID", "SLURM_STEPID")
    return step if step is not None and step < FIRST_OWN_STEP else None


def _started(process: int) -> tuple[str, float]:
    """When a process began: in the kernel's ticks, and as Unix time; nothing where that cannot be told."""
    try:
        ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
        booted = next(
            line.split()[1]
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime")
        )
        return ticks, float(booted) + int(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError, StopIteration):
        return "", 0.0


def _job_key(environ: Mapping[str, str], place: _Place) -> tuple[str, float]:
    """What tells this launch from others on all its ranks, and when it began, if that does not suffice."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT", *LAUNCHES)
    told = [environ.get(name, "") for name in ("SLURM_JOB_ID", *names)]
    step = _slurm_step(environ)
    told.append("" if step is None else str(step))
    parent = os.getppid()
    elastic = environ.get("TORCHELASTIC_RUN_ID", "")
    if not elastic and (step is not None or any(environ.get(name) for name in LAUNCHES)):
        return ":".join(told), 0.0
    ticks, began = _started(parent)
    if elastic not in ("", "none") or step is not None or place.spans:
        # Ranks of other machines have another parent. The same person may use the same names again.
        return ":".join(told), max(began - CLOCKS_APART_S, 0.0)
    # The launcher: shared by the ranks of one launch on one machine, by no other.
    return ":".join([*told, f"{parent}:{ticks}"]), 0.0


def this_rank(environ: Mapping[str, str] | None = None) -> Membership:
    environ = os.environ if environ is None else environ
    place = _place(environ)
    if place is None or place.size < 2 or place.rank >= place.size:
        return Membership()
    key, since = _job_key(environ, place)
    job = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Membership(place.rank, place.size, job, place.local_rank, since, place.spans)
