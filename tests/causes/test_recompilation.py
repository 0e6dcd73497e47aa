"""Compiling inside the step."""

from __future__ import annotations

from findwall.causes.overhead import recompilation
from findwall.facts.facts import Facts
from sketch import facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "


def fires() -> Facts:
    return facts_of(
        sketch(cpu="jjjjjjjo  jjjjjjjo  jjjjjjjo  ", gpu="       m         m         m  ", steps=STEPS)
    )


def clear() -> Facts:
    return facts_of(
        sketch(cpu="o         o         o         ", gpu="mmmmmmmmmmMMMMMMMMMMmmmmmmmmmm", steps=STEPS)
    )


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu="       m         m         m  ", steps=STEPS))


def test_says_how_often() -> None:
    text = in_words(recompilation.CAUSE, fires())
    assert "for the 4th time" in text  # compile_id=0/3
    assert "dynamic=True" in text
