"""Rewrites that move less: what they are told by, what they promise, and that their code does the same."""

from __future__ import annotations

from typing import Any

import pytest

from findwall.causes import Told, all_causes, verdict
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.fixes import CannotTell, NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.kernels import buffer_once, smooth_fft, sparse_embedding
from findwall.fixes.predict import predict
from findwall.fixes.prescribe import prescribe
from findwall.units import ms
from findwall.work.op_families.fft import Transform, is_smooth, smooth
from fixes import memory_rewrites as jobs
from lengths import lengths_job
from sketch import Drawn, facts_of, sketch

FIXES = all_fixes()


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def used(name: str, facts: Facts) -> Use:
    outcome = FIXES[name].advise(facts)
    assert isinstance(outcome, Use), outcome
    return outcome


def same_with_gradients(torch: Any, first: Any, second: Any, *given: Any, tolerance: float = 1e-4) -> None:
    """Both give the same values and the same gradients of what they are given."""
    leaves = [one for one in given if one.requires_grad]
    one, other = first(torch, *given), second(torch, *given)
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    seed = torch.randn_like(one)
    for mine, theirs in zip(
        torch.autograd.grad(one, leaves, seed), torch.autograd.grad(other, leaves, seed), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


# -- smooth-fft ----------------------------------------------------------------------------------------


def test_lengths_of_small_primes() -> None:
    assert [is_smooth(one) for one in (1, 2, 512, 525, 540, 11, 521, 1022)] == [True] * 5 + [False] * 3
    assert [smooth(one) for one in (512, 525, 521, 11, 1021)] == [512, 525, 540, 12, 1024]
    for length in range(1, 3000):
        assert is_smooth(smooth(length)) and length <= smooth(length) < 2 * length + 2


def test_a_transform_goes_through_memory_once_for_each_side_that_does_not_fit_on_the_chip() -> None:
    image = Transform((521, 521), 384 * 521 * 521, 8, double=False, real=False)
    assert image.passes == 2
    assert image.bytes_beyond(cache=5e7) == 2 * image.work.nbytes
    assert image.bytes_beyond(cache=1e12) == image.work.nbytes == 2 * 8 * image.numbers
    assert Transform((64, 64), 64 * 64, 8, double=False, real=False).passes == 1
    assert Transform((1 << 20,), 1 << 20, 8, double=False, real=True).passes == 2
    assert image.padded().numbers == 384 * 540 * 540


def test_a_slow_transform_is_a_wall_and_padding_it_is_advised() -> None:
    facts = jobs.transforming(521)
    assert decide(facts).cause == "slow-kernels"
    found = used("smooth-fft", facts)
    assert found.parameters == {"521": 540}
    predicted = predict(facts, {"smooth-fft": found})
    assert predicted is not None
    best = step_at_best(FIXES["smooth-fft"], found, facts)
    assert best <= predicted.mid < 0.51 * facts.step
    assert prescribe(facts, "slow-kernels")[0][0].fixes == ["smooth-fft"]


def test_a_transform_at_the_speed_of_memory_is_left_alone() -> None:
    fast = Drawn(
        "void vector_fft<528u>",
        "aten::_fft_c2c",
        ([64, 1024, 528], [], [], []),
        ("c10::complex<double>", "ScalarList", "Scalar", "Scalar"),
        concrete=("", "[2]", "0", "True"),
    )
    facts = facts_of(sketch("o    " * 3, " u   " * 3, "|    " * 3, kernels={"u": fast}, us=270))
    outcome = FIXES["smooth-fft"].advise(facts)
    assert isinstance(outcome, NoUse) and outcome.claim.id == "smooth-fft/near"


def test_without_the_transformed_dimensions_nobody_can_tell() -> None:
    blind = Drawn("void regular_bluestein_fft<1296u>", "aten::_fft_c2c").given([8, 521])
    facts = facts_of(sketch("o    " * 3, " uuuu" * 3, "|    " * 3, kernels={"u": blind}))
    outcome = FIXES["smooth-fft"].advise(facts)
    assert isinstance(outcome, CannotTell) and outcome.claim.id == "smooth-fft/no-shapes"


def test_images_that_are_transformed_stay_channels_first() -> None:
    outcome = FIXES["channels-last"].advise(jobs.transforming(521, channels_last_conv=True))
    assert isinstance(outcome, NoUse) and outcome.claim.id == "channels-last/transformed"


@pytest.mark.parametrize("size", [(1, 50, 3), (2, 500, 22), (3, 97, 97)])
def test_a_padded_transform_convolves_the_same(torch: Any, size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    batch, length, taps = size
    x = torch.randn(batch, length, requires_grad=True)
    w = torch.randn(taps, requires_grad=True)
    same_with_gradients(torch, smooth_fft.plain, smooth_fft.cheaper, x, w)


# -- sparse-embedding ----------------------------------------------------------------------------------


def test_a_table_walked_over_for_a_few_rows() -> None:
    facts = jobs.looking_up()
    found = used("sparse-embedding", facts)
    assert found.claim.figures["looked_up"] == 100_000 and found.claim.figures["rows"] == 8_000_000
    assert found.claim.figures["spent_ms"] == pytest.approx(8.0, rel=0.01)  # zeroes and update, no sort
    assert found.moves == ("unfused-optimizer",)
    predicted = predict(facts, {"sparse-embedding": found})
    assert predicted is not None
    assert step_at_best(FIXES["sparse-embedding"], found, facts) <= predicted.mid < 0.6 * facts.step
    assert prescribe(facts, "unfused-optimizer")[0][0].fixes == ["sparse-embedding"]


@pytest.mark.parametrize(
    ("facts", "answer", "why"),
    [
        (lambda: jobs.looking_up(lookups=3_000_000), NoUse, "none"),
        (lambda: jobs.looking_up(by_frequency="True"), NoUse, "scaled"),
        (lambda: jobs.looking_up(product=(64, 8_000_000)), CannotTell, "elsewhere"),  # a head that shares it
        (lambda: jobs.looking_up(lists=False), CannotTell, "untold"),
    ],
)
def test_no_sparse_gradient_where_it_cannot_be_one(facts: Any, answer: type, why: str) -> None:
    outcome = FIXES["sparse-embedding"].advise(facts())
    assert isinstance(outcome, answer), outcome
    assert outcome.claim.id == f"sparse-embedding/{why}"


def test_the_verdict_names_the_rows() -> None:
    told = all_causes()["unfused-optimizer"].says(jobs.looking_up())
    assert isinstance(told, Told) and told.action.id == "advise/sparse-embedding"


@pytest.mark.parametrize("size", [(20, 4, 3), (1000, 16, 50), (7, 1, 30)])
def test_a_sparse_gradient_takes_the_same_step(torch: Any, size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    rows, width, count = size
    table, ids = torch.randn(rows, width), torch.randint(0, rows, (count,))
    weight = torch.randn(count, width)
    before, after = sparse_embedding.plain, sparse_embedding.cheaper
    torch.testing.assert_close(before(torch, table, ids, weight), after(torch, table, ids, weight))


# -- buffer-once ---------------------------------------------------------------------------------------


def test_a_cache_that_is_copied_for_every_token() -> None:
    facts = jobs.joining(2100, 2101, 2102)
    found = used("buffer-once", facts)
    figures = found.claim.figures
    assert (figures["dim"], figures["added"], figures["calls"]) == (2, 1, 2)
    assert figures["spent_ms"] == pytest.approx(6.0, rel=0.01)
    assert found.moves == ("layout-copies",)
    predicted = predict(facts, {"buffer-once": found})
    assert predicted is not None
    assert step_at_best(FIXES["buffer-once"], found, facts) <= predicted.mid < 0.6 * facts.step
    assert decide(facts).cause == "layout-copies"
    told = all_causes()["layout-copies"].says(facts)
    assert isinstance(told, Told) and told.action.id == "advise/buffer-once" and told.saves is None
    assert prescribe(facts, "layout-copies")[0][0].fixes == ["buffer-once"]
    others = FIXES["fewer-copies"].advise(facts)  # no other copy is left for it
    assert isinstance(others, NoUse) and others.claim.id == "fewer-copies/appended"


@pytest.mark.parametrize(
    ("lengths", "added"),
    [
        ((2100, 2100, 2100), 1),  # as long in every step
        ((2100, 2102, 2104), 1),  # not by what is added
        ((2102, 2101, 2100), 1),
        ((100, 300, 500), 200),  # as much is added as is there: the first one is the shorter
    ],
)
def test_what_does_not_grow_by_what_is_joined(lengths: tuple[int, ...], added: int) -> None:
    outcome = FIXES["buffer-once"].advise(jobs.joining(*lengths, added=added))
    assert isinstance(outcome, NoUse) and outcome.claim.id == "buffer-once/none"


def test_one_step_does_not_show_what_grows() -> None:
    outcome = FIXES["buffer-once"].advise(jobs.joining(2100))
    assert isinstance(outcome, CannotTell) and outcome.claim.id == "buffer-once/one-step"


def test_training_writes_nothing_in_place() -> None:
    facts = jobs.joining(2100, 2101, 2102)
    facts.links.backward[0] = True
    outcome = FIXES["buffer-once"].advise(facts)
    assert isinstance(outcome, NoUse) and outcome.claim.id == "buffer-once/trains"


def test_copies_of_what_grows_are_the_wall_behind_what_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set-up is over once every length was seen, and the copies stay."""
    facts = facts_of(lengths_job([100, 101, 102, 103, 104], 40))
    assert decide(facts).why_not == "growing"
    monkeypatch.setattr(verdict, "appended_ms", lambda facts: ms(facts.reading.likely.busy))
    assert decide(facts).why_not == "growing"  # what is set up is all that this step waits for
    monkeypatch.setattr(verdict, "_next", lambda facts, best: "layout-copies")
    assert decide(facts).cause == "layout-copies"


@pytest.mark.parametrize("size", [(2, 3, 5, 4), (1, 8, 1, 2), (3, 2, 7, 1)])
@pytest.mark.parametrize("dim", [0, 2])
def test_a_buffer_holds_the_same(torch: Any, size: tuple[int, int, int, int], dim: int) -> None:
    torch.manual_seed(0)
    parts = [torch.randn(size, dtype=torch.float64) for _ in range(6)]
    before, after = buffer_once.plain(torch, parts, dim), buffer_once.cheaper(torch, parts, dim)
    assert torch.equal(before, after)
