"""The host waits for the device on purpose."""

from __future__ import annotations

from book import Book
from findwall.attribute.facts import Facts
from findwall.model.events import Kind
from findwall.walls import host_sync
from findwall.walls.verdict import decide
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
    assert "aten::item at train.py:88" in in_words(host_sync, facts)
    first = host_sync.evidence(facts)[0]
    assert (first.op, first.line) == ("aten::item", "train.py:88")


def test_a_plain_synchronize_is_named_too() -> None:
    facts = facts_of(
        sketch(cpu="oeeeeoo   oeeeeoo   oeeeeoo", gpu="mmmm.mM   mmmm.mM   mmmm.mM", steps=STEPS)
    )
    assert "cudaDeviceSynchronize" in in_words(host_sync, facts)


def test_a_device_that_copies_results_back_is_not_said_to_wait() -> None:
    book = Book()
    for number in range(3):
        begin = book.now
        book.op("aten::mm", [[64, 64], [64, 64]], ["float"] * 2, "sm80_gemm", 1_000)
        op = book.open("aten::copy_", [[64, 64], [64, 64]], ["float"] * 2)
        book.kernel(
            "Memcpy DtoH (Device -> Pageable)", 9_000, call="cudaMemcpyAsync", kind=Kind.MEMCPY, nbytes=10**8
        )
        book._add(Kind.RUNTIME, "cudaStreamSynchronize", book.now, book.now + 200_000)
        book.now += 201_000
        book.close(op)
        book._add(Kind.ANNOTATION, f"ProfilerStep#{number}", begin, book.now)
    facts = facts_of(book.timeline())
    assert decide(facts).cause == "host-sync"
    text = in_words(host_sync, facts)
    assert "goes to copies back to the host" in text and "the device waits" not in text
