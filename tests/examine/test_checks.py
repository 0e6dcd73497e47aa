"""Each check, with a document made wrong on purpose; and thousands of documents made wrong at random."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import recordings
from captures import FIXTURES
from contradictions import Known, contradictions
from examples import drawn
from findwall.examine import checks, figure_checks
from findwall.examine.checks import Circumstances, checked
from findwall.model.claims import Claim, Range, advises, promised_ms
from findwall.model.diagnosis import BudgetRow, Diagnosis, KindRow, NotWorthIt, Phase, Prescription, to_json
from findwall.report.words import spoken
from findwall.report.words.documents import worded

JOB = Circumstances(vendor="nvidia", cores=16, copies_tell_memory=True, clocks_sampled=True)
Wrong = Callable[[Diagnosis], Circumstances | None]


def sound(name: str = "eager_training") -> Diagnosis:
    """A fresh document in which nothing is wrong."""
    return recordings.document(FIXTURES / f"{name}.json.gz")


def row(document: Diagnosis, cause: str) -> BudgetRow:
    return next(one for one in document.budget if one.cause == cause)


def say(claim: Claim, **job: Any) -> Wrong:
    """The verdict says this, of such a job."""

    def change(document: Diagnosis) -> Circumstances:
        document.wall.claim, document.wall.advises = claim, advises(claim)
        return replace(JOB, **job)

    return change


def absent_cause(document: Diagnosis) -> None:
    spent = row(document, "launch-bound")
    spent.cause, spent.recoverable_ms = "host-work", spent.recoverable_ms


def more_unknown(document: Diagnosis) -> None:
    spent = row(document, "launch-bound")
    document.budget.append(BudgetRow(None, "unknown", 0.9 * spent.ms, None, None, None))
    spent.ms *= 0.1
    spent.recoverable_ms = spent.ms


def roof_with_unknown(document: Diagnosis) -> None:
    document.wall.cause, document.wall.wall = "memory-roof", "bandwidth"
    spent = row(document, "launch-bound")
    document.budget.append(BudgetRow("bandwidth", "memory-roof", 0.5 * spent.ms, None, None, 0.0))
    spent.cause, spent.ms, spent.recoverable_ms = "unknown", 0.5 * spent.ms, None


def far_roof(document: Diagnosis) -> Circumstances:
    document.wall.cause, document.wall.wall = "memory-roof", "bandwidth"
    spent = row(document, "launch-bound")
    spent.cause, spent.recoverable_ms = "memory-roof", 0.0
    return replace(JOB, lowest_at_roof=0.001)


def busy(document: Diagnosis) -> None:
    document.questions[1].value = 0.98


def long_kernels(document: Diagnosis) -> Circumstances:
    return replace(JOB, longest_small_ms=5.9)


def beyond_spec(document: Diagnosis) -> Circumstances:
    return replace(JOB, least_ms=0.9 * (document.step.ms or 0.0))


def small_promise(document: Diagnosis) -> None:
    document.wall.saves_ms = 0.1


def advises_refused(document: Diagnosis) -> None:
    document.wall.advises = ["cuda-graphs"]
    document.prescriptions = []
    document.not_worth_it = [NotWorthIt(["cuda-graphs"], 1.0, "the device never waits")]


VERDICTS: dict[str, Wrong] = {
    "cause-takes-time": absent_cause,
    "known-outweighs-unknown": more_unknown,
    "roof-is-known": roof_with_unknown,
    "roof-is-near": far_roof,
    "busy-device-waits-for-nobody": busy,
    "small-kernels-are-small": long_kernels,
    "verdict-keeps-to-the-spec": beyond_spec,
    "promise-covers-the-fixes": small_promise,
    "verdict-advises-nothing-refused": advises_refused,
    "says-something": say(Claim("graph-breaks/leaves", {"times": 0})),
    "graph-is-not-captured-twice": say(Claim("advise/cuda-graphs"), replayed_share=0.9),
    "advice-is-for-this-device": say(Claim("advise/faster-link", {"maker": "nvidia"}), vendor="amd"),
    "workers-fit-the-cores": say(Claim("advise/loader-workers/first", {"workers": 25})),
    "memory-is-named": say(Claim("copy-exposed/copies", {"memory": "pageable"}), copies_tell_memory=False),
}


def test_a_sound_document_passes_unchanged() -> None:
    assert checked(sound(), JOB) == sound()


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_that_contradicts_a_figure_is_withdrawn(name: str) -> None:
    document = sound()
    assert document.wall.cause == "launch-bound"
    job = VERDICTS[name](document) or JOB
    after = checked(document, job)
    assert name in after.quality.checks_failed
    assert after.wall.cause is None and after.wall.between == []
    assert after.prescriptions == []
    assert any(note.id == "check/no-wall" for note in after.remarks)
    assert after.wall.why_not == "contradiction" and spoken(after.wall.claim)


def fix(name: str = "torch-compile", low: float | None = None, **said: Any) -> Prescription:
    return Prescription([name], ["allocator"], Range(low=low), Range(), "safe", "do it", **said)


FIXES: dict[str, tuple[Prescription, Circumstances]] = {
    "step-is-shorter-but-not-beyond-the-spec": (fix(low=0.001), replace(JOB, least_ms=1.0)),
    "says-something": (fix(claim=Claim("fix", {"times": 0})), JOB),
    "graph-is-not-captured-twice": (fix("cuda-graphs"), replace(JOB, replayed_share=0.9)),
    "advice-is-for-this-device": (fix("cudnn-benchmark"), replace(JOB, device_kind="cpu")),
    "workers-fit-the-cores": (fix("loader-workers", parameters={"workers": 25}), JOB),
    "memory-is-named": (fix(claim=Claim("pin-memory/pin")), replace(JOB, copies_tell_memory=False)),
}


@pytest.mark.parametrize("name", FIXES)
def test_a_fix_that_contradicts_a_figure_is_dropped(name: str) -> None:
    document = sound()
    wrong, job = FIXES[name]
    document.prescriptions = [wrong]
    document.wall.claim, document.wall.advises = None, []
    after = checked(document, job)
    assert after.quality.checks_failed == {name: 1}
    assert after.prescriptions == []
    assert after.wall.cause == document.wall.cause
    assert spoken(after.remarks[-1]).startswith(f"{wrong.fixes[0]}: not shown")


REFUSALS: dict[str, tuple[NotWorthIt, Circumstances]] = {
    "refused-is-not-advised": (NotWorthIt(["torch-compile"], 1.0, "no use"), JOB),
    "clocks-were-sampled": (
        NotWorthIt(["raise-clocks"], 1.0, "the clocks are fine"),
        replace(JOB, clocks_sampled=False),
    ),
    "says-something": (NotWorthIt(["sdpa"], 1.0, "", claim=Claim("sdpa/called", {"times": 0})), JOB),
    "memory-is-named": (
        NotWorthIt(["pin-memory"], 1.0, "", claim=Claim("pin-memory/already")),
        replace(JOB, copies_tell_memory=False),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_that_contradicts_is_dropped(name: str) -> None:
    document = sound()
    wrong, job = REFUSALS[name]
    document.prescriptions, document.not_worth_it = [fix()], [wrong]
    after = checked(document, job)
    assert after.quality.checks_failed == {name: 1}
    assert after.not_worth_it == []
    assert len(after.prescriptions) == 1


def half_a_budget(document: Diagnosis) -> None:
    document.budget.pop(0)


def gives_back_more(document: Diagnosis) -> None:
    document.budget[0].recoverable_ms = 2 * document.budget[0].ms


def negative_phase(document: Diagnosis) -> None:
    document.phases.append(Phase("other", -1.0))


def more_than_all(document: Diagnosis) -> None:
    document.timeline.idle_share = 1.2


def backward_step(document: Diagnosis) -> None:
    document.step.low_ms = -1.0


def row_beyond_its_bounds(document: Diagnosis) -> None:
    document.budget[0].high_ms = 0.5 * document.budget[0].ms


FIGURES: dict[str, Callable[[Diagnosis], None]] = {
    "budget-sums-to-the-step": half_a_budget,
    "no-cause-gives-back-more-than-it-takes": gives_back_more,
    "no-phase-is-negative": negative_phase,
    "shares-are-shares": more_than_all,
    "step-is-a-time": backward_step,
    "budget-bounds-hold-their-rows": row_beyond_its_bounds,
}


def long_phase(document: Diagnosis) -> None:
    document.phases.append(Phase("other", 0.2 * (document.step.ms or 0.0)))


def too_many_kinds(document: Diagnosis) -> None:
    document.kinds = [KindRow("usual", 1.0, 5.0, None), KindRow("seldom", 0.1, 9.0, None)]


def more_than_the_jobs_time(document: Diagnosis) -> None:
    document.elapsed = {"steps": 0.9, "start-up": 0.3}


def busier_than_its_span(document: Diagnosis) -> None:
    document.timeline.busy_ms = 2 * (document.timeline.span_ms or 0.0)


def negative_memory(document: Diagnosis) -> None:
    document.memory.peak_gib = -1.0


BESIDE: dict[str, Callable[[Diagnosis], None]] = {
    "phases-fit-the-step": long_phase,
    "kinds-share-the-steps": too_many_kinds,
    "elapsed-is-shared": more_than_the_jobs_time,
    "devices-times-are-times": busier_than_its_span,
    "job-figures-can-be": negative_memory,
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_figure_beside_the_verdict_goes_alone(name: str) -> None:
    document = sound()
    BESIDE[name](document)
    after = checked(document, JOB)
    assert after.quality.checks_failed == {name: 1}
    assert after.wall.cause == "launch-bound"
    assert contradictions(json.loads(to_json(after)), Known(cores=16)) == []


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_that_cannot_be_goes_and_the_verdict_with_it(name: str) -> None:
    document = sound()
    FIGURES[name](document)
    after = checked(document, JOB)
    assert name in after.quality.checks_failed
    assert after.wall.cause is None
    assert contradictions(json.loads(to_json(after)), Known(cores=16)) == []


def test_no_check_is_without_its_wrong_document() -> None:
    names = {
        one.__name__.replace("_", "-")
        for table in (
            *(figure_checks.FIGURES, figure_checks.BESIDE),
            *(checks.VERDICT, checks.FIX, checks.REFUSAL),
        )
        for one in table
    }
    assert names == {*VERDICTS, *FIXES, *REFUSALS, *FIGURES, *BESIDE}


NUMBERS = st.one_of(st.floats(-2.0, 3.0), st.sampled_from([0.0, 1.0, 1e-6, 1e6]))


def told(action: str, saves_ms: float) -> Claim:
    fact = Claim("graph-breaks/leaves", {"spent_ms": 1.0, "step_ms": 2.0, "spent_share": 0.5, "times": 1.0})
    gain = Claim("gain/saves", {"saves_ms": saves_ms, "behind": False})
    return Claim("verdict/told", parts=[fact, Claim(action), gain])


CLAIMS = st.sampled_from(
    [
        told("advise/cuda-graphs", 1.0),
        Claim("graph-breaks/leaves", {"spent_ms": 0.0, "step_ms": 1.0, "spent_share": 0.0, "times": 1.0}),
        Claim("advise/loader-workers/first", {"workers": 64}),
        Claim(
            "copy-exposed/copies", {"spent_ms": 1.0, "step_ms": 2.0, "spent_share": 0.5, "memory": "pageable"}
        ),
        Claim("advise/faster-link", {"maker": "nvidia"}),
        Claim("advise/faster-link", {"maker": "amd"}),
        told("advise/remove-sync", 9e5),
    ]
)
CAUSES = st.sampled_from(
    ["launch-bound", "memory-roof", "at-the-roof", "host-sync", "unknown", "slow-kernels"]
)


def numbers(value: Any) -> list[tuple[Any, Any]]:
    """Where a document holds a figure that may be wrong: (container, key)."""
    if isinstance(value, list):
        return [found for one in value for found in numbers(one)]
    if not isinstance(value, dict):
        return []
    found = [(value, key) for key, inner in value.items() if type(inner) is float]
    return found + [place for inner in value.values() for place in numbers(inner)]


FIELDS = (
    "budget",
    "phases",
    "prescriptions",
    "not_worth_it",
    "timeline",
    "quality",
    "questions",
    "mfu",
    "step",
)
NAMES = ("eager_training", "compiled_training", "cuda_graph_replay", "inference")


@drawn(500)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_whatever_is_wrong_nothing_contradictory_is_left(data: st.DataObject, name: str) -> None:
    raw = json.loads(to_json(sound(name)))
    places = [place for field in FIELDS for place in numbers(raw[field])]
    for _ in range(data.draw(st.integers(0, 3))):
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        container[key] = container[key] * data.draw(NUMBERS)
    for one in raw["budget"]:
        one["evidence"] = []  # it quotes what the real job had
    if data.draw(st.booleans()):
        raw["budget"][data.draw(st.integers(0, len(raw["budget"]) - 1))]["cause"] = data.draw(CAUSES)
    document = msgspec.convert(raw, Diagnosis)
    if data.draw(st.booleans()):
        claim = data.draw(CLAIMS)
        document.wall = replace(
            document.wall, sentence="", claim=claim, saves_ms=promised_ms(claim), advises=advises(claim)
        )
    for one in document.prescriptions:
        one.claim = data.draw(st.one_of(st.none(), CLAIMS))
        one.how = "" if one.claim else one.how
    vendor = data.draw(st.sampled_from(["nvidia", "amd"]))
    job = Circumstances(
        vendor=vendor,
        cores=16,
        replayed_share=0.9 if data.draw(st.booleans()) else 0.0,
        copies_tell_memory=data.draw(st.booleans()),
    )
    after = worded(checked(document, job))
    known = Known(vendor, 16, job.replayed_share > 0.5, job.copies_tell_memory)
    assert contradictions(json.loads(to_json(after)), known) == []
