"""Where the host stood: the nearest frame of the person's own code."""

from __future__ import annotations

import pytest

from book import Book
from findwall.facts.user_lines import line_of, parse_frame, sampled, sampled_evidence
from findwall.model.events import Kind
from findwall.model.measured_run import HostLine
from sketch import facts_of, sketch
from speaking import texts


@pytest.mark.parametrize(
    ("name", "place", "own"),
    [
        ("train.py(88): main", "train.py:88", True),
        ("/home/me/project/train.py(3): <module>", "train.py:3", True),
        ("torch/nn/modules/module.py(1955): __getattr__", "module.py:1955", False),
        ("/usr/lib/python3.10/json/encoder.py(199): encode", "encoder.py:199", False),
        ("/venv/lib/python3.11/site-packages/x/y.py(1): f", "y.py:1", False),
        ("enum.py(1267): __hash__", "enum.py:1267", False),
        ("<frozen os>(680): __getitem__", "<frozen os>:680", False),
    ],
)
def test_frames_are_told_apart(name: str, place: str, own: bool) -> None:
    frame = parse_frame(name)
    assert frame is not None
    assert (frame.place, frame.own) == (place, own)


@pytest.mark.parametrize("name", ["<built-in function linear>", "nn.Module: Linear_0", ""])
def test_what_is_no_frame_is_none(name: str) -> None:
    assert parse_frame(name) is None


def test_the_nearest_own_frame_counts() -> None:
    host = {"Y": (Kind.PYTHON, "torch/_tensor.py(12): backward"), "y": (Kind.PYTHON, "train.py(88): main")}
    timeline = sketch(cpu="yyyyy\n YYY\n  o", gpu="  k", host=host)
    facts = facts_of(timeline)
    row = int(facts.links.op[facts.timeline.rows(Kind.KERNEL)[0]])
    assert line_of(facts, row) == "train.py:88"
    assert line_of(facts, -1) is None


def test_backward_work_stands_where_the_op_was_called_that_made_its_node() -> None:
    book = Book()
    for line, op in ((3, "aten::ones_like"), (4, "aten::mul")):
        frame = book.open(f"train.py({line}): forward", kind=Kind.PYTHON)
        book.op(op, [], [], "mul_kernel", sequence=7)  # the number is used up by the last of them
        book.close(frame)
    engine = book.open("autograd::engine::evaluate_function: MulBackward0", sequence=7)
    book.op("aten::mul", [], [], "mul_kernel")
    book.close(engine)
    facts = facts_of(book.timeline())
    row = int(facts.links.op[facts.timeline.rows(Kind.KERNEL)[-1]])
    assert facts.links.backward[row] and line_of(facts, row) == "train.py:4"


def test_a_samplers_own_lines_come_first() -> None:
    lines = (
        HostLine("venv/lib/python3.11/site-packages/torch/collate.py:275", "f", 0.9),
        HostLine("a.py:3", "g", 0.1),
    )
    facts = facts_of(sketch(cpu="o", gpu="k"), host_lines=lines)
    found = sampled(facts)
    assert found is not None and found.place == "a.py:3"
    only = sampled(facts_of(sketch(cpu="o", gpu="k"), host_lines=lines[:1]))
    assert only is not None and only.place == "torch/collate.py:275"


def test_a_line_seen_in_several_callees_is_one_line() -> None:
    lines = (HostLine("a.py:3", "g", 0.3), HostLine("b.py:1", "f", 0.4), HostLine("a.py:3", "g", 0.2))
    found = sampled_evidence(facts_of(sketch(cpu="o", gpu="k"), host_lines=lines))
    assert [one.line for one in found] == ["a.py:3", "b.py:1"] and "50 % of the samples" in texts(found)[0]
