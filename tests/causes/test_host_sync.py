"""The host waits for the device on purpose."""

from __future__ import annotations

from findwall.causes.overhead import host_sync
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from sketch import facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "
CPU = """
 yyyyyy    yyyyyy    yyyyyy
 ossssoo   ossssoo   ossssoo
"""
GPU = " mmmm.mM   mmmm.mM   mmmm.mM"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    """Waiting for a device that works is no loss: the next kernels are queued already."""
    return facts_of(
        sketch(cpu="oossss    oossss    oossss", gpu="mmmmmMMMMMmmmmmMMMMMmmmmmMMMMM", steps=STEPS)
    )


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu=GPU, steps=STEPS))


def test_names_op_and_line() -> None:
    facts = fires()
    assert "aten::item at train.py:88" in in_words(host_sync.CAUSE, facts)
    first = host_sync.CAUSE.evidence(facts)[0]
    assert (first.op, first.line) == ("aten::item", "train.py:88")


def test_a_plain_synchronize_is_named_too() -> None:
    facts = facts_of(
        sketch(cpu="oeeeeoo   oeeeeoo   oeeeeoo", gpu="mmmm.mM   mmmm.mM   mmmm.mM", steps=STEPS)
    )
    assert "cudaDeviceSynchronize" in in_words(host_sync.CAUSE, facts)


def test_a_device_that_copies_results_back_is_not_said_to_wait() -> None:
    facts = facts_of(sketch(cpu="osssssss" * 3, gpu=".mbbbbbb" * 3, steps="|       " * 3))
    assert decide(facts).cause == "host-sync"
    text = in_words(host_sync.CAUSE, facts)
    assert "goes to copies back to the host" in text and "the device waits" not in text
