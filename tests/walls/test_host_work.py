"""The host is busy with something else."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.model.events import Kind
from findwall.model.run import HostLine, StepTimes
from findwall.walls import host_work
from findwall.walls.verdict import decide
from sketch import facts_of, sketch

STEPS = "|         |         |         "
CPU = """
yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
o         o         o
"""
GPU = "m         m         m"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu="o         o         o", gpu="mmmmmmmmmmMMMMMMMMMMmmmmmmmmmm", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu=GPU, steps=STEPS))


def test_names_the_line_of_the_trace() -> None:
    assert "main (train.py:88)" in host_work.sentence(fires())


def test_names_the_line_a_sampler_saw() -> None:
    lines = (HostLine("train.py:31", "save", 0.8), HostLine("train.py:9", "main", 0.1))
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS), host_lines=lines)
    assert "train.py:31 (save)" in host_work.sentence(facts)
    assert "80 % of the samples" in " ".join(one.text for one in host_work.evidence(facts))


def test_a_line_that_runs_ops_is_not_where_the_host_works() -> None:
    lines = (
        HostLine("train.py:24", "main", 0.6, "graph.py:_engine_run_backward"),
        HostLine("train.py:12", "tokenize", 0.2),
    )
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS), host_lines=lines)
    assert "train.py:12 (tokenize)" in host_work.sentence(facts)
    only = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS), host_lines=lines[:1])
    assert "train.py:24 (main)" in host_work.sentence(only)


def test_without_lines_the_ops_around_are_named() -> None:
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS))
    text = host_work.sentence(facts)
    assert "between aten::mm and aten::mm" in text
    assert "with_stack=True" in text
    ran = facts_of(facts.timeline, step_times=StepTimes((0.01,) * 10, "measured"))
    assert "between aten::mm and aten::mm" in host_work.sentence(ran)
    assert "findwall run" not in host_work.sentence(ran)  # that is what they did


def test_a_gap_without_host_ops_is_placed_by_the_device(monkeypatch) -> None:
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS))
    monkeypatch.setattr(host_work, "_neighbours", lambda *_: (None, None))
    (found,) = host_work.evidence(facts)
    assert found.text.startswith("between aten::mm and aten::mm: the device waited")


def test_ends_that_are_not_known_are_not_named() -> None:
    assert host_work._between(None, "aten::mm") == "before aten::mm"
    assert host_work._between("aten::mm", None) == "after aten::mm"
    assert "no op" in host_work._between(None, None)


def test_an_op_on_the_host_s_own_tensors_is_named() -> None:
    """Ten milliseconds of it in every step, with the device's seven beneath it."""
    host = {"p": (Kind.OP, "aten::normal_")}
    facts = facts_of(sketch("oppppppppp" * 4, " mmmmmm   " * 4, "|         " * 4, host=host))
    assert decide(facts).cause == "host-work"
    text = host_work.sentence(facts)
    assert "aten::normal_" in text and "no op under it" not in text
