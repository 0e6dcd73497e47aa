"""The verdict's figures, put where the job keeps its own: Weights & Biases, MLflow or TensorBoard.

Only a tracker that the job itself uses is written to, and it is looked for among the modules that the job has
imported: nothing is imported here, and nothing raised. Each tracker gets a verdict once.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from findwall.agent.ending.stderr import say
from findwall.integrations.verdict_figures import numbers, words

if TYPE_CHECKING:
    from pathlib import Path

    from findwall.model.diagnosis import Diagnosis

MLFLOW_TEXT = 5000  # characters of a tag that every MLflow server takes
WRITER_MODULES = ("torch.utils.tensorboard.writer", "tensorboardX.writer")

# A job may have two callbacks, or a trainer that ends twice.
_told: set[tuple[str, str]] = set()


class Measured(Protocol):
    """What is asked of the loop that was measured."""

    @property
    def folder(self) -> Path | None: ...
    @property
    def speaks(self) -> bool: ...
    @property
    def diagnosis(self) -> Diagnosis | None: ...


class Tracker(Protocol):
    """One run of one tracker."""

    key: str  # the same for the same run, however it was found

    def log(self, figures: dict[str, float], texts: dict[str, str], step: int | None) -> None: ...


class Trackers:
    """The trackers in use: those seen when the training began, and those that came later.

    A trainer's own callbacks end before this one and close their runs, so a run is remembered from its begin.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Tracker] = {}

    def look(self, loggers: Iterable[Any] = ()) -> None:
        """See what the job uses by now; `loggers` are those that the trainer itself names."""
        for find in (_wandb, _mlflow, lambda: _mlflow_loggers(loggers), _tensorboard):
            with _failing_open():
                self._seen |= {tracker.key: tracker for tracker in find()}

    def tell(self, measured: Measured, loggers: Iterable[Any] = (), step: int | None = None) -> None:
        """Log the verdict, if there is one and this process is the one that speaks for its job."""
        with _failing_open():
            diagnosis = measured.diagnosis if measured.speaks else None
            if diagnosis is None:
                return
            self.look(loggers)
            for tracker in _one_writer(list(self._seen.values())):
                _tell(tracker, (str(measured.folder), tracker.key), diagnosis, step)


def _tell(tracker: Tracker, what: tuple[str, str], diagnosis: Diagnosis, step: int | None) -> None:
    if what not in _told:
        _told.add(what)
        with _failing_open(f"the verdict was not logged to {tracker.key.partition(':')[0]}"):
            tracker.log(numbers(diagnosis), words(diagnosis), step)


@contextmanager
def _failing_open(said: str = "") -> Iterator[None]:
    """A tracker that is down, or of another version, is no reason to end a training."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - fail open: libraries of others, and what they talk to
        if said:
            say(f"{said} ({type(error).__name__}: {error})")


class _Wandb:
    """In the run's summary: a log call would move the step that the job itself counts by."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.key = f"Weights & Biases:{run.id}"

    def log(self, figures: dict[str, float], texts: dict[str, str], step: int | None) -> None:
        self._run.summary.update({**figures, **texts})


def _wandb() -> list[Tracker]:
    run = getattr(sys.modules.get("wandb"), "run", None)
    return [] if run is None else [_Wandb(run)]


class _Mlflow:
    """By a client, which also reaches a run that has ended."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id
        self.key = f"MLflow:{run_id}"

    def log(self, figures: dict[str, float], texts: dict[str, str], step: int | None) -> None:
        entities: Any = sys.modules["mlflow.entities"]
        now = int(time.time() * 1000)
        self._client.log_batch(
            self._run_id,
            metrics=[entities.Metric(name, value, now, step or 0) for name, value in figures.items()],
            tags=[entities.RunTag(name, text[:MLFLOW_TEXT]) for name, text in texts.items()],
        )


def _mlflow() -> list[Tracker]:
    mlflow: Any = sys.modules.get("mlflow")
    active: Callable[[], Any] | None = getattr(mlflow, "active_run", None)
    run = None if active is None else active()
    return [] if run is None else [_Mlflow(mlflow.MlflowClient(), run.info.run_id)]


def _mlflow_loggers(loggers: Iterable[Any]) -> list[Tracker]:
    """Lightning's logger talks to a run that is not the active one."""
    if "mlflow" not in sys.modules:
        return []
    return [
        _Mlflow(logger.experiment, logger.run_id)
        for logger in loggers
        if getattr(logger, "run_id", None) and hasattr(logger.experiment, "log_batch")
    ]


class _Writer:
    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.folder = str(getattr(writer, "log_dir", None) or getattr(writer, "logdir", ""))
        self.key = f"TensorBoard:{self.folder}"

    def log(self, figures: dict[str, float], texts: dict[str, str], step: int | None) -> None:
        # A writer that its trainer has closed opens a further file beside the first: that is closed again.
        was_closed = getattr(self._writer, "all_writers", False) is None
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        for name, text in texts.items():
            self._writer.add_text(name, text, step)
        self._writer.close() if was_closed else self._writer.flush()


def _tensorboard() -> list[Tracker]:
    """Nobody keeps a list of the writers in use, but each of them refers to its class."""
    modules = [sys.modules.get(name) for name in WRITER_MODULES]
    classes = [kind for module in modules for kind in _family(getattr(module, "SummaryWriter", None))]
    referrers = gc.get_referrers(*classes) if classes else []
    return [_Writer(one) for one in referrers if type(one) in classes]


def _family(kind: Any) -> list[type]:
    return [kind, *(sub for one in kind.__subclasses__() for sub in _family(one))] if kind else []


def _one_writer(trackers: list[Tracker]) -> list[Tracker]:
    """Jobs have a writer for training and one for evaluation: one of them gets the verdict."""
    writers = sorted((one for one in trackers if isinstance(one, _Writer)), key=lambda one: one.folder)
    return [one for one in trackers if not isinstance(one, _Writer)] + list(writers[:1])
