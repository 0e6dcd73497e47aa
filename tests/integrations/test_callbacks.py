"""The trainers' callbacks pass steps on; the trainers themselves are stand-ins."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import pytest

from findwall import integrations
from findwall.agent.options import Options
from findwall.loop import measure


class Recorder:
    speaks, folder, diagnosis = True, None, None

    def __init__(self, name: str, **options: Any) -> None:
        self.calls: list[Any] = []

    def __enter__(self) -> None:
        self.calls.append("begin")

    def step(self) -> None:
        self.calls.append("step")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.calls.append(kind)


def load(monkeypatch: pytest.MonkeyPatch, name: str, stubs: dict[str, dict[str, Any]]) -> Any:
    for module, members in stubs.items():
        stub = types.ModuleType(module)
        vars(stub).update(members)
        monkeypatch.setitem(sys.modules, module, stub)
    monkeypatch.delitem(sys.modules, name, raising=False)
    loaded = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(loaded, "measure", Recorder)
    return loaded


def test_remedies_are_in_the_callers_own_syntax():
    flags = "--wait 2 --trace-steps 5 --no-trace"
    assert Options().spelled(flags) == f"findwall run {flags} …"
    assert (
        Options(caller="FindwallCallback").spelled(flags)
        == "FindwallCallback(wait=2, trace_steps=5, trace=False)"
    )
    assert measure()._options.spelled("--wait 2") == "findwall.measure(wait=2)"


def test_hugging_face(monkeypatch):
    name = "findwall.integrations.huggingface"
    module = load(monkeypatch, name, {"transformers": {"TrainerCallback": object}})
    callback = module.FindwallCallback(steps=5)
    callback.on_train_begin(None, None, None)
    callback.on_step_end(None, None, None, model=1)
    callback.on_train_end(None, None, None)
    assert callback._measure.calls == ["begin", "step", None]


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_steps_when_the_optimizer_did(monkeypatch, package):
    stubs: dict[str, dict[str, Any]] = {f"{package}.callbacks": {"Callback": object}, package: {}}
    if package == "lightning.pytorch":
        stubs["lightning"] = {}
    else:
        monkeypatch.setitem(sys.modules, "lightning", None)
    module = load(monkeypatch, "findwall.integrations.lightning", stubs)
    callback = module.FindwallCallback()
    trainer = types.SimpleNamespace(global_step=0)
    callback.on_train_start(trainer, None)
    for batch in range(4):
        trainer.global_step = batch // 2
        callback.on_train_batch_end(trainer, None, None, None, batch)
    callback.on_exception(trainer, None, ValueError("x"))
    assert callback._measure.calls == ["begin", "step", ValueError]


class Told:
    """Stands in for the trackers: what was told, and when."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def look(self) -> None:
        self.calls.append("look")

    def tell(self, measured: Any, loggers: Any = (), step: Any = None) -> None:
        self.calls.append((measured.calls[-1], list(loggers), step))


def test_hugging_face_tells_the_trackers_after_the_end_or_when_it_is_stopped(monkeypatch):
    name = "findwall.integrations.huggingface"
    module = load(monkeypatch, name, {"transformers": {"TrainerCallback": object}})
    monkeypatch.setattr(module, "Trackers", Told)
    state = types.SimpleNamespace(global_step=12)
    callback = module.FindwallCallback()
    callback.on_train_begin(None, state, None)
    callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert callback._trackers.calls == ["look", (None, [], 12)]

    class Stopping(Recorder):
        def step(self) -> None:
            super().step()
            raise SystemExit(0)

    monkeypatch.setattr(module, "measure", Stopping)
    callback = module.FindwallCallback(stop=True)
    with pytest.raises(SystemExit):
        callback.on_step_end(None, state, None)
    assert callback._trackers.calls == [("step", [], 12)]


def test_lightning_tells_the_trackers_with_the_loggers_of_the_trainer(monkeypatch):
    module = load(monkeypatch, "findwall.integrations.lightning", LIGHTNING)
    monkeypatch.setattr(module, "Trackers", Told)
    trainer = types.SimpleNamespace(global_step=0, loggers=["mlflow"])
    for end in ("on_train_end", "on_exception"):
        callback = module.FindwallCallback()
        callback.on_train_start(trainer, None)
        trainer.global_step = 7
        getattr(callback, end)(trainer, None, *([OSError()] if end == "on_exception" else []))
        ended = OSError if end == "on_exception" else None
        assert callback._trackers.calls == [(ended, ["mlflow"], 7)]


PARTS = ("findwall.integrations.lightning", "findwall.integrations.huggingface")
LIGHTNING = {
    "lightning": {},
    "lightning.pytorch": {},
    "lightning.pytorch.callbacks": {"Callback": type("Callback", (), {})},
}
TRANSFORMERS = {"transformers": {"TrainerCallback": type("TrainerCallback", (), {})}}


@pytest.fixture
def trainers(monkeypatch):
    """Makes trainers that are there; those that a machine really has are not."""
    for name in (*PARTS, "lightning", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in PARTS:
        monkeypatch.delitem(sys.modules, name)

    def make(stubs):
        for module, members in stubs.items():
            stub = types.ModuleType(module)
            vars(stub).update(members)
            monkeypatch.setitem(sys.modules, module, stub)

    yield make
    for name in PARTS:
        sys.modules.pop(name, None)


def test_the_callback_is_of_the_trainer_that_is_there(trainers):
    trainers(TRANSFORMERS)
    from findwall.integrations import FindwallCallback

    assert FindwallCallback.__module__.endswith("huggingface")
    assert issubclass(FindwallCallback, TRANSFORMERS["transformers"]["TrainerCallback"])


def test_one_class_serves_both_trainers(trainers, monkeypatch):
    trainers(TRANSFORMERS | LIGHTNING)
    callback_class = integrations.FindwallCallback
    for name in PARTS:
        monkeypatch.setattr(sys.modules[name], "measure", Recorder)
    for base in (TRANSFORMERS["transformers"]["TrainerCallback"], *callback_class.__bases__):
        assert issubclass(callback_class, base)
    hugging, lightning = callback_class(steps=5), callback_class()
    hugging.on_train_begin(None, None, None)
    hugging.on_step_end(None, None, None, model=1)
    hugging.on_train_end(None, None, None, model=1)
    trainer = types.SimpleNamespace(global_step=0)
    lightning.on_train_start(trainer, None)
    trainer.global_step = 1
    lightning.on_train_batch_end(trainer, None, None, None, 0)
    lightning.on_train_end(trainer, None)
    assert hugging._measure.calls == lightning._measure.calls == ["begin", "step", None]


def test_without_a_trainer_it_says_what_else_there_is(trainers):
    with pytest.raises(ImportError, match=r"findwall\.measure\(\)"):
        from findwall.integrations import FindwallCallback  # noqa: F401
    with pytest.raises(AttributeError):
        integrations.Nothing  # noqa: B018
