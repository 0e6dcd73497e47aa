"""What other commands leave in a run folder beside its ranks: trials, sweeps, probes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from findwall.errors import InputError
from findwall.files import read_small
from findwall.model.answers.sweep_answer import Sweep
from findwall.model.applied import Trial
from findwall.model.measurement import SWEEP_FILE, TRIALS_FILE
from findwall.model.probes import PROBES_FILE, Probes, read_probes
from findwall.readers.torch_trace.repair import UNDECODABLE


def read_trials_beside(path: Path, notes: list[str]) -> tuple[Trial, ...]:
    """What `findwall try` left here."""
    try:
        return tuple(msgspec.json.decode(read_small(path / TRIALS_FILE), type=list[Trial]))
    except FileNotFoundError:
        return ()
    except (InputError, *UNDECODABLE) as error:
        notes.append(f"{TRIALS_FILE} is left out: {error}; run `findwall try` again")
        return ()


def read_sweep_beside(path: Path, notes: list[str]) -> Sweep | None:
    """What `findwall sweep` left here."""
    try:
        return msgspec.json.decode(read_small(path / SWEEP_FILE), type=Sweep)
    except FileNotFoundError:
        return None
    except (InputError, *UNDECODABLE) as error:
        notes.append(f"{SWEEP_FILE} is left out: {error}; run `findwall sweep` again")
        return None


def read_probes_beside(path: Path, device: str | None, notes: list[str]) -> Probes | None:
    """What `findwall probe` left here; a note where it cannot be trusted."""
    try:
        found = read_probes(read_small(path / PROBES_FILE))
    except FileNotFoundError:
        return None
    except InputError as error:
        notes.append(f"{PROBES_FILE} is left out: {error.message}; run `findwall probe` again")
        return None
    if device and found.gpu != device:
        notes.append(f"{PROBES_FILE} is left out: it is of {found.gpu[:80]}, and the job ran on {device}")
        return None
    return found
