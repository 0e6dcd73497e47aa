"""A convolution that tries its kernels out for every new image size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from book import Book
from examples import drawn
from findwall.causes.overhead import recompilation
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.model.events import Kind, Timeline
from findwall.step.host_activity import watch_host
from findwall.step.links import link
from sketch import facts_of
from speaking import in_words

US = 1_000
CONVOLUTION = "aten::cudnn_convolution"


class Job(Book):
    def convolve(
        self, size: int, kernels: int, names: int, waits: bool, wait: str = "cudaEventSynchronize"
    ) -> None:
        """One call: so many kernels of so many names, each waited for where they are tried out."""
        op = self.open(CONVOLUTION, [[8, 64, size, size], [64, 64, 3, 3]], ["float"] * 2)
        for number in range(kernels):
            self.correlation += 1
            columns = {"correlation": self.correlation}
            self._add(Kind.RUNTIME, "cudaLaunchKernel", self.now, self.now + 5 * US, **columns)
            columns |= {"device": 0, "stream": 7, "thread": 107}
            self._add(
                Kind.KERNEL, f"conv_{number % names}", self.now + 8 * US, self.now + 308 * US, **columns
            )
            self.now += 10 * US
            if waits:
                self._add(Kind.RUNTIME, wait, self.now, self.now + 300 * US)
                self.now += 305 * US
        self.close(op)

    def step(self, number: int, size: int, tries: int, layers: int = 3) -> None:
        begin = self.now
        for _ in range(layers):
            self.convolve(size, tries or 2, 9 if tries else 2, waits=bool(tries))
            tries = 0  # the other layers are of the same shape
        self.now += 2_000 * US
        self._add(Kind.ANNOTATION, f"ProfilerStep#{number}", begin, self.now)


def job(sizes: list[int], tries: int, always: bool = False) -> Timeline:
    book, seen = Job(), set[int]()
    for number, size in enumerate(sizes):
        book.step(number, size, tries if always or size not in seen else 0)
        seen.add(size)
    return book.timeline()


def facts(sizes: list[int], tries: int) -> Facts:
    return facts_of(job(sizes, tries))


@drawn(67)
@given(st.lists(st.integers(100, 120), min_size=3, max_size=7), st.integers(9, 60))
def test_the_first_call_of_every_shape_tries(sizes: list[int], tries: int) -> None:
    timeline = job(sizes, tries)
    found = watch_host(timeline, link(timeline))
    assert len(found.trials) == len(set(sizes))
    assert len(found.blocking.row) == 0  # the waits in a trial are the trial's


@drawn(33)
@given(st.lists(st.integers(100, 104), min_size=6, max_size=9), st.integers(9, 30))
def test_what_comes_again_on_a_shape_is_no_trial(sizes: list[int], tries: int) -> None:
    timeline = job(sizes, tries, always=True)
    again = [size for size in set(sizes) if sizes.count(size) > 1]
    assert len(watch_host(timeline, link(timeline)).trials) == len(set(sizes)) - len(again)


@drawn(33)
@given(st.lists(st.integers(100, 900), min_size=2, max_size=6, unique=True), st.integers(9, 40))
def test_where_no_shape_comes_back_timing_tells_a_trial_from_work(sizes: list[int], tries: int) -> None:
    for waits, wait, trials in (
        (True, "cudaEventSynchronize", len(sizes)),
        (True, "cudaStreamSynchronize", 0),  # so does a decomposition that looks at its own numbers
        (False, "", 0),
    ):
        book = Job()
        for size in sizes:
            book.convolve(size, tries, 5, waits, wait)
        timeline = book.timeline()
        assert len(watch_host(timeline, link(timeline)).trials) == trials


def test_the_wall_is_recompilation_on_both_sides() -> None:
    found = facts([100, 104, 100, 104, 108], 40)
    assert decide(found).cause == "recompilation"
    assert found.spent().total == pytest.approx(found.step)
    text = in_words(recompilation.CAUSE, found)
    assert "trying out kernels" in text
    assert "cudnn.benchmark" in text
    assert found.recoverable_ms("recompilation") == pytest.approx(found.spent_ms("recompilation"))


def test_a_job_of_one_shape_has_none() -> None:
    found = facts([100] * 5, 0)
    assert len(found.host.trials) == 0
    assert found.spent_ms("recompilation") == 0
