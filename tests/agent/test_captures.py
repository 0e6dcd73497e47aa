"""What a job launches while it captures a graph is kept, and the job does not notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from findwall.agent.tracing import graph_captures as module
from findwall.agent.tracing import observer
from findwall.agent.tracing.graph_captures import Captures, watch_captures
from findwall.model.events import Kind, Timeline
from findwall.readers.capture_traces import read_capture
from findwall.step.captured_ops import captured_launches

torch = pytest.importorskip("torch")


class Graph:
    """A graph as the job sees it; `calls` is what reached torch."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[Any] = []
        self.fails = fails

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self.calls.append(("begin", pool, capture_error_mode))

    def capture_end(self) -> None:
        self.calls.append("end")
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")

    def replay(self) -> None:
        self.calls.append("replay")


class Watched:
    """torch with such a graph class, watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.graph_class = type("Graph", (Graph,), dict(Graph.__dict__))
        self.relay = SimpleNamespace(sink=SimpleNamespace(off=False))
        self.captures = Captures()
        self.folder = tmp_path
        monkeypatch.setattr(module, "CAPTURES", self.captures)
        monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path / "temporary"))
        (tmp_path / "temporary").mkdir()
        fake = SimpleNamespace(
            cuda=SimpleNamespace(CUDAGraph=self.graph_class),
            _C=torch._C,
            autograd=torch.autograd,
            Tensor=torch.Tensor,
        )
        watch_captures(fake, self.relay)

    def capture(self, work: Any, fails: bool = False) -> Any:
        graph = self.graph_class(fails)
        graph.capture_begin("pool", capture_error_mode="relaxed")
        work()
        graph.capture_end()
        return graph

    def trace(self, *graphs: Any) -> tuple[list[Timeline], list[int]]:
        """Replay these while steps are traced, and read what was kept; CPU tensors pass for the device's."""
        self.captures.window(True)
        for graph in graphs:
            graph.replay()
        self.captures.window(False)
        names, replays = self.captures.keep(self.folder)
        for name in names:
            text = (self.folder / name).read_text()
            (self.folder / name).write_text(text.replace('"cpu"', '"cuda:0"'))
        return [read_capture(self.folder / name) for name in names], replays


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Watched]:
    found = Watched(monkeypatch, tmp_path)
    yield found
    found.captures.discard()


def ops(capture: Timeline) -> list[str]:
    (launches,) = captured_launches(capture)
    return [capture.name_of(row) for row in launches.op.tolist()]


def test_ops_inputs_and_order_of_a_capture_are_kept(watched: Watched) -> None:
    weight = torch.randn(16, 8, dtype=torch.bfloat16)
    given = torch.randn(4, 8, dtype=torch.bfloat16)

    def work() -> None:
        hidden = torch.nn.functional.linear(given, weight)
        torch.nn.functional.gelu(hidden).mul_(hidden)

    graph = watched.capture(work)
    ((capture,), replays) = watched.trace(graph, graph)
    assert replays == [0, 0]
    assert ops(capture) == ["aten::mm", "aten::gelu", "aten::mul_"] or ops(capture)[0] == "aten::addmm"
    (launches,) = captured_launches(capture)
    inputs = capture.inputs_of(int(launches.op[0]))
    assert inputs is not None and inputs.dims[0] == [4, 8] and inputs.types[0] == "c10::BFloat16"
    assert graph.calls == [("begin", "pool", "relaxed"), "end", "replay", "replay"]


def test_backward_is_part_of_a_capture(watched: Watched) -> None:
    given = torch.randn(4, 8, requires_grad=True)
    weight = torch.randn(8, 16)
    graph = watched.capture(lambda: (given @ weight).tanh().sum().backward())
    ((capture,), _) = watched.trace(graph)
    assert ops(capture).count("aten::mm") == 2 and "aten::tanh_backward" in ops(capture)


def test_a_compiled_kernel_is_kept_with_its_tensors(watched: Watched) -> None:
    """As Inductor launches one: past the dispatcher, in a range that it makes where a profiler is on."""

    def work() -> None:
        assert torch.autograd.profiler._is_profiler_enabled
        given = torch.randn(4, 8, dtype=torch.bfloat16)
        with torch._C._profiler._RecordFunctionFast("triton_poi_fused_add_0", (given, given, 32), {}):
            pass

    before = torch._C._profiler._RecordFunctionFast
    graph = watched.capture(work)
    assert torch._C._profiler._RecordFunctionFast is before
    assert not torch.autograd.profiler._is_profiler_enabled
    ((capture,), _) = watched.trace(graph)
    (launches,) = captured_launches(capture)
    assert "triton_poi_fused_add_0" in launches.kernel
    inputs = capture.inputs_of(int(launches.op[launches.kernel.index("triton_poi_fused_add_0")]))
    assert inputs is not None
    assert inputs.dims == [[4, 8], [4, 8]] and inputs.types == ["c10::BFloat16"] * 2


