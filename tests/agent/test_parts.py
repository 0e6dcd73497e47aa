"""The smaller parts: import hook, line sampler, verdict process, trace window's refusals, control blocks."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from findwall.agent.ending import analyst
from findwall.agent.importhook import when_imported
from findwall.agent.options import Options, disabled
from findwall.agent.stages import control as control_module
from findwall.agent.stages.control import Control
from findwall.agent.step_ends.step_gate import Gate, Gauge
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.timing.diary import Diary
from findwall.agent.timing.sampler import LineSampler, is_library
from findwall.agent.tracing.tracewindow import barred
from findwall.machine.torch_device import batch_size
from findwall.model.measurement import Measurement, Trace


def test_the_hook_hears_of_an_import_and_leaves_no_trace(tmp_path, monkeypatch):
    (tmp_path / "heard_of.py").write_text("x = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    heard: list[Any] = []
    when_imported("heard_of", heard.append, "test", "")
    assert heard == [] and "heard_of" not in sys.modules
    module = importlib.import_module("heard_of")
    assert heard == [module] and module.x == 1
    assert sys.meta_path == before
    assert "exec_module" not in vars(module.__spec__.loader)
    when_imported("heard_of", heard.append, "test", "")
    assert heard == [module, module]
    del sys.modules["heard_of"]


def test_an_import_that_fails_fails_as_it_would(tmp_path, monkeypatch):
    (tmp_path / "fails.py").write_text("raise OSError('no')")
    monkeypatch.syspath_prepend(str(tmp_path))
    heard: list[Any] = []
    when_imported("fails", heard.append, "test", "")
    with pytest.raises(OSError, match="no"):
        importlib.import_module("fails")
    when_imported("is_not_there", heard.append, "test", "")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("is_not_there")
    assert heard == []
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_AfterImport"]


def test_the_sampler_names_the_line_a_thread_stands_on():
    ready, leave = threading.Event(), threading.Event()

    def stand_here() -> None:
        ready.set()
        leave.wait(10)

    thread = threading.Thread(target=stand_here)
    thread.start()
    ready.wait(5)
    sampler = LineSampler(thread.ident or 0)
    for _ in range(5):
        frame = sys._current_frames()[thread.ident or 0]
        sampler.samples += 1
        sampler._seen[sampler._place(frame)] += 1
    leave.set()
    thread.join()
    (line,) = sampler.lines()
    assert line.place.endswith("test_parts.py:" + line.place.rpartition(":")[2])
    assert (line.function, line.share) == ("stand_here", 1.0)
    assert line.inside.startswith("threading.py:")


def test_the_sampler_asks_for_the_interpreter_lock_sooner_and_only_while_it_looks(monkeypatch):
    """Python that holds the lock would else be seen only where it lets go: at the next op's line."""
    patience = sys.getswitchinterval()
    sampler = LineSampler(threading.get_ident())
    seen = []
    monkeypatch.setattr(sampler, "_look", lambda: seen.append(sys.getswitchinterval()))
    sampler.start()
    sampler._thread.join()
    assert seen[0] < patience
    assert sys.getswitchinterval() == patience


# Where the sampler looks: in a library, so that the line which calls it is the one that it stands on.
LIBRARY = compile(
    "def look(value):\n    sampler._see(sys._getframe())\n    return value", "/x/site-packages/a.py", "exec"
)


def sort(numbers: list[int], look: Callable[[Any], Any]) -> list[int]:
    return look(sorted(numbers))


def add_up(numbers: list[int], look: Callable[[Any], Any]) -> int:
    total = 0
    for one in numbers:
        total += look(one)
    return total


def test_the_sampler_tells_one_long_call_from_a_loop():
    sampler = LineSampler(threading.get_ident())
    names: dict[str, Any] = {"sampler": sampler, "sys": sys}
    exec(LIBRARY, names)
    for step in range(4):
        if step == 1:
            sampler.start()  # where a step ends
            sampler.stop()
        sort([3, 1, 2], names["look"])
        add_up([3, 1, 2], names["look"])
    told = {line.function: (line.looped, line.once) for line in sampler.lines()}
    assert told["sort"] == (False, True) and told["add_up"] == (True, False)


