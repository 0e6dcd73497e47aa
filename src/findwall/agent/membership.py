"""Which process of the job this is, from the variables that torchrun, SLURM and MPI launchers set."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
)


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of this process in its job."""

    rank: int = 0
    world_size: int = 1
    job: str = ""  # the same text on every rank of one launch, another for the next launch

    @property
    def speaks(self) -> bool:
        return self.rank == 0


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def _parent_identity() -> str:
    """The launcher's pid and start time: shared by the ranks of one launch on one machine, by no other."""
    parent = os.getppid()
    try:
        stat = Path(f"/proc/{parent}/stat").read_text()
        return f"{parent}:{stat.rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return str(parent)


def _job_key(environ: Mapping[str, str]) -> str:
    named = [
        environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RESTART_COUNT")
    ]
    elastic = environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none" or environ.get("SLURM_STEP_ID"):
        # Ranks of other machines have another parent; these ids already tell launches apart.
        return ":".join([*named, elastic, environ.get("MASTER_PORT", "")])
    return ":".join([*named, environ.get("MASTER_PORT", ""), _parent_identity()])


def this_rank(environ: Mapping[str, str] | None = None) -> Membership:
    environ = os.environ if environ is None else environ
    rank = _number(environ, "RANK", "OMPI_COMM_WORLD_RANK")
    world = _number(environ, "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
    if rank is None or world is None or world < 2 or rank >= world:
        return Membership()
    return Membership(rank, world, hashlib.sha256(_job_key(environ).encode()).hexdigest()[:16])
