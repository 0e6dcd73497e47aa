"""The peak of a larger batch: of several lines the largest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from examples import drawn
from findwall.model.arms import BatchLines, Peaks
from findwall.trial.peak_lines import on_line, predicted, predicted_peak, predicted_reserved

MB = 10**6


def peaks(batch: int, flat: float = 500, each: float = 10, start: float = 200) -> Peaks:
    """Set-up takes 100 MB, the optimizer `flat`, forward and backward `each` a sample."""
    working = int((start + each * batch) * MB)
    return Peaks("allocated", 100 * MB, working, int(flat * MB), int(start * MB), int(1.2 * working))


def test_a_line_that_lies_below_another_is_seen_before_it_lies_above() -> None:
    """Up to 30 samples the optimizer's peak is the whole one, and does not move."""
    tried = {8: peaks(8), 16: peaks(16)}
    assert [one.whole for one in tried.values()] == [500 * MB, 500 * MB]
    for batch in (4, 12, 24, 32, 128):
        assert predicted_peak(tried, batch) == approx(peaks(batch).whole)


def test_one_size_is_enough_where_it_is_known_what_stays() -> None:
    assert predicted_peak({32: peaks(32)}, 64) == approx(840 * MB)
    alone = Peaks("resident", working=300 * MB)
    assert predicted_peak({8: alone}, 16) == 300 * MB  # nobody knows how much of it grows
    assert predicted_peak({}, 16) is None
    assert predicted_peak({8: Peaks()}, 16) is None


@drawn(30)
@given(st.lists(st.tuples(st.integers(10, 900), st.integers(0, 9)), min_size=1, max_size=3))
def test_the_largest_of_drawn_lines(lines: list[tuple[int, int]]) -> None:
    """Where the last two points lie on the line that is largest from there on."""

    def value(batch: float) -> float:
        return max(start + slope * batch for start, slope in lines)

    points = [(float(size), value(size)) for size in (1, 2, 4, 1024, 2048)]
    assert on_line(points, 4096) == approx(value(4096))


def test_a_little_noise_is_averaged_and_a_kink_is_not() -> None:
    noisy = [(4.0, 100.4), (8.0, 139.7), (16.0, 220.3), (32.0, 379.8)]
    assert on_line(noisy, 64) == approx(700, rel=0.004)
    kinked = [(2.0, 100.0), (4.0, 100.0), (8.0, 100.0), (16.0, 140.0), (32.0, 240.0)]
    assert on_line(kinked, 64) == approx(440)
    assert on_line(kinked, 1) == approx(100)
    assert on_line(kinked, 24) == approx(190)


def test_a_larger_batch_never_takes_less() -> None:
    assert on_line([(8.0, 101.0), (16.0, 100.0)], 64) == 100.0
    assert on_line([(8.0, 100.0), (16.0, 150.0)], 1) == approx(56.25)
    assert on_line([(8.0, 100.0), (16.0, 250.0)], 1) == 0.0


def test_what_is_reserved_is_as_much_more_as_it_was_at_the_most() -> None:
    assert predicted_reserved({32: peaks(32)}, 64) == approx(1.2 * 840 * MB)
    assert predicted_reserved({8: Peaks("resident", working=300 * MB)}, 16) is None


LINES = BatchLines(((500 * MB, 0), (100 * MB, 320 * MB)), between=90 * MB)  # of 32 samples


def test_lines_of_one_recorded_size_tell_all_others() -> None:
    """Up to 40 samples it is the optimizer that peaks, which no point below shows."""
    tried = {32: Peaks("allocated", 100 * MB, 420 * MB, 530 * MB, 200 * MB)}
    recorded = {32: LINES}
    assert predicted_peak(tried, 16, recorded) == approx(530 * MB)  # 30 MB are there that were not recorded
    assert predicted_peak(tried, 64, recorded) == approx((30 + 100 + 640) * MB)
    assert predicted_peak(tried, 64, {32: BatchLines()}) == predicted_peak(tried, 64)


def test_between_two_recorded_sizes_the_nearer_counts_more() -> None:
    tried = {at: Peaks("allocated", working=int((100 + 10 * at) * MB)) for at in (8, 32)}
    recorded = {at: BatchLines(((100 * MB, 10 * at * MB),)) for at in (8, 32)}
    assert predicted_peak(tried, 16, recorded) == approx(260 * MB)


def test_resident_memory_lies_between_what_is_needed_and_what_was_kept_before() -> None:
    """Between two steps 200 MB are there; a step takes 410 MB more, and half as much again is kept."""
    peaks = Peaks("resident", 100 * MB, 700 * MB, 600 * MB, held=200 * MB, reserved=815 * MB)
    tried, recorded = {32: peaks}, {32: LINES}
    needed = (200 + 740 - 90) * MB
    assert predicted_peak(tried, 64, recorded) == approx(needed)
    assert predicted_reserved(tried, 64, recorded) == approx(200 * MB + 1.5 * (needed - 200 * MB))
    unknown = {32: BatchLines(LINES.lines)}  # nobody knows what of it was there between two steps
    assert predicted_peak(tried, 64, unknown) == predicted_peak(tried, 64)


def test_workers_are_counted_and_their_batches_grow() -> None:
    one = Peaks("resident", working=500 * MB, held=500 * MB, workers=40 * MB, waiting=20 * MB)
    assert one.whole == 560 * MB
    assert predicted_peak({8: one}, 16) == approx((500 + 40 + 40) * MB)


def test_what_libraries_work_in_makes_a_range() -> None:
    """At 32 samples the peak is 420 MB, and a library works in 60: in none, or in twice as much."""
    tried = {32: Peaks("allocated", 100 * MB, 420 * MB, 300 * MB, 200 * MB)}
    lines, least = ((160 * MB, 260 * MB),), ((100 * MB, 260 * MB),)
    most = ((160 * MB, 260 * MB), (100 * MB, 320 * MB))
    found = predicted(tried, 64, {32: BatchLines(lines, least, most)})
    assert (found.low, found.mid, found.high) == (620 * MB, 680 * MB, 740 * MB)
    halved = predicted(tried, 16, {32: BatchLines(lines, least, most)})
    assert (halved.low, halved.mid, halved.high) == (230 * MB, 290 * MB, 290 * MB)
    alike = predicted(tried, 64, {32: BatchLines(lines)})
    assert alike.low == alike.mid == alike.high == 680 * MB