def test_libraries_and_generated_code_are_not_the_persons_own():
    for file in ("/x/site-packages/torch/a.py", "<string>", "/tmp/torchinductor_me/ab/cab.py", os.__file__):
        assert is_library(file)
    assert not is_library("/home/me/train.py")


def test_the_packages_name_is_also_the_verb():
    import findwall
    from findwall.agent.measured_loop import measure

    assert isinstance(findwall.measure("loop", steps=3), measure)
    assert isinstance(findwall.measure("loop", steps=3), measure)


def test_the_verdicts_process_is_no_rank_and_sees_no_gpu(monkeypatch):
    names = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "CUDA_INJECTION64_PATH"}
    names |= {"SLURM_PROCID", "SLURM_STEP_ID", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}
    for name in names:
        monkeypatch.setenv(name, "1")
    environ = analyst.environment()
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not names & set(environ)


def test_the_verdict_waits_for_ranks_and_copies_the_document(tmp_path, monkeypatch):
    import msgspec

    traced = Trace(file="trace.json")
    ranks = [Measurement(final=True), Measurement(), *[Measurement(final=True, trace=traced)] * 2]
    for rank, measured in enumerate(ranks):
        (tmp_path / f"rank{rank}").mkdir()
        (tmp_path / f"rank{rank}" / "measurement.json").write_bytes(msgspec.json.encode(measured))
    (tmp_path / "rank2" / "summary.fwrank").touch()  # it comes last
    assert analyst.missing_ranks(tmp_path, range(5)) == [1, 3, 4]
    fake = tmp_path / "fake.py"
    fake.write_text("import sys, pathlib; pathlib.Path(sys.argv[3]).write_text('{\"a\": 1}')")
    monkeypatch.setenv(analyst.COMMAND_VARIABLE, f"{sys.executable} {fake}")
    monkeypatch.setattr(os, "nice", lambda by: by)
    monkeypatch.setattr(analyst, "RANKS_WAIT_S", 0.0)
    assert analyst.main([str(tmp_path), "2", str(tmp_path / "copy.json")]) == 0
    assert (tmp_path / "copy.json").read_text() == '{"a": 1}'


def test_the_verdict_draws_the_page_beside_its_document(tmp_path, monkeypatch):
    monkeypatch.delenv(analyst.COMMAND_VARIABLE, raising=False)
    command = analyst._read_command(tmp_path)
    assert command[command.index("--page") + 1] == str(tmp_path / "report.html")
    assert command[command.index("--json") + 1] == str(tmp_path / "diagnosis.json")


def test_telemetry_is_kept_sample_by_sample():
    from findwall.agent.timing.telemetry import _noted

    blank = {"memory_used": None, "reasons": None, "gpm": None, "temperature_c": None, "utilisation": 80}
    samples = [
        {**blank, "seconds": 0.0, "sm_clock_mhz": 1980, "power_w": 500.0},
        {
            **blank,
            "seconds": 0.5,
            "sm_clock_mhz": 1200,
            "power_w": None,
            "reasons": 0x4,
            "gpm": {"dram": 40.0},
        },
    ]
    noted = _noted(samples)
    assert noted.seconds == [0.0, 0.5]
    assert noted.columns == {
        "sm_clock_mhz": [1980.0, 1200.0],
        "power_w": [500.0, None],
        "utilisation": [80.0, 80.0],
        "held_down": [None, 1.0],
        "dram": [None, 40.0],
    }


def fake_torch(enabled: bool = False, kineto: bool = True) -> Any:
    profiler = types.SimpleNamespace(_is_profiler_enabled=False)
    return types.SimpleNamespace(
        profiler=types.SimpleNamespace(kineto_available=lambda: kineto),
        autograd=types.SimpleNamespace(_profiler_enabled=lambda: enabled, profiler=profiler),
    )


def test_a_trace_is_refused_where_another_tool_is_first():
    assert barred(fake_torch(), {}) == ""
    assert "Nsight Systems" in barred(fake_torch(), {"NSYS_PROFILING_SESSION_ID": "1"})
    assert "own profiler" in barred(fake_torch(enabled=True), {})
    assert "without a profiler" in barred(fake_torch(kineto=False), {})


