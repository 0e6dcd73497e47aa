"""The verdict reaches the tracker that the job uses, once, and never troubles the job.

The trackers are stand-ins put among the modules; the real ones are tried where they are installed.
"""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from findwall.integrations import trackers
from findwall.integrations.trackers import Trackers
from findwall.integrations.verdict_figures import numbers, words
from findwall.model.catalogue import WALLS
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, from_json

DOCUMENTS = sorted((Path(__file__).parents[1] / "fixtures" / "documents").glob("*.json"))
LIBRARIES = ("wandb", "mlflow", "mlflow.entities", *trackers.WRITER_MODULES)


@cache
def document(name: str = "full") -> Diagnosis:
    return from_json(next(path for path in DOCUMENTS if path.stem == name).read_bytes())


@dataclass
class Measured:
    diagnosis: Diagnosis | None = field(default_factory=document)
    folder: Path | None = Path("run")
    speaks: bool = True


@pytest.fixture(autouse=True)
def nothing_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job that has imported no tracker, whatever this process has."""
    monkeypatch.setattr(trackers, "_told", set())
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield


class Jobs:
    """What a job may have imported, and what reached it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.summary: dict[str, Any] = {}
        self.batches: list[tuple[str, dict[str, float], dict[str, str]]] = []
        self.active: Any = types.SimpleNamespace(info=types.SimpleNamespace(run_id="a1"))

    def module(self, name: str, **members: Any) -> Any:
        stub = types.ModuleType(name)
        vars(stub).update(members)
        self._patch.setitem(sys.modules, name, stub)
        return stub

    def wandb(self, **members: Any) -> Any:
        run = types.SimpleNamespace(id="w1", summary=self.summary)
        return self.module("wandb", **{"run": run, **members})

    def mlflow(self) -> Any:
        entities = self.module(
            "mlflow.entities", Metric=lambda key, value, now, step: (key, value), RunTag=lambda *pair: pair
        )
        return self.module(
            "mlflow", entities=entities, active_run=lambda: self.active, MlflowClient=lambda: self
        )

    def log_batch(self, run_id: str, metrics: Any, tags: Any) -> None:
        self.batches.append((run_id, dict(metrics), dict(tags)))

    def writers(self, module: str = trackers.WRITER_MODULES[0]) -> Any:
        class SummaryWriter:
            def __init__(self, log_dir: str) -> None:
                self.log_dir, self.all_writers = log_dir, {"": self}
                self.scalars: list[tuple[str, float, int | None]] = []
                self.texts: dict[str, str] = {}
                self.flushed = 0

            def add_scalar(self, name: str, value: float, step: int | None) -> None:
                self.all_writers = {"": self}
                self.scalars.append((name, value, step))

            def add_text(self, name: str, text: str, step: int | None) -> None:
                self.texts[name] = text

            def flush(self) -> None:
                self.flushed += 1

            def close(self) -> None:
                self.all_writers = None  # type: ignore[assignment]

        return self.module(module, SummaryWriter=SummaryWriter)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(monkeypatch)


def tell(measured: Any = None, **given: Any) -> None:
    Trackers().tell(measured or Measured(), **given)


# -- what is logged --------------------------------------------------------------------------------------


def predicted() -> Diagnosis:
    """The document with a figure for its first fix."""
    first, *rest = document().prescriptions
    first = replace(first, step_ms=Range(9.0, 10.0, 12.0), speedup=Range(3.4, 4.1, 4.6))
    return replace(document(), prescriptions=[first, *rest])


def test_the_figures_are_those_of_the_document() -> None:
    diagnosis = predicted()
    found = numbers(diagnosis)
    assert found["findwall/step_ms"] == diagnosis.step.ms
    assert found["findwall/mfu"] == diagnosis.mfu.mfu
    assert (found["findwall/best_fix/step_ms"], found["findwall/best_fix/speedup"]) == (10.0, 4.1)
    shares = [found[f"findwall/{wall}/share"] for wall in (*WALLS, "unknown")]
    assert sum(shares) == pytest.approx(1.0)
    best = max(row.recoverable_ms or 0 for row in diagnosis.budget if row.wall == diagnosis.wall.wall)
    assert found[f"findwall/{diagnosis.wall.wall}/recoverable_ms"] == best
    told = words(diagnosis)
    assert (told["findwall/verdict"], told["findwall/cause"]) == (diagnosis.wall.wall, diagnosis.wall.cause)
    assert told["findwall/sentence"] == diagnosis.wall.sentence
    assert told["findwall/best_fix"] == " + ".join(diagnosis.prescriptions[0].fixes)


@pytest.mark.parametrize("name", [path.stem for path in DOCUMENTS])
def test_what_is_unknown_is_left_out(name: str) -> None:
    found = numbers(document(name))
    assert all(isinstance(value, float | int) for value in found.values())
    assert ("findwall/mfu" in found) == (document(name).mfu.mfu is not None)
    assert ("findwall/step_ms" in found) == (document(name).step.ms is not None)
    bounded = [item.step_ms.mid is not None for item in document(name).prescriptions[:1]]
    assert ("findwall/best_fix/step_ms" in found) == any(bounded), "a bound is no prediction"
    assert words(document(name))["findwall/verdict"] == (document(name).wall.wall or "none")


# -- where it goes ---------------------------------------------------------------------------------------


def test_wandb_gets_it_in_the_runs_summary(jobs: Jobs) -> None:
    jobs.wandb()
    tell()
    assert jobs.summary == numbers(document()) | words(document())


def test_mlflow_gets_it_in_one_request(jobs: Jobs) -> None:
    jobs.mlflow()
    tell(step=7)
    assert jobs.batches == [("a1", numbers(document()), words(document()))]


