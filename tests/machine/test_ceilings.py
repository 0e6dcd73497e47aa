"""Measured ceilings: what is made of the times, how long it may take, and what is kept."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from findwall.cli.ceilings import command
from findwall.errors import InputError
from findwall.machine.ceilings import (
    CeilingsReport,
    Rate,
    cached_ceilings,
    load,
    measure_ceilings,
    memory,
    numpy_cores,
    store,
)
from findwall.machine.ceilings import gemm as gemm_module
from findwall.machine.ceilings.cache import cached_report, folder, path_of
from findwall.machine.ceilings.clocks_used import Allowance, DeviceClock, HostClock
from findwall.machine.ceilings.measured_report import rate_of
from findwall.machine.ceilings.suite import Suite, combine
from findwall.machine.hardware import load_ceilings
from findwall.model.machine import Ceilings, CpuUse, Finding

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others on the machine that runs the tests are no part of them."""
    beside(monkeypatch, 0.0)


def beside(monkeypatch: pytest.MonkeyPatch, *busy: float) -> list[float]:
    """So many of two cores are kept busy by others, one measurement after the other. Gives those to come."""
    left = list(busy)
    now = CpuUse(cores=2, others_busy=busy[0], own_busy=1.0, in_line_share=0.0, seconds=1.0)

    def between(_first: object, _last: object) -> CpuUse:
        return msgspec.structs.replace(now, others_busy=left.pop(0) if len(left) > 1 else left[0])

    monkeypatch.setattr(load, "between", between)
    monkeypatch.setattr(load, "watch", lambda: now)
    return left


def report(device: str = "NVIDIA H200", created: str = "2026-01-01", **changes: Any) -> CeilingsReport:
    ceilings = Ceilings(device=device, source="measured", flops={"bf16": 7.6e14}, bandwidth=4.2e12)
    return CeilingsReport(ceilings=ceilings, driver="580.1", torch="2.11.0", created=created, **changes)


# Times to rates.


def test_burst_is_the_median_and_keeps_its_samples() -> None:
    rate = rate_of("copy", "bytes/s", 100.0, [1.0, 2.0, 4.0])
    assert rate.burst == 50
    assert rate.samples == (25, 50, 100)
    assert rate.spread == pytest.approx(1.5)


def test_the_verdict_uses_sustained_where_there_is_one() -> None:
    assert Rate("bf16", "FLOP/s", burst=8.0).figure == 8.0
    assert Rate("bf16", "FLOP/s", burst=8.0, sustained=7.0).figure == 7.0
    assert Rate("bf16", "FLOP/s").figure is None


def test_ceilings_of_a_gpu_are_sustained_and_the_table_fills_what_was_not_measured() -> None:
    rates = [Rate("bf16", "FLOP/s", burst=7.9e14, sustained=7.2e14), Rate("copy", "bytes/s", burst=4.3e12)]
    ceilings, notes = combine("NVIDIA H200", rates, "measured today", on_gpu=True)
    assert ceilings.flops["bf16"] == 7.2e14
    assert ceilings.bandwidth == 4.3e12
    assert ceilings.source == "measured"
    assert ceilings.spec_flops["bf16"] == pytest.approx(9.894e14)
    assert "fp64" in ceilings.flops
    assert "fp64" in ceilings.origin.partition(";")[2]
    assert not notes


def test_a_figure_above_the_datasheet_is_refused() -> None:
    rates = [Rate("bf16", "FLOP/s", sustained=2e15), Rate("copy", "bytes/s", sustained=9e12)]
    ceilings, notes = combine("NVIDIA H200", rates, "measured", on_gpu=True)
    assert ceilings.flops["bf16"] < 9.9e14
    assert (ceilings.bandwidth or 0) < 4.8e12
    assert len(notes) == 2


