"""The way over batch sizes, with drawn jobs: how long a step takes and what memory, by its size."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from msgspec.structs import replace

from findwall.model.arms import BatchLines, FedLoader, Peaks, Swept
from findwall.model.diagnosis import Wall
from findwall.report.texts import sweep_text
from findwall.report.words import spoken
from findwall.trial.peak_lines import PredictedPeak
from findwall.trial.sweep_document import sweep_document
from findwall.trial.sweep_sizes import Ran, Tried, Way, samples_of, shape_of, sweep

GIB = 1 << 30
LOADER = FedLoader("rows", 32, 10**6, 30, 30)


class Drawn:
    """A job whose step takes `ms(size)`, with peaks in GiB. What it takes to run is counted."""

    def __init__(
        self,
        ms: Callable[[int], float],
        gib: Callable[[int], float] = lambda _size: 1.0,
        breaks_from: float = inf,
        reserves: float = 1.1,
        budget_s: float = inf,
        limit: int | None = 80 * GIB,
    ) -> None:
        self.ms, self.gib, self.breaks_from, self.reserves = ms, gib, breaks_from, reserves
        self.left_s, self.limit = budget_s, limit
        self.ran: list[int] = []

    def run(self, size: int) -> Ran:
        self.ran.append(size)
        took = 5.0 + self.ms(size) / 50
        self.left_s -= took
        if size >= self.breaks_from:
            return Ran(None, took, "out-of-memory", "CUDA out of memory")
        ms, peak = self.ms(size), int(self.gib(size) * GIB)
        reserved = min(int(self.reserves * peak), self.limit or peak)  # torch cannot have more
        peaks = Peaks("allocated", 0, peak, GIB // 2, GIB // 4, reserved, self.limit)
        fed = [FedLoader("rows", size, 10**6, 30, 30)]
        return Ran(Swept(ms, ms, ms, 30, True, 1.0, peaks, fed), took)

    def way(self, own: int = 32, given: tuple[int, ...] = (), samples: int = 10**6) -> Way:
        return Way(self.run, lambda: self.left_s, own, given, samples, loader=LOADER)


def outcomes(tried: list[Tried]) -> dict[int, str]:
    return {one.size: one.outcome for one in tried}


@pytest.mark.parametrize("own", [1, 8, 32, 200, 4096])
def test_the_plateau_is_where_a_full_sweep_has_it(own: int) -> None:
    def ms(size: int) -> float:
        return 20.0 + 0.5 * size

    tried, ended = sweep(Drawn(ms).way(own))
    shape, full = shape_of(tried), [1 << power for power in range(16)]
    assert shape is not None and ended == "done"
    best = max(size / ms(size) for size in full)
    smallest = min(size for size in full if size / ms(size) >= 0.95 * best)
    assert smallest / 2 <= shape.smallest <= 2 * smallest
    assert shape.knee is not None and not shape.knee_is_lower
    assert 20 <= shape.knee <= 160  # half of what a doubling could give is lost at 40
    assert shape.levels and shape.plateau[0] == shape.smallest


def test_the_answer_comes_before_what_nobody_asks() -> None:
    """Two doublings that give nothing end the way up; what is slow enough ends the way down."""
    drawn = Drawn(lambda size: max(50.0, float(size)))
    sweep(drawn.way(32))
    assert drawn.ran == [32, 64, 128, 256]
    drawn = Drawn(lambda size: max(50.0, float(size)))
    sweep(drawn.way(64))
    assert drawn.ran == [64, 128, 256, 32]


def test_a_job_that_only_gets_slower_is_not_doubled_for_long() -> None:
    drawn = Drawn(lambda size: float(size) ** 1.5)
    tried, _ = sweep(drawn.way(8))
    assert drawn.ran[:4] == [8, 16, 32, 4] and min(drawn.ran) == 1
    shape = shape_of(tried)
    assert shape is not None and shape.best == 1 and shape.knee == 1 and not shape.knee_is_lower


def test_what_would_not_fit_is_not_started_and_ends_the_way_up() -> None:
    drawn = Drawn(lambda _size: 50.0, lambda size: 0.25 + size / 8)
    tried, _ = sweep(drawn.way(32))
    assert outcomes(tried)[1024] == "would-not-fit" and max(drawn.ran) == 512
    last = tried[-1]
    assert last.predicted.mid == pytest.approx((0.25 + 128) * GIB, rel=0.01) and last.swept is None
    found = sweep_document(tried, drawn.way(32), {}, "done", 60.0)
    assert found.largest == 512 and found.largest_predicted == 512 and found.limit_gib == 80.0
    point = found.points[-1]
    assert point.outcome == "would-not-fit" and "80.0 GiB to be had; not started" in spoken(point.claim)


def test_only_reserved_over_the_limit_is_doubtful() -> None:
    """64 of 80 GiB are allocated, a third more reserved: it runs, and is said to be doubtful."""
    drawn = Drawn(lambda _size: 50.0, lambda size: 0.25 + size / 8, reserves=1.33)
    tried, _ = sweep(drawn.way(32))
    found = sweep_document(tried, drawn.way(32), {}, "done", 60.0)
    point = next(one for one in found.points if one.batch_size == 512)
    assert point.outcome == "measured" and point.is_doubtful
    assert spoken(point.claim).startswith("doubtful: torch would reserve 85.5 GiB")
    assert found.largest == 512 and found.largest_predicted == 256


def test_a_size_that_dies_of_memory_ends_the_way_up() -> None:
    drawn = Drawn(lambda _size: 50.0, breaks_from=200, limit=None)
    tried, _ = sweep(drawn.way(32))
    assert outcomes(tried)[256] == "out-of-memory" and max(drawn.ran) == 256
    found = sweep_document(tried, drawn.way(32), {}, "done", 60.0)
    assert found.largest == 128 and found.largest_predicted is None
    assert spoken(found.points[-1].claim) == "ran out of memory: CUDA out of memory"


def test_a_job_whose_own_size_dies_is_halved_until_it_fits() -> None:
    drawn = Drawn(lambda size: max(50.0, 4.0 * size), lambda size: size / 2, breaks_from=200)
    way = drawn.way(1024)
    tried, ended = sweep(way, Ran(None, 5.0, "out-of-memory", "CUDA out of memory", fed=[LOADER]))
    assert ended == "done" and drawn.ran[:3] == [512, 256, 128] and max(drawn.ran) == 512
    assert outcomes(tried)[1024] == outcomes(tried)[256] == "out-of-memory"
    assert outcomes(tried)[128] == "measured"
    found = sweep_document(tried, way, {}, "done", 60.0)
    assert found.largest == found.largest_predicted == 128 and found.own == 1024
    assert spoken(found.claims[0]) == (
        "The job's own batches of 1,024 run out of memory; of those that were tried 128 is the largest that "
        "fits."
    )


def test_a_pass_that_fills_no_batch_is_not_measured() -> None:
    tried, _ = sweep(Drawn(lambda _size: 50.0).way(32, samples=100))
    assert outcomes(tried)[128] == "too-few-samples" and 256 not in outcomes(tried)


def test_what_there_is_no_time_for_is_not_started() -> None:
    drawn = Drawn(lambda size: float(size) * 10, budget_s=40.0)
    tried, _ = sweep(drawn.way(32))
    assert drawn.left_s >= 0 and "no-time" in outcomes(tried).values()
    found = sweep_document(tried, drawn.way(32), {}, "done", 40.0)
    assert "sweep/out-of-time" in [one.id for one in found.claims]


def test_one_size_says_nothing_of_others() -> None:
    drawn = Drawn(lambda _size: 50.0, budget_s=3.0)
    tried, _ = sweep(drawn.way(32))
    found = sweep_document(tried, drawn.way(32), {32: Wall("data", "loader-starved")}, "done", 60.0)
    assert drawn.ran == [32] and (found.best, found.smallest, found.plateau) == (None, None, [])
    said = [spoken(one) for one in found.claims]
    assert said[0] == "640 samples per second with batches of 32; no other size was measured."
    assert not any("5 %" in text for text in said) and any(
        text.startswith("There was no time") for text in said
    )


def test_what_ran_too_few_steps_is_not_called_doubtful() -> None:
    peaks = Peaks("resident", 0, 8 * GIB, GIB, GIB, 8 * GIB)
    swept = Swept(50.0, 50.0, 50.0, 2, False, 1.0, peaks, [LOADER])
    tried = Tried(64, "too-few-steps", swept, predicted=PredictedPeak(*[7.0 * GIB] * 3, 9.0 * GIB))
    point = sweep_document([tried], Drawn(lambda _size: 50.0).way(32), {}, "done", 60.0).points[0]
    assert spoken(point.claim).startswith("too few steps to time")


def test_sizes_that_a_person_names_are_all_tried() -> None:
    drawn = Drawn(lambda size: float(size))
    tried, _ = sweep(drawn.way(16, given=(4, 8, 16, 64)))
    assert drawn.ran == [16, 64, 8, 4] and set(outcomes(tried).values()) == {"measured"}


def test_what_a_person_named_and_nobody_started_is_told() -> None:
    drawn = Drawn(lambda size: float(size), breaks_from=16, limit=None)
    tried, _ = sweep(drawn.way(8, given=(4, 8, 16, 32)))
    assert drawn.ran == [8, 16, 4] and outcomes(tried)[32] == "not-started"
    late = Drawn(lambda size: float(size) * 10, budget_s=12.0)
    tried, _ = sweep(late.way(8, given=(4, 8, 64, 128)))
    assert late.ran == [8] and outcomes(tried)[128] == "no-time"


def test_steps_too_few_to_time_give_no_figure() -> None:
    drawn = Drawn(lambda _size: 50.0)

    def run(size: int) -> Ran:
        ran = drawn.run(size)
        few = ran.swept is not None and size >= 64
        swept = Swept(50.0, 50.0, 50.0, 2, False, 1.0) if few else ran.swept
        return Ran(swept, ran.seconds)

    tried, _ = sweep(Way(run, lambda: inf, 32, loader=LOADER))
    assert outcomes(tried)[64] == "too-few-steps" and tried[-1].rate is None and tried[-1].size == 64


def test_gradients_that_accumulate_count_all_their_batches() -> None:
    fed = [FedLoader("rows", 8, 1000, 240, 30)]
    swept = Swept(100.0, 90.0, 110.0, 30, True, 8.0, Peaks(), fed)
    tried, _ = sweep(Way(lambda _size: Ran(swept, 5.0), lambda: 0.0, 8, loader=fed[0]), Ran(swept, 5.0))
    assert next(one.rate for one in tried if one.size == 8) == pytest.approx(640.0)


def test_an_argument_says_what_a_sampler_of_the_job_s_own_does_not() -> None:
    own = [FedLoader("buckets", None, None, 60, 30, "own-sampler", "Buckets")]
    swept = Swept(100.0, 90.0, 110.0, 30, True, 2.0, Peaks(), own)
    assert samples_of(swept, 8, None) == 16.0 and samples_of(swept, 8, LOADER) is None
    assert samples_of(Swept(100.0, 90.0, 110.0, 30, True, None), 8, None) == 8.0


def test_the_plateau_has_the_wall_of_the_best_size() -> None:
    drawn = Drawn(lambda size: max(50.0, float(size)))
    tried, _ = sweep(drawn.way(32))
    walls = {64: Wall("compute", "at-the-roof"), 32: Wall("overhead", "launch-bound")}
    found = sweep_document(tried, drawn.way(32), walls, "done", 60.0)
    assert (found.wall, found.cause) == ("compute", "at-the-roof") and found.plateau == [64, 256]
    said = [spoken(one) for one in found.claims]
    assert said[0].startswith("1,000 samples per second is the most, with batches of 64; from 64 to 256")
    assert "Batches of 64 are the smallest that do." in said[0]
    assert "fewer steps per epoch" in said[-1]


def test_one_doubling_that_gives_little_is_no_knee() -> None:
    """As where a step was disturbed, or a library takes another kernel from the next size on."""
    rates = {32: 100.0, 64: 107.0, 128: 480.0, 256: 780.0, 512: 800.0}
    tried, _ = sweep(Drawn(lambda size: 1e3 * size / rates.get(size, 800.0)).way(32))
    shape = shape_of(tried)
    assert shape is not None and shape.knee == 256
    steep = [one for one in tried if one.size in (32, 64, 128)]
    found = shape_of(steep)
    assert found is not None and found.knee is None


def test_an_interrupted_sweep_says_so() -> None:
    way = Drawn(lambda size: 10.0).way(32)
    measured = Ran(Swept(10.0, 10.0, 10.0, 30, True, 1.0, Peaks(), [LOADER]), 5.0)
    later = iter([measured, Ran(trouble="interrupted")])
    tried, ended = sweep(replace(way, run=lambda _size: next(later)))
    found = sweep_document(tried, way, {}, ended, 9.0)
    said = [spoken(one) for one in found.claims]
    assert ended == "interrupted" and any("interrupted" in one for one in said)
    assert not any("budget" in one for one in said)
    last = found.points[-1].claim
    assert last is not None and spoken(last) == "interrupted before it was measured"


def test_what_may_fit_is_tried_and_its_range_is_told() -> None:
    """At 64 samples 70 to 90 GiB of the 80 there are: what libraries work in decides."""
    drawn = Drawn(lambda _size: 50.0, lambda size: size * 75 / 64, reserves=1.0)
    lines = {32: BatchLines(((0, 40 * GIB),), ((0, 35 * GIB),), ((0, 45 * GIB),))}
    way = replace(drawn.way(32), recorded=lambda: lines)
    tried, _ = sweep(way)
    assert outcomes(tried)[64] == "measured" and outcomes(tried)[128] == "would-not-fit"
    found = sweep_document(tried, way, {}, "done", 60.0)
    shown = {one.batch_size: sweep_text.predicted(found, one) for one in found.points}
    assert shown[64] == "67.5–87.5 GiB"
    assert "libraries may work in" in sweep_text.figures(found)
