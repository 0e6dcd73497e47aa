"""The host is busy with something else."""

from __future__ import annotations

import pytest

from findwall.causes.overhead import host_work
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.model.claims import Claim
from findwall.model.events import Kind
from findwall.model.measured_run import HostLine, StepTimes
from findwall.report.words.evidence import silence
from sketch import facts_of, sketch
from speaking import evidence_of, in_words, texts

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
    assert "main (train.py:88)" in in_words(host_work.CAUSE, fires())


def test_names_the_line_a_sampler_saw() -> None:
    lines = (HostLine("train.py:31", "save", 0.8), HostLine("train.py:9", "main", 0.1))
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS), host_lines=lines)
    assert "train.py:31 (save)" in in_words(host_work.CAUSE, facts)
    assert "80 % of the samples" in " ".join(evidence_of(host_work.CAUSE, facts))


def test_a_line_that_runs_ops_is_not_where_the_host_works() -> None:
    lines = (
        HostLine("train.py:24", "main", 0.6, "graph.py:_engine_run_backward"),
        HostLine("train.py:12", "tokenize", 0.2),
    )
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS), host_lines=lines)
    assert "train.py:12 (tokenize)" in in_words(host_work.CAUSE, facts)
    only = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS), host_lines=lines[:1])
    assert "train.py:24 (main)" in in_words(host_work.CAUSE, only)


def test_without_lines_the_ops_around_are_named() -> None:
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS))
    text = in_words(host_work.CAUSE, facts)
    assert "between aten::mm and aten::mm" in text
    assert "with_stack=True" in text
    ran = facts_of(facts.timeline, step_times=StepTimes((0.01,) * 10, "measured"))
    assert "between aten::mm and aten::mm" in in_words(host_work.CAUSE, ran)
    assert "findwall run" not in in_words(host_work.CAUSE, ran)  # that is what they did


def test_a_gap_without_host_ops_is_placed_by_the_device(monkeypatch) -> None:
    facts = facts_of(sketch(cpu="o         o         o", gpu=GPU, steps=STEPS))
    monkeypatch.setattr(host_work, "_neighbours", lambda *_: (None, None))
    (found,) = host_work.CAUSE.evidence(facts)
    assert texts([found])[0].startswith("between aten::mm and aten::mm: the device waited")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"after": "aten::mm"}, "before aten::mm"),
        ({"before": "aten::mm"}, "after aten::mm"),
        ({"before": "aten::mm", "after_kernel": "void cub::Sort<int>(int)"}, "between aten::mm and Sort"),
        ({}, "where the trace records no op at all"),
        ({"call": "poll", "after": "aten::mm"}, "in poll, before aten::mm"),
    ],
)
def test_ends_that_are_not_known_are_not_named(names: dict[str, str], words: str) -> None:
    assert silence(Claim("evidence/silence", names=names)) == words


def test_an_op_on_the_host_s_own_tensors_is_named() -> None:
    """Ten milliseconds of it in every step, with the device's seven beneath it."""
    host = {"p": (Kind.OP, "aten::normal_")}
    facts = facts_of(sketch("oppppppppp" * 4, " mmmmmm   " * 4, "|         " * 4, host=host))
    assert decide(facts).cause == "host-work"
    text = in_words(host_work.CAUSE, facts)
    assert "aten::normal_" in text and "no op under it" not in text