def test_an_unknown_gpu_is_known_by_measurement_alone() -> None:
    rates = [Rate("fp16", "FLOP/s", sustained=1e14), Rate("copy", "bytes/s", sustained=1e12)]
    ceilings, _ = combine("Future 1", rates, "measured", on_gpu=True)
    assert ceilings.known
    assert ceilings.flops == {"fp16": 1e14}
    assert ceilings.spec_bandwidth is None


def test_neighbours_of_a_cpu_can_only_take_away_so_the_better_figure_counts() -> None:
    rates = [
        Rate("fp32", "FLOP/s", burst=9.0, sustained=5.0),
        Rate("triad", "bytes/s", burst=1.0, sustained=2.0),
    ]
    ceilings, _ = combine("Some CPU, 2 cores", rates, "measured", on_gpu=False)
    assert ceilings.flops == {"fp32": 9.0}
    assert ceilings.bandwidth == 2.0


# Clocks and allowances.


class FakeEvents:
    """A device on which every piece of work takes a stated time."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        outer = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = outer.now_ms

            def elapsed_time(self, other: Any) -> float:
                return float(other.at - self.at)

        self.cuda = SimpleNamespace(Event=Event, synchronize=lambda device: None)

    def work(self, ms: float) -> Any:
        def run() -> None:
            self.now_ms += ms

        return run


def test_the_device_clock_counts_the_work_and_not_what_comes_before_it() -> None:
    fake = FakeEvents()
    clock = DeviceClock(fake, None)
    assert clock.each(fake.work(2.0), 3, before=fake.work(50.0)) == pytest.approx([0.002] * 3)


def test_a_sustained_run_keeps_the_device_loaded_as_long_as_asked() -> None:
    fake = FakeEvents()
    assert DeviceClock(fake, None).run(fake.work(1.5), 2.0) == pytest.approx(0.0015)
    assert fake.now_ms == pytest.approx(2000, rel=0.01)


def test_the_host_clock_runs_at_least_once() -> None:
    done: list[int] = []
    assert HostClock().run(lambda: done.append(1), 0.0) > 0
    assert done == [1]


def test_sustained_runs_last_two_seconds_within_thirty() -> None:
    assert Allowance(30).sustained_s == 2.0
    assert Allowance(5).sustained_s < 0.4


def test_buffers_dwarf_the_cache_and_fit_the_memory() -> None:
    h200 = memory.buffer_bytes(60 * MIB, 140 * 1024 * MIB, on_gpu=True)
    assert h200 >= 60 * 60 * MIB
    assert memory.buffer_bytes(60 * MIB, 1024 * MIB, on_gpu=True) <= 128 * MIB


# The cache.


def test_what_was_stored_is_found_again_without_torch(own_cache: Path) -> None:
    path = store(report())
    assert path is not None
    assert path.is_relative_to(own_cache / "findwall" / "ceilings")
    code = (
        "import sys; from findwall.machine.ceilings import cached_ceilings;"
        "found = cached_ceilings('NVIDIA H200', '580.1', '2.11.0');"
        "assert found and found.flops['bf16'] == 7.6e14 and found.spec_bandwidth == 4.8e12;"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("key", [("NVIDIA H100 80GB HBM3", None, None), ("NVIDIA H200", "1", None),
                                 ("NVIDIA H200", None, "2.10.0"), ("NVIDIA H20", None, None)])  # fmt: skip
def test_another_device_driver_or_torch_is_not_it(key: tuple[str, str | None, str | None]) -> None:
    store(report())
    assert cached_ceilings(*key) is None


def test_the_newest_of_several_counts() -> None:
    store(report(created="2026-01-01"))
    store(msgspec.structs.replace(report(created="2026-03-01"), driver="590.2"))
    found = cached_report("NVIDIA H200")
    assert found is not None
    assert found.driver == "590.2"
    assert cached_ceilings("NVIDIA H200", driver="580.1") is not None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"ceilings": {}}',
                                     '{"ceilings": {"device": "NVIDIA H200", "flops": {"bf16": -1}}}',
                                     '{"ceilings": {"flops": {"bf16": 9e99}}}'])  # fmt: skip
def test_a_damaged_cache_is_an_empty_one(content: str) -> None:
    path = path_of(report())
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert cached_ceilings("NVIDIA H200") is None


def test_an_unwritable_cache_is_no_error(own_cache: Path) -> None:
    own_cache.write_text("a file where the folder should be")
    assert store(report()) is None
    assert cached_ceilings("NVIDIA H200") is None


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert folder() == Path.home() / ".cache/findwall/ceilings"


# Measuring, on the cores.


def test_the_cores_are_measured() -> None:
    pytest.importorskip("torch")
    found = measure_ceilings("cpu", budget_s=1.0, shapes=[(64, 96, 32)])
    ceilings = found.ceilings
    assert ceilings.known
    assert ceilings.source == "measured"
    assert ceilings.device.endswith("cores")
    assert 1e6 < ceilings.flops["fp32"] < 1e14
    assert 1e6 < (ceilings.bandwidth or 0) < 1e13
    assert 1e-8 < (ceilings.launch_s or 0) < 1e-1
    late = any("64 x 96 x 32" in note for note in found.notes)  # on a busy machine: named, then
    assert late or [rate.what for rate in found.shapes] == ["64 x 96 x 32"]


class MadeUpCores:
    """Cores of stated rates, whose time passes while they work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bandwidth: float, **flops: float) -> None:
        self.seconds = 0.0
        self.flops = flops
        self.longest = 0.0
        small = memory.device_memory

        def matmul(torch: Any, device: Any, kind: str, shape: tuple[int, int, int]) -> Any:
            return self.work(2.0 * shape[0] * shape[1] * shape[2] / flops[kind])

        def device_memory(torch: Any, device: Any, size: int) -> Any:
            made = small(torch, device, MIB)
            return {
                name: (self.work(3 * size / bandwidth), moved, how) for name, (_, moved, how) in made.items()
            }

        for module in (gemm_module, memory):
            monkeypatch.setattr(module, "matmul", matmul)
        monkeypatch.setattr(memory, "device_memory", device_memory)
        monkeypatch.setattr(Suite, "_launches", lambda self: [])
        monkeypatch.setattr(Suite, "_collect", lambda self: None)
        monkeypatch.setattr(memory, "CORE_CURVE_SIDE", 64)

    def now(self) -> float:
        self.seconds += 1e-3  # to look at the clock takes a moment too
        return self.seconds

    def work(self, seconds: float) -> Any:
        self.longest = max(self.longest, seconds)

        def run() -> None:
            self.seconds += seconds

        return run