def test_results_are_the_same(watched: Watched) -> None:
    given = torch.randn(16, 16)
    found: list[Any] = []
    plain = torch.softmax(given @ given, -1)
    watched.capture(lambda: found.append(torch.softmax(given @ given, -1)))
    assert torch.equal(found[0], plain)


def test_only_what_was_replayed_is_kept(watched: Watched) -> None:
    one = watched.capture(lambda: torch.ones(2).add(1))
    two = watched.capture(lambda: torch.ones(2).mul(2))
    found, replays = watched.trace(two, two)
    assert len(found) == 1 and replays == [0, 0] and "aten::mul" in ops(found[0])
    again, replays = watched.trace(one, two)  # a second window
    assert len(again) == 2 and replays == [1, 0]


def test_a_graph_captured_before_is_unknown(watched: Watched) -> None:
    early = watched.graph_class()
    found, replays = watched.trace(early)
    assert found == [] and replays == [-1]


def test_a_capture_that_fails_fails_as_before(watched: Watched) -> None:
    with pytest.raises(RuntimeError, match="not permitted"):
        watched.capture(lambda: torch.ones(2).add(1), fails=True)
    graph = watched.capture(lambda: torch.ones(2).mul(2))
    ((capture,), replays) = watched.trace(graph)
    assert replays == [0] and "aten::mul" in ops(capture)


def test_nothing_of_ours_reaches_the_job(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> bool:
        raise OSError("No space left on device")

    monkeypatch.setattr(torch._C._profiler, "_add_execution_trace_observer", broken)
    graph = watched.capture(lambda: torch.ones(2).add(1))
    assert graph.calls == [("begin", "pool", "relaxed"), "end"]
    assert watched.captures.closed and "No space left" in watched.captures.failure
    assert watched.trace(graph) == ([], [-1])


def test_a_torch_without_the_observer_is_left_alone(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch._C._profiler, "_add_execution_trace_observer")
    watched.capture(lambda: torch.ones(2).add(1))
    assert watched.captures.closed and not torch.autograd.profiler._is_profiler_enabled


def test_findwall_that_is_out_records_nothing(watched: Watched) -> None:
    watched.relay.sink.off = True
    graph = watched.capture(lambda: torch.ones(2).add(1))
    assert watched.trace(graph) == ([], [-1])


def test_a_capture_inside_a_capture_is_not_mixed_in(watched: Watched) -> None:
    inner: list[Any] = []
    outer = watched.capture(lambda: inner.append(watched.capture(lambda: torch.ones(2).add(1))))
    found, replays = watched.trace(outer, inner[0])
    assert len(found) == 1 and replays == [0, -1]


def test_torch_says_nothing_of_it_on_stderr(watched: Watched, capfd: pytest.CaptureFixture[str]) -> None:
    watched.capture(lambda: torch.ones(2).add(1))
    assert capfd.readouterr().err == ""


def test_what_others_say_meanwhile_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with observer._without_its_words():
        module.os.write(2, b"a warning\n[W] Enabling Execution Trace Observer\nanother\n")
    assert capfd.readouterr().err == "a warning\nanother\n"


def test_files_that_were_not_kept_are_gone(watched: Watched, tmp_path: Path) -> None:
    watched.capture(lambda: torch.ones(2).add(1))
    assert list((tmp_path / "temporary").iterdir())
    watched.captures.discard()
    assert not list((tmp_path / "temporary").iterdir())
    watched.capture(lambda: torch.ones(2).add(1))
    assert not list((tmp_path / "temporary").iterdir())


def test_ranges_of_a_person_are_no_ops(watched: Watched) -> None:
    def work() -> None:
        with torch.profiler.record_function("attention block"):
            torch.ones(2).mul(2)

    ((capture,), _) = watched.trace(watched.capture(work))
    assert [capture.name_of(row) for row in capture.rows(Kind.ANNOTATION)] == ["attention block"]
    assert "attention block" not in ops(capture)
