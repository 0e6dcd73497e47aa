"""Which run a person means who names none: the newest."""

from __future__ import annotations

from pathlib import Path

from findwall.errors import InputError
from findwall.model.measurement import RUN_FILE


def resolve(paths: tuple[str, ...]) -> tuple[list[str], str]:
    """The paths to read, and a line that says which was chosen; empty where a person chose."""
    if not paths:
        from findwall.agent.ending.runfolder import RUNS  # who names a file need not wait for it

        if not Path(RUNS).is_dir():
            raise InputError(
                f"no path was given, and there is no {RUNS} here",
                "Give a trace or a run folder, or measure a job first: findwall run train.py",
            )
        return _newest(Path(RUNS))
    if len(paths) == 1 and _holds_runs(Path(paths[0])):
        return _newest(Path(paths[0]))
    return list(paths), ""


def _newest(folder: Path) -> tuple[list[str], str]:
    runs = _runs(folder)
    if not runs:
        raise InputError(
            f"{folder} holds no run", "Give a trace, or measure a job first: findwall run train.py"
        )
    newest = max(runs)[1]
    return [str(newest)], f"reading {newest}, the newest of {len(runs)} in {folder}" if len(runs) > 1 else (
        f"reading {newest}"
    )


def _holds_runs(folder: Path) -> bool:
    """A folder of run folders, which is itself none."""
    try:
        return folder.is_dir() and not (folder / RUN_FILE).exists() and bool(_runs(folder))
    except (OSError, ValueError):
        return False  # reading it says what is wrong


def _runs(folder: Path) -> list[tuple[int, Path]]:
    """The run folders in it, each with the moment it was begun."""
    found = []
    for path in folder.iterdir():
        try:
            found.append(((path / RUN_FILE).stat().st_mtime_ns, path))
        except OSError:  # no run, or one that just went
            continue
    return found