@settings(max_examples=30, deadline=None)
@given(
    bf16=st.floats(6, 13),
    fp16=st.floats(6, 13),
    fp32=st.floats(8, 13),
    bandwidth=st.floats(9, 12),
    budget_s=st.floats(1.0, 60.0),
)
def test_cores_of_any_speed_are_measured_within_the_time_given(
    bf16: float, fp16: float, fp32: float, bandwidth: float, budget_s: float
) -> None:
    torch = pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as monkeypatch:
        cores = MadeUpCores(monkeypatch, 10**bandwidth, bf16=10**bf16, fp16=10**fp16, fp32=10**fp32)
        suite = Suite(torch, torch.device("cpu"), Allowance(budget_s, cores.now))
        found = suite.measure(((2048, 2048, 2048), (64, 64, 64)))
    assert cores.seconds <= budget_s + 4 * cores.longest + 1.0  # of two formats that cores may lack
    rates = {rate.name: rate.burst or 0.0 for rate in found.matmul}
    assert rates.keys() == {"bf16", "fp16", "fp32"}
    for kind, power in (("bf16", bf16), ("fp16", fp16), ("fp32", fp32)):
        assert 0 < rates[kind] <= 1.001 * 10**power


def test_a_type_that_the_cores_emulate_does_not_eat_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    cores = MadeUpCores(monkeypatch, 1e10, bf16=7e7, fp16=7e7, fp32=2e10)
    found = Suite(torch, torch.device("cpu"), Allowance(6.0, cores.now)).measure(())
    assert cores.seconds < 8
    assert [(rate.name, rate.what) for rate in found.matmul] == [
        ("bf16", "128 x 128 x 128"),
        ("fp16", "128 x 128 x 128"),
        ("fp32", "512 x 512 x 512"),
    ]


