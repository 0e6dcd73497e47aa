"""A check on every layer's output: comparisons that run only so that the host can look."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from book import Book
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.fixes import Use
from findwall.fixes.host import remove_sync
from findwall.fixes.predict import ends
from findwall.model.events import Kind
from sketch import facts_of

US = 1_000
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CompareEqFunctor<float>>"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


class Job(Book):
    """The host takes 40 us for each op, the device 10 for its kernel: launch-bound, but for the checks."""

    def run(self, name: str, kernel: str = POINTWISE) -> None:
        op = self.open(name, [[1024, 1024]] * 2, ["float"] * 2)
        self.correlation += 1
        columns = {"correlation": self.correlation}
        self._add(Kind.RUNTIME, "cudaLaunchKernel", self.now, self.now + 5 * US, **columns)
        columns |= {"device": 0, "stream": 7, "thread": 107}
        self._add(Kind.KERNEL, kernel, self.now + 8 * US, self.now + 18 * US, **columns)
        self.now += 40 * US
        self.close(op)

    def read(self) -> None:
        outer = self.open("aten::is_nonzero", [[]], ["bool"])
        inner = self.open("aten::item", [[]], ["bool"])
        self._add(Kind.RUNTIME, "cudaStreamSynchronize", self.now, self.now + 15 * US)
        self.now += 20 * US
        self.close(inner)
        self.close(outer)

    def step(self, number: int, layers: int, asks: tuple[str, ...], reads: bool) -> None:
        begin = self.now
        for _ in range(layers):
            self.run("aten::mm", GEMM)
            for name in asks:
                self.run(name)
            if reads:
                self.read()
        self._add(Kind.ANNOTATION, f"ProfilerStep#{number}", begin, self.now)


def job(asks: tuple[str, ...], reads: bool = True, layers: int = 20) -> Facts:
    book = Job()
    for number in range(4):
        book.step(number, layers, asks, reads)
    return facts_of(book.timeline())


CHECK = ("aten::isnan", "aten::any")


def test_a_check_on_every_layer_is_the_wall_with_all_that_it_launches() -> None:
    facts = job(CHECK)
    found = decide(facts)
    assert found.cause == "host-sync"
    # Of 120 us a layer the check takes 100: two comparisons and the read.
    assert facts.spent_ms("host-sync") > 0.7 * facts.reading.likely.step / 1e6
    outcome = remove_sync.FIX.advise(facts)
    assert isinstance(outcome, Use) and outcome.best is not None
    # Made no more they are gone; kept on the device they are still launched.
    played = ends(facts, {"remove-sync": outcome})
    assert played is not None and played.short < 0.9 * played.mid < 0.9 * facts.step


def test_comparisons_that_nobody_reads_are_launches_like_others() -> None:
    facts = job(CHECK, reads=False)
    assert len(facts.host.questions) == 0
    assert facts.spent_ms("host-sync") == 0
    assert decide(facts).cause == "launch-bound"


def test_what_else_is_read_stays_what_it_is() -> None:
    """A loss is read, but the device needs it too: only the read itself goes."""
    facts = job(("aten::sum",))
    names = {facts.timeline.name_of(row) for row in facts.host.questions.tolist()}
    assert names == {"aten::is_nonzero"}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([*CHECK, "aten::gt", "aten::add", "aten::mul"]), max_size=5))
def test_a_question_is_a_run_of_comparisons_right_before_a_read(asks: list[str]) -> None:
    facts = job(tuple(asks), layers=2)
    tail = 0
    for name in reversed(asks):
        if name in ("aten::add", "aten::mul"):
            break
        tail += 1
    assert len(facts.host.questions) == 4 * 2 * (1 + tail)