def test_a_run_that_the_trainers_own_callback_has_ended_still_gets_it(jobs: Jobs) -> None:
    jobs.mlflow()
    writer = jobs.writers().SummaryWriter("runs/a")
    seen = Trackers()
    seen.look()
    jobs.active = None
    writer.close()
    seen.tell(Measured(), step=40)
    assert [run for run, *_ in jobs.batches] == ["a1"]
    assert writer.texts == words(document())
    assert writer.all_writers is None, "what was closed is closed again"


def test_lightnings_mlflow_run_is_not_the_active_one(jobs: Jobs) -> None:
    jobs.mlflow()
    jobs.active = None
    logger = types.SimpleNamespace(run_id="l1", experiment=jobs)
    other = types.SimpleNamespace(name="csv")
    tell(loggers=[other, logger, logger])
    assert [run for run, *_ in jobs.batches] == ["l1"]


@pytest.mark.parametrize("module", trackers.WRITER_MODULES)
def test_a_writer_in_use_gets_it_at_the_trainers_step(jobs: Jobs, module: str) -> None:
    writer = jobs.writers(module).SummaryWriter("runs/a")
    tell(step=120)
    assert writer.scalars == [(name, value, 120) for name, value in numbers(document()).items()]
    assert writer.texts == words(document())
    assert writer.flushed == 1
    assert writer.all_writers is not None, "it is the job's to close"


def test_of_two_writers_one_gets_it(jobs: Jobs) -> None:
    kind = jobs.writers().SummaryWriter
    evaluation, training = type("Own", (kind,), {})("runs/val"), kind("runs/train")
    tell()
    assert training.texts
    assert not evaluation.texts


# -- when it does not ------------------------------------------------------------------------------------


def test_a_library_that_is_imported_but_not_used_gets_nothing(jobs: Jobs) -> None:
    jobs.wandb(run=None)
    jobs.mlflow()
    jobs.active = None
    jobs.writers()
    jobs.module("tensorboardX.writer")  # a folder of that name, not the library
    tell()
    assert (jobs.summary, jobs.batches) == ({}, [])


def test_nothing_is_imported() -> None:
    before = set(sys.modules)
    tell()
    assert not {name.partition(".")[0] for name in set(sys.modules) - before} & {"wandb", "mlflow"}
    code = "import sys; import findwall.integrations.trackers; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "wandb", "mlflow", "tensorboard", "tensorboardX"} & set(loaded.stdout.split())


@pytest.mark.parametrize("measured", [Measured(diagnosis=None), Measured(speaks=False), object()])
def test_no_verdict_or_another_rank_logs_nothing(jobs: Jobs, measured: Any) -> None:
    jobs.wandb()
    tell(measured)
    assert jobs.summary == {}


def test_a_verdict_is_logged_once(jobs: Jobs) -> None:
    jobs.mlflow()
    first = Trackers()
    first.tell(Measured())
    first.tell(Measured())
    Trackers().tell(Measured())  # a second callback in the same job
    assert len(jobs.batches) == 1
    first.tell(Measured(folder=Path("another training")))
    assert len(jobs.batches) == 2


def test_a_tracker_that_fails_troubles_neither_the_job_nor_the_others(
    jobs: Jobs, capfd: pytest.CaptureFixture[str]
) -> None:
    class Down(dict[str, Any]):
        def update(self, *_: Any) -> None:
            raise ConnectionError("no route")

    jobs.wandb(run=types.SimpleNamespace(id="w", summary=Down()))
    jobs.module("tensorboardX.writer", SummaryWriter="of another version")
    jobs.mlflow()
    tell()
    assert len(jobs.batches) == 1
    assert "not logged to Weights & Biases (ConnectionError: no route)" in capfd.readouterr().err


# -- the real ones ---------------------------------------------------------------------------------------

REAL = """
import sys
from pathlib import Path
from findwall.integrations.trackers import Trackers
from findwall.model.diagnosis import from_json

class Measured:
    folder, speaks, diagnosis = Path("run"), True, from_json(Path(sys.argv[1]).read_bytes())
"""
TENSORBOARD = """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs")
writer.add_scalar("loss", 1.0, 1)
seen = Trackers()
seen.look()
writer.close()
seen.tell(Measured, step=9)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("runs")
events.Reload()
assert "loss" in events.Tags()["scalars"]
[one] = events.Scalars("findwall/step_ms")
assert one.step == 9 and abs(one.value / Measured.diagnosis.step.ms - 1) < 1e-6
assert "findwall/verdict/text_summary" in events.Tags()["tensors"]
"""
MLFLOW = """
import os
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # the store that needs no database
import mlflow
mlflow.set_tracking_uri("file:runs")
run = mlflow.start_run()
seen = Trackers()
seen.look()
mlflow.end_run()
seen.tell(Measured, step=9)
data = mlflow.get_run(run.info.run_id).data
assert data.metrics["findwall/step_ms"] == Measured.diagnosis.step.ms
assert data.tags["findwall/verdict"] == Measured.diagnosis.wall.wall
"""
WANDB = """
import wandb
wandb.init(mode="offline", dir=".")
Trackers().tell(Measured)
assert wandb.run.summary["findwall/step_ms"] == Measured.diagnosis.step.ms
assert wandb.run.summary["findwall/verdict"] == Measured.diagnosis.wall.wall
wandb.finish()
"""


@pytest.mark.parametrize(
    ("library", "code"), [("tensorboard", TENSORBOARD), ("mlflow", MLFLOW), ("wandb", WANDB)]
)
def test_the_real_tracker_keeps_it(library: str, code: str, tmp_path: Path) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    full = next(path for path in DOCUMENTS if path.stem == "full")
    subprocess.run([sys.executable, "-c", REAL + code, full], cwd=tmp_path, check=True)
