"""The device waits for the next batch."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.model.events import Kind
from findwall.walls import loader_starved
from sketch import facts_of, sketch

STEPS = "|         |         |         "
CPU = "ddddddd o ddddddd o ddddddd o "
GPU = "        m         m         m "


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    """The loader is waited for while the device still works."""
    return facts_of(
        sketch(cpu="ddddddd o ddddddd o ddddddd o ", gpu="mmmmmmmmmmMMMMMMMMMMmmmmmmmmmm", steps=STEPS)
    )


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu=GPU, steps=STEPS))


def test_no_workers_asks_for_workers() -> None:
    assert "num_workers: about half the cores" in loader_starved.sentence(fires())


def test_slow_workers_are_told_apart() -> None:
    host = {"d": (Kind.ANNOTATION, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")}
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=host))
    assert "workers do not keep up" in loader_starved.sentence(facts)