def test_a_shape_that_would_take_too_long_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    cores = MadeUpCores(monkeypatch, 1e10, bf16=7e7, fp16=7e7, fp32=2e10)
    suite = Suite(torch, torch.device("cpu"), Allowance(6.0, cores.now))
    found = suite.measure(((4096, 11008, 4096), (512, 512, 512)))
    assert [rate.what for rate in found.shapes] == ["512 x 512 x 512"]
    assert any("4096 x 11008 x 4096" in note and "--budget" in note for note in found.notes)


def test_slow_work_is_timed_less_often_and_once_at_least() -> None:
    now = [0.0]

    def work() -> None:
        now[0] += 1.0

    clock = HostClock(2.5, lambda: now[0])
    assert (clock.each(work, 10), now[0]) == ([1.0] * 3, 3.0)
    assert clock.each(work, 10, warm=1) == [1.0] * 2
    assert HostClock(0.5, lambda: now[0]).each(work, 10, warm=3) == [1.0]
    assert len(HostClock().each(work, 10, warm=3)) == 10


def test_without_torch_numpy_measures_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(numpy_cores, "COPIED_BYTES", MIB)
    found = measure_ceilings(budget_s=0.5, shapes=[(8, 8, 8)])
    assert found.ceilings.known
    assert set(found.ceilings.flops) == {"fp32"}
    assert found.torch == ""
    with pytest.raises(InputError, match="torch"):
        measure_ceilings("cuda:0", budget_s=1.0)


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "meta", 77])
def test_a_device_that_is_not_there_is_named(device: str | int) -> None:
    pytest.importorskip("torch")
    with pytest.raises(InputError):
        measure_ceilings(device, budget_s=1.0)


def test_shapes_that_cannot_be_run_are_refused() -> None:
    for shape in ((0, 1, 1), (1, -2, 3), (10**6, 10**6, 10**6)):
        with pytest.raises(InputError):
            gemm_module.checked_shapes((shape,), 10**9)


# The GPU's path, walked with a stand-in: a torch whose "cuda" is the host, for what needs no real device.


