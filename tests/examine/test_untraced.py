"""A measured job without a trace: what is known is shown, and what would give more, in the caller's words."""

from __future__ import annotations

from findwall.agent.options import Options
from findwall.examine import examine
from findwall.model.events import Kind
from findwall.model.measured_run import HostLine, Rank, Run, StepTimes
from findwall.report.terminal import to_text
from sketch import sketch

REMEDY = "the job ended after 6 steps; a longer run, or findwall run --wait 1 --steps 1 …, gives one"


def run(why: str, *lines: HostLine, **waits: float) -> Run:
    rank = Rank(
        step_times=StepTimes(tuple([0.1] * 30), "measured", **waits),
        device_kind="cpu",
        host_lines=lines,
        why_no_trace=why,
        notes=(f"no trace of rank 0: {why}",),
    )
    return Run("run-folder", ("run",), (rank,))


def test_the_remedy_stands_in_the_box_and_nowhere_else() -> None:
    document = examine(run(REMEDY))
    assert document.wall.wall is None
    assert document.wall.sentence.endswith(f"There is no trace: {REMEDY}.")
    shown = " ".join(to_text(document).replace("┃", " ").split())
    assert shown.count("gives one") == 1


def test_a_verdict_keeps_the_missing_trace_a_note() -> None:
    document = examine(run(REMEDY, loader_s=0.09))
    assert document.wall.cause == "loader-starved"
    assert any(REMEDY in note for note in document.notes)


def test_where_the_host_stood_is_the_evidence_there_is() -> None:
    lines = HostLine("train.py:7", "load", 0.6), HostLine("train.py:9", "<module>", 0.3)
    document = examine(run(Options().why_no_trace, *lines))
    shown = " ".join(to_text(document).split())
    assert (
        "what is known - 100 ms (100 %) unexplained: train.py:7 in load: the host was here in 60 %" in shown
    )
    assert "There is no trace: --no-trace was given; leave it out." in shown.replace(" ┃ ┃ ", " ")


def test_each_caller_reads_its_own_syntax() -> None:
    assert Options(caller="findwall.measure").why_no_trace == (
        "findwall.measure(trace=False) was given; leave it out"
    )
    assert "m.step() at the end" in Options(caller="findwall.measure").more_steps
    assert "FindwallCallback" in Options(caller="FindwallCallback").more_steps
    assert "with findwall.measure() as m" in Options().more_steps


def test_a_trace_of_the_host_alone_lists_its_longest_ops() -> None:
    host = {"p": (Kind.OP, "aten::addmm"), "q": (Kind.OP, "aten::sort")}
    timeline = sketch("ppppq pq  pq  ", "", "|     |   |   ", host=host, device="")
    found = examine(Run("torch-trace", ("a",), (Rank(0, timeline),)))
    assert found.wall.cause is None
    assert [(row.name, row.ms, row.calls) for row in found.kernels] == [
        ("aten::addmm", 2, 1),
        ("aten::sort", 1, 1),
    ]
    assert "2.00 ms in aten::addmm" in to_text(found)
