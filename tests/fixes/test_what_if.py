"""What a person asks about: the step with it, or why it does not apply, or what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.errors import InputError
from findwall.facts.facts import Facts
from findwall.facts.gains import step_ms
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.what_if import parse, what_if
from findwall.machine.hardware import table_ceilings
from findwall.model.diagnosis import WhatIf
from findwall.model.events import Kind
from findwall.readers import read_trace
from findwall.report.words import spoken
from fixes.drawn import starved
from fixes.recorded import JOBS, job
from sketch import facts_of, sketch
from speaking import in_words

FIXES = sorted(all_fixes())


def notes_of(found: WhatIf) -> list[str]:
    return [spoken(claim) for claim in found.claims]


# -- what is asked -------------------------------------------------------------------------------


def test_fixes_are_named_with_or_without_a_number() -> None:
    assert parse("loader-workers=4,pin-memory") == {"loader-workers": 4, "pin-memory": None}
    assert parse(" loader-workers = 12 , tf32 ,") == {"loader-workers": 12, "tf32": None}
    assert parse("tf32,tf32") == {"tf32": None}


@pytest.mark.parametrize(
    ("asked", "near"), [("loader-worker=4", "loader-workers"), ("bf16", "bf16"), ("torch_compile", "torch-")]
)
def test_of_a_fix_that_is_none_a_near_one_is_named(asked: str, near: str) -> None:
    with pytest.raises(InputError, match="There is no fix called") as told:
        parse(asked)
    assert near in told.value.hint or "findwall explain" in told.value.hint


def test_of_what_is_near_nothing_the_list_is_named() -> None:
    with pytest.raises(InputError) as told:
        parse("zzzzzzzz")
    assert told.value.hint == "`findwall explain` lists the fixes."


@pytest.mark.parametrize(
    "asked",
    [
        "tf32=3",
        "loader-workers=",
        "loader-workers=0",
        "loader-workers=-4",
        "loader-workers=4.5",
        "loader-workers=many",
        "loader-workers=4=4",
        "loader-workers=" + "9" * 5000,
    ],
    ids=lambda asked: asked[:20],
)
def test_a_number_that_is_none_or_where_none_is_taken_is_refused(asked: str) -> None:
    with pytest.raises(InputError, match="is not a fix with a number"):
        parse(asked)


@pytest.mark.parametrize("asked", ["", " ", ",", " , ,"])
def test_nothing_asked_is_refused(asked: str) -> None:
    with pytest.raises(InputError, match="No fix is named"):
        parse(asked)


@drawn(40)
@given(st.text(st.sampled_from("loader-wks=4,tf32 \0é"), max_size=30) | st.text(max_size=20))
def test_whatever_is_asked_is_understood_or_refused(asked: str) -> None:
    try:
        found = parse(asked)
    except InputError as refused:
        assert refused.hint
    else:
        assert found and set(found) <= set(FIXES)


# -- what is answered ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["conv_fp32", "slow_loader", "plain_adamw", "pageable_batches"])
def test_every_fix_is_answered_with_a_step_a_bound_or_a_reason(name: str) -> None:
    facts = job(name)
    for fix in FIXES:
        found = what_if(facts, fix)
        said = all_fixes()[fix].advise(facts)
        assert (found.fixes == [fix]) == isinstance(said, Use)
        if isinstance(said, Use):
            ends = [
                end for end in (found.step_ms.low, found.step_ms.mid, found.step_ms.high) if end is not None
            ]
            assert ends == sorted(ends)
            assert found.step_ms.mid is not None or found.claims
        else:
            assert notes_of(found) == [f"{fix}: {in_words(said)}"]
            known = isinstance(said, NoUse)  # one that nobody can tell of is not one that changes nothing
            assert found.step_ms.mid == (step_ms(facts) if known else None)
            assert found.speedup.mid == (1.0 if known else None)


@pytest.mark.parametrize("name", JOBS)
def test_a_fix_asked_for_twice_is_asked_for_once(name: str) -> None:
    facts = job(name)
    for fix in ("tf32", "torch-compile", "fused-optimizer", "fewer-copies"):
        once, twice = what_if(facts, fix), what_if(facts, f"{fix},{fix}")
        assert (once.fixes, once.step_ms, once.claims) == (twice.fixes, twice.step_ms, twice.claims)


def test_what_does_not_apply_is_a_note_beside_what_does() -> None:
    facts = starved()
    both, alone = what_if(facts, "loader-workers=4,pin-memory"), what_if(facts, "loader-workers=4")
    assert both.fixes == ["loader-workers"]
    assert both.step_ms == alone.step_ms
    assert notes_of(both) == ["pin-memory: nothing is copied to the device in the step"]


def test_asked_about_what_makes_it_slower_it_says_so() -> None:
    """One worker makes half of what the training process did: 8 ms instead of 6."""
    found = what_if(starved(), "loader-workers=1")
    assert found.step_ms.mid == pytest.approx(8.0, rel=0.01)
    assert found.speedup.mid == pytest.approx(0.75, rel=0.01)


def test_workers_that_keep_up_leave_the_rest_of_the_step() -> None:
    found = [what_if(starved(), f"loader-workers={count}").step_ms.mid for count in (2, 4, 100)]
    assert found == pytest.approx([4.0, 2.0, 2.0], rel=0.01)


def test_workers_that_may_not_keep_up_are_worth_little_or_much() -> None:
    """A worker may make as much of a batch as the training process, or a quarter: 2 to 8 ms of 6."""
    two, many = (what_if(starved(), f"loader-workers={count}").step_ms for count in (2, 100))
    assert two.low is not None and two.high is not None and many.high is not None
    assert two.low <= 2.0 * 1.01 and two.high >= 8.0
    assert many.high < 2.0 * 1.3


def test_workers_make_far_less_of_a_batch_that_all_cores_share() -> None:
    """Tensor ops of the training process use every core, those of a worker one."""
    one_thread, many = (
        what_if(one, "loader-workers=4").step_ms.mid for one in (starved(), starved(inside="nnnn  "))
    )
    assert one_thread is not None and many is not None and many > 3 * one_thread


def fed_by(workers: int) -> Facts:
    """Of six ms the device waits four for so many workers."""
    loader = (Kind.ANNOTATION, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    timeline = sketch(steps="|     " * 3, cpu="ddddo " * 3, gpu="    kk" * 3, host={"d": loader})
    return facts_of(timeline, step_ms=6, loader_workers=workers)


def test_as_many_workers_as_there_are_or_fewer_is_no_fix() -> None:
    for count in (1, 2):
        found = what_if(fed_by(2), f"loader-workers={count}")
        assert found.fixes == [] and notes_of(found) == ["loader-workers: there are 2 workers already"]


def test_more_workers_wait_for_less_until_they_keep_up() -> None:
    """Two that are always behind make a batch in 12 ms each: six make one every two ms."""
    found = [what_if(fed_by(2), f"loader-workers={count}").step_ms.mid for count in (3, 4, 6, 12)]
    assert found == pytest.approx([4.0, 3.0, 2.0, 2.0], rel=0.02)


def test_fixes_that_are_two_ways_to_the_same_end_can_be_asked_about_in_any_order() -> None:
    facts = job("inference")
    for asked in (
        "cuda-graphs,torch-compile",
        "reduce-overhead,torch-compile",
        "cuda-graphs,reduce-overhead",
    ):
        turned = ",".join(reversed(asked.split(",")))
        assert what_if(facts, asked).step_ms == what_if(facts, turned).step_ms


def test_four_workers_on_a_recorded_job_of_none(shared: Path) -> None:
    """The same job was recorded with four: 126 ms in the middle."""
    timeline = read_trace(shared / "traces" / "v100_resnet50_workers0.json.gz")
    facts = facts_of(timeline, ceilings=table_ceilings(timeline.header.devices[0].name))
    found = what_if(facts, "loader-workers=4")
    assert found.step_ms.mid == pytest.approx(126.0, rel=0.08)


@pytest.mark.parametrize(("workers", "fix"), [(8, "workers8"), (16, "workers16_pin")])
def test_workers_that_were_measured_to_help_little(
    shared: Path, zoo_truth: dict[str, Any], workers: int, fix: str
) -> None:
    truth = zoo_truth["resnet_starved"]
    timeline = read_trace(shared / "zoo" / "resnet_starved.json.gz")
    found = what_if(facts_of(timeline, step_ms=truth["step_ms"]), f"loader-workers={workers}")
    measured, half = truth["fixes"][fix]["step_ms"], truth["fixes"][fix]["spread"] / 2
    assert found.step_ms.low is not None and found.step_ms.high is not None
    assert found.step_ms.low <= measured * (1 + half) and measured * (1 - half) <= found.step_ms.high
    assert found.step_ms.mid == pytest.approx(measured, rel=0.25)