class StandInTorch:
    """torch, but its GPU is the host: everything that takes a device drops it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.version = SimpleNamespace(hip=None, cuda="13.0")

        class Event:
            def __init__(self, enable_timing: bool) -> None: ...

            def record(self) -> None: ...

            def elapsed_time(self, other: Any) -> float:
                return 50.0  # so that a sustained run is over after a few

        class Graph:
            def replay(self) -> None: ...

        stream = SimpleNamespace(wait_stream=lambda other: None)
        self.cuda = SimpleNamespace(
            Event=Event,
            CUDAGraph=Graph,
            Stream=lambda device: stream,
            current_stream=lambda device: stream,
            stream=lambda side: contextlib.nullcontext(),
            graph=lambda graph: contextlib.nullcontext(),
            synchronize=lambda device=None: None,
            set_device=lambda device: None,
            empty_cache=lambda: None,
            device_count=lambda: 1,
            mem_get_info=lambda device: (64 * MIB, 64 * MIB),
            get_device_name=lambda device: "NVIDIA H200",
            get_device_capability=lambda device: (9, 0),
            get_device_properties=lambda device: SimpleNamespace(multi_processor_count=132),
        )

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._torch, name)
        if name not in ("randn", "empty", "ones"):
            return found
        return lambda *sizes, device=None, **rest: found(*sizes, **rest)

    def _scaled_mm(self, a: Any, b: Any, **rest: Any) -> Any:
        assert rest["use_fast_accum"]
        assert rest["scale_a"].shape == ()
        return a


def test_a_gpu_session_fills_every_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(gemm_module, "SIDES", (64,))
    monkeypatch.setattr(gemm_module, "GPU_PROBES", (64,))
    monkeypatch.setattr(memory, "CURVE_SIDE", 64)
    monkeypatch.setattr(
        memory, "host_copies", lambda torch, device: [Rate("h2d pinned", "bytes/s", burst=5e10)]
    )
    monkeypatch.setattr(Suite, "_flush", lambda self: lambda: None)
    monkeypatch.setattr(Suite, "_rest", lambda self: None)
    suite = Suite(StandInTorch(torch), SimpleNamespace(type="cuda", index=0), Allowance(2.0, lambda: 0.0))
    with torch.no_grad():
        found = suite.measure(((16, 32, 8),))
    assert [rate.name for rate in found.matmul] == ["bf16", "fp16", "fp8", "tf32", "fp32"]
    assert [rate.name for rate in found.memory] == ["read", "write", "copy"]
    assert [rate.name for rate in found.launches] == ["eager launch", "graph launch"]
    assert all(rate.burst for rate in (*found.matmul, *found.memory))
    assert found.ceilings.sm_count == 132
    assert found.ceilings.h2d_pinned == 5e10
    intensities = [point.intensity for point in found.curve]
    assert intensities == sorted(intensities)
    assert found.shapes[0].name == "bf16"
    assert found.ceilings.link_bandwidth is None


def test_old_cards_are_not_asked_for_what_they_lack() -> None:
    cuda = SimpleNamespace(get_device_capability=lambda device: (7, 0))
    torch = SimpleNamespace(version=SimpleNamespace(hip=None), cuda=cuda)
    assert gemm_module.math_types(torch, SimpleNamespace(type="cuda"))[0] == ["fp32", "fp16"]
    torch.cuda = SimpleNamespace(get_device_capability=lambda device: (8, 0))
    assert "fp8" not in gemm_module.math_types(torch, SimpleNamespace(type="cuda"))[0]


def test_tf32_is_as_it_was_afterwards() -> None:
    for flags in (SimpleNamespace(fp32_precision="none"), SimpleNamespace(allow_tf32=False)):
        torch = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(matmul=flags)))
        before = dict(vars(flags))
        with gemm_module.fp32_precision(torch, True):
            assert vars(flags) in ({"fp32_precision": "tf32"}, {"allow_tf32": True})
        with pytest.raises(KeyError), gemm_module.fp32_precision(torch, True):
            raise KeyError
        assert vars(flags) == before


# The command.


def test_the_command_prints_what_is_kept_and_writes_what_read_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from findwall.machine.ceilings.numpy_cores import core_name

    monkeypatch.setitem(sys.modules, "torch", None)
    kept = msgspec.structs.replace(
        report(device=core_name(), others_busy=0.0),
        driver="",
        torch="",
        matmul=(Rate("bf16", "FLOP/s", "8192", 7.9e14, 7.6e14),),
    )
    store(kept)
    shown = CliRunner().invoke(command, [])
    assert shown.exit_code == 0
    assert "790 TFLOP/s" in shown.output
    written = tmp_path / "c.json"
    assert CliRunner().invoke(command, ["--json", str(written)]).exit_code == 0
    assert load_ceilings(written).flops == {"bf16": 7.6e14}
    piped = CliRunner().invoke(command, ["--json", "-"])
    assert json.loads(piped.stdout)["schema"] == "findwall-ceilings/1"


@pytest.mark.parametrize("shape", ["1,2", "a,b,c", "0,1,2", "1,2,3,4", "-1,2,3"])
def test_a_bad_shape_is_a_usage_error(shape: str) -> None:
    assert CliRunner().invoke(command, ["--shape", shape]).exit_code == 2


# The load meanwhile.


def measured_beside(*findings: Finding, on_gpu: bool = False) -> CeilingsReport:
    allowance = Allowance(1e-9)
    return load.measure_quietly(lambda: report("a CPU"), allowance, on_gpu, lambda: list(findings))


def test_ceilings_of_a_busy_machine_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not measured_beside().ceilings.doubt
    beside(monkeypatch, 1.4)
    found = measured_beside()
    assert "1.4 of 2 cores" in found.ceilings.doubt and "1.4 of 2 cores" in found.notes[0]
    assert found.others_busy == 1.4
    on_gpu = measured_beside(on_gpu=True)
    assert not on_gpu.ceilings.doubt and "launches" in on_gpu.notes[-1]
    shared = Finding("shared-gpu", "warning", "Two other processes use GPU 0.")
    assert "GPU 0" in measured_beside(shared, on_gpu=True).ceilings.doubt


def test_a_busy_machine_is_measured_again_while_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    beside(monkeypatch, 1.9, 1.2, 0.1)
    monkeypatch.setattr(load, "_wait_for_quiet", lambda _: None)
    made = []

    def measure() -> CeilingsReport:
        made.append(report(created=f"2026-01-0{len(made) + 1}"))
        return made[-1]

    found = load.measure_quietly(measure, Allowance(60.0), False, list)
    assert (len(made), found.created, found.ceilings.doubt) == (3, "2026-01-03", "")


def test_ceilings_in_doubt_replace_none_and_are_used_last() -> None:
    def doubtful(created: str, **changes: Any) -> CeilingsReport:
        kept = report(created=created, **changes)
        return msgspec.structs.replace(
            kept, ceilings=msgspec.structs.replace(kept.ceilings, doubt="It was busy")
        )

    assert store(doubtful("2026-01-01")) is not None
    kept = cached_ceilings("NVIDIA H200")
    assert kept is not None and kept.doubt
    assert store(report(created="2026-01-02")) is not None
    assert store(doubtful("2026-01-03")) is None
    found = cached_report("NVIDIA H200")
    assert found is not None and (found.created, found.ceilings.doubt) == ("2026-01-02", "")


def test_kept_ceilings_in_doubt_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [report("a CPU", others_busy=0.0), report("a CPU", others_busy=0.0)]
    made[0] = msgspec.structs.replace(
        made[0], ceilings=msgspec.structs.replace(made[0].ceilings, doubt="It was busy")
    )
    monkeypatch.setattr("findwall.cli.ceilings._kept", lambda _: made[0])
    monkeypatch.setattr("findwall.cli.ceilings._measured", lambda *_: (made[1], None))
    asked = CliRunner().invoke(command, ["--json", "-"])
    assert asked.exit_code == 0 and "busy machine" in asked.stderr
    assert "doubt" not in json.loads(asked.stdout)["ceilings"]


def of_cores(flops: dict[str, float], **changes: Any) -> CeilingsReport:
    ceilings = Ceilings("Some CPU, 2 cores", "measured", flops=flops, bandwidth=2e10)
    return CeilingsReport(ceilings=ceilings, created="2026-01-01", **{"torch": "2.11.0", **changes})


@pytest.mark.parametrize(
    ("kept", "counts"),
    [
        (of_cores({"fp32": 2e11, "bf16": 5e10}), False),  # as findwall measured cores once
        (of_cores({"fp32": 2e11, "bf16": 5e10, "fp16": 1e10}), True),
        (of_cores({"fp32": 2e11}, notes=("Could not measure fp16 matmul: not implemented",)), True),
        (of_cores({"fp32": 2e11}, torch=""), True),  # by numpy
    ],
)
def test_cores_of_which_fp16_was_not_asked_are_measured_again(kept: CeilingsReport, counts: bool) -> None:
    store(kept)
    assert (cached_ceilings("Some CPU, 2 cores") is not None) is counts