class Tensor:
    def __init__(self, *shape: int, floating: bool = True) -> None:
        self.shape, self._floating = shape, floating

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return self.shape[0] * self.shape[1]

    def is_floating_point(self) -> bool:
        return self._floating


def test_a_batch_says_its_samples_or_tokens():
    assert batch_size([Tensor(32, 3, 8, 8), Tensor(32)]) == (32.0, "samples")
    assert batch_size({"input_ids": Tensor(4, 100, floating=False)}) == (400.0, "tokens")
    assert batch_size(("text", 3)) is None
    assert batch_size([Tensor()]) is None


@pytest.mark.parametrize(("value", "expected"), [("", False), ("0", False), ("1", True), ("yes", True)])
def test_the_switch(monkeypatch, value, expected):
    monkeypatch.setenv("FINDWALL_DISABLE", value)
    assert disabled() is expected


class Rig:
    """An engine without torch: enough for the control stage."""

    def __init__(self, steps: int | None = None, every: int = 1) -> None:
        self.record = Measurement()
        self.record.steps.host_ns = [20_000_000] * 30
        self.record.steps.device_ns = [None] * 30
        self.record.steps.hook_ns = [40_000] * 30
        self.options = Options(steps=steps)
        self.gauge = Gauge()
        self.clock = None
        self.gate = Gate()
        self.timer: Any = None
        self.prefetched = 0
        self.every = every
        self.step_number = 0
        self.timed = self.window = None
        self.done = False
        self.paused: list[bool] = []
        self.sampled = 0
        self.telemetry = types.SimpleNamespace(
            pause=self.paused.append, stop=lambda: None, sample_now=self._sample
        )
        self.compilations = types.SimpleNamespace(new=lambda: 0)
        self.kinds: list[Any] = []
        self.diary = Diary()

    def _sample(self) -> None:
        self.sampled += 1

    def let_pass(self, steps: int, gauge: Gauge | None = None) -> None:
        self.gate.shut(StepEnd.EXPLICIT, 0, steps, gauge)

    def take_passed(self) -> tuple[list[int], int]:
        passed, spent = self.gate.take()
        self.step_number += len(passed)
        return passed, spent

    def finished(self) -> None:
        self.done = True


@pytest.mark.parametrize("every", [1, 5, 40])
def test_control_blocks_find_what_the_hooks_cost(monkeypatch, every):
    """2 % of a measured step, of which there is one in so many."""
    rig = Rig(every=every)
    now = 0
    monkeypatch.setattr(control_module, "perf_counter_ns", lambda: now)
    monkeypatch.setattr("findwall.agent.timing.steptimer.perf_counter_ns", lambda: now)
    monkeypatch.setattr("findwall.agent.step_ends.step_gate.perf_counter_ns", lambda: now)
    control = Control(rig)  # type: ignore[arg-type]
    for step in range(20000):
        if rig.done:
            break
        now += 20_000_000 + (0 if rig.gate.left else 400_000) + (step % 7) * 1000
        if rig.gate.left:
            rig.gate.passed(StepEnd.EXPLICIT, 0)
        else:
            control.step(rig, now)  # type: ignore[arg-type]
    assert rig.done and not rig.gate.left
    share = rig.record.cost["shadow_share"]
    # The last step of a block without hooks is measured too, by a clock of ours which stands still here.
    expected = 0.02 / every * (1 - 1 / (control.length / (control.let_pass + 1)))
    assert share["low"] == pytest.approx(expected, rel=0.1) and share["high"] == pytest.approx(
        expected, rel=0.1
    )
    assert rig.record.cost["hook_share"] == pytest.approx(0.002)
    assert rig.record.cost["step_after_trace"] == pytest.approx(1, abs=0.011)
    assert rig.sampled or every == 1  # then there is no time for it


def test_the_run_folder_is_the_place_the_verdict_works_in(tmp_path, monkeypatch):
    """So that modules beside the job's script do not shadow any other."""
    made: dict[str, Any] = {}
    monkeypatch.setattr(
        analyst.subprocess, "Popen", lambda command, **rest: made.update(rest, command=command)
    )
    analyst.start(tmp_path, Options(json="out.json"), 1)
    assert made["cwd"] == tmp_path and made["start_new_session"]
    assert Path(made["command"][-1]).is_absolute()
