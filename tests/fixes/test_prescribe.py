"""Prescriptions: only what moves this wall, bounded by what it could give back; and why the rest cannot."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from causes.test_graph_breaks import fires as broken
from findwall.causes.verdict import Verdict, decide
from findwall.examine.traced_document import diagnose_device
from findwall.facts.facts import Facts
from findwall.fixes import CannotTell, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.candidates import ALIKE, SAFETIES, Candidate
from findwall.fixes.ordering import ranked
from findwall.fixes.predict import predict
from findwall.fixes.prescribe import MOST_REFUSED, ROUNDING_MS, prescribe
from findwall.fixes.same_end import pairs
from findwall.fixes.stacked import is_another_way
from findwall.model.catalogue import ROOFS
from findwall.model.claims import Claim, Range
from findwall.model.diagnosis import Diagnosis, NotWorthIt, Prescription
from findwall.model.events import Kind
from findwall.model.measured_run import StepTimes
from findwall.readers import read_trace
from findwall.report.words.documents import worded
from findwall.step.timed_steps import timed_causes
from findwall.units import ms
from fixes.drawn import in_doubles, on_cores_without_floor
from fixes.recorded import JOBS, TRUTH, as_collectives, job, on_another_gpu, with_cause
from sketch import facts_of, sketch
from speaking import in_words

FIXES = all_fixes()
# The changes that were measured on the recorded jobs, by the fix that stands for them here.
MEASURED = {
    "accelerate_fp32": {"tf32": "tf32"},
    "bias_attention": {"sdpa": "sdpa"},
    "changing_lengths": {"dynamic": "static-shapes"},
    "checkpointed_blocks": {"no_checkpoint": "less-recompute"},
    "collect_garbage": {"no_collect": "freeze-gc"},
    "conv_fp32": {"tf32": "tf32", "bf16": "bf16-autocast"},
    "empty_cache": {"keep_cache": "keep-cache"},
    "graph_messages": {"sorted_edges": "sorted-index"},
    "handwritten_gelu": {"builtin": "builtin-ops"},
    "json_logging": {"no_logging": "move-io-off-step"},
    "layout_flips": {"stay_channels_last": "channels-last"},
    "odd_widths": {"pad": "pad-shapes"},
    "own_profiler": {"builtin": "builtin-ops"},
    "pageable_batches": {"pinned": "pin-memory", "resident": "prefetch-batches"},
    "plain_adamw": {"fused": "fused-optimizer"},
    "slow_loader": {"workers12": "loader-workers"},
    "upcast_tower": {"stay_bf16": "fewer-casts"},
}
BEATEN = 1.03  # times the measured step: a best above that would be beaten
TRIED = sorted((name for name, fix in FIXES.items() if fix.tried), key=lambda name: FIXES[name].tried)


def answer(facts: Facts) -> tuple[Verdict, dict[str, Prescription], dict[str, NotWorthIt]]:
    verdict = decide(facts)
    given, refused = prescribe(facts, verdict.cause)
    single = {one.fixes[0]: one for one in given if len(one.fixes) == 1}
    return verdict, single, {one.fixes[0]: one for one in refused}


@pytest.mark.parametrize("name", JOBS)
def test_every_fix_of_a_stack_shortens_it(name: str) -> None:
    """Nobody is told to make a fix that does nothing beside the others."""
    facts = job(name)
    stacks = [one for one in prescribe(facts, decide(facts).cause)[0] if len(one.fixes) > 1]
    outcomes = {fix: FIXES[fix].advise(facts) for stack in stacks for fix in stack.fixes}
    for stack in stacks:
        for fix in stack.fixes:
            rest = {other: outcomes[other] for other in stack.fixes if other != fix}
            fewer = predict(facts, {other: use for other, use in rest.items() if isinstance(use, Use)})
            assert fewer is not None and stack.step_ms.mid is not None
            assert ms(fewer.mid) > stack.step_ms.mid, (stack.fixes, fix)


def test_what_holds_the_step_from_close_behind_is_the_wall() -> None:
    """The loader's workers are no faster than the step: they are waited for while the device works, and 1
    of the 4 ms that it then waits is theirs. But with them shorter products would shorten nothing."""
    loader = (Kind.ANNOTATION, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    cpu, gpu, step = "o" + "d" * 36 + "...", "t" * 36 + "    ", "|" + " " * 39
    facts = facts_of(sketch(steps=step * 4, cpu=cpu * 4, gpu=gpu * 4, host={"d": loader}))
    cause = decide(facts).cause
    first = prescribe(facts, cause)[0][0]
    assert cause == "loader-starved" and first.fixes == ["loader-workers"]
    assert first.step_ms.low == pytest.approx(36, abs=0.1)


def test_workers_that_keep_up_are_not_mended(shared: Path) -> None:
    """Taking a batch takes 1 % of the step, which says nothing of how fast workers make one."""
    facts = facts_of(read_trace(shared / "traces" / "v100_resnet50_workers4.json.gz"))
    _, given, refused = answer(facts)
    assert "loader-workers" not in given and "the device waits only" in in_words(refused["loader-workers"])


def test_a_fix_that_gives_nothing_is_not_prescribed_and_said_so() -> None:
    _, given, refused = answer(job("graph_messages"))
    assert "sorted-index" not in given
    assert in_words(refused["sorted-index"]).startswith("worth a trial only, next to no gain: a step of ")


@pytest.mark.parametrize("name", JOBS)
def test_no_fix_is_prescribed_that_leaves_the_step_as_it_is(name: str) -> None:
    facts = job(name)
    for one in answer(facts)[1].values():
        assert one.step_ms.low is None or one.step_ms.low <= 0.991 * ms(facts.step), one.fixes


@pytest.mark.parametrize("name", JOBS)
def test_prescriptions_keep_their_promises(name: str) -> None:
    facts = job(name)
    verdict, given, refused = answer(facts)
    assert verdict.cause is not None
    assert given
    assert verdict.cause in next(iter(given.values())).moves
    for one in given.values():
        ends = (one.step_ms.low, one.step_ms.mid, one.step_ms.high)
        assert None in ends[1:] or list(ends) == sorted(ends)
        assert (one.step_ms.mid is None) == (one.step_ms.high is None)
        assert one.step_ms.mid is None or one.step_ms.mid < ms(facts.step)
        if one.step_ms.low is not None:
            assert 0 <= one.step_ms.low < ms(facts.step)
            assert one.speedup.high is None or math.isclose(
                one.speedup.high, ms(facts.step) / one.step_ms.low
            )
        assert len(in_words(one)) <= 260, "more than the terminal shows"
    assert not set(given) & set(refused)
    assert len(refused) <= MOST_REFUSED
    assert all(len(in_words(one)) <= 130 for one in refused.values())
    assert all(one.at_most_speedup is None or one.at_most_speedup >= 1.0 for one in refused.values())
    rest = [fix for fix, one in refused.items() if "worth a trial only" not in in_words(one)]
    assert rest == sorted(rest, key=TRIED.index)


@pytest.mark.parametrize(
    ("name", "change"), [(name, one) for name, found in MEASURED.items() for one in found]
)
def test_no_measured_fix_beats_the_replayed_best(name: str, change: str) -> None:
    facts = job(name)
    fix = FIXES[MEASURED[name][change]]
    outcome = fix.advise(facts)
    assert isinstance(outcome, Use)
    assert ms(step_at_best(fix, outcome, facts)) <= BEATEN * TRUTH[name]["fixes"][change]["step_ms"]


def test_the_verdicts_fix_is_named_first() -> None:
    first = {name: next(iter(answer(job(name))[1])) for name in JOBS}
    assert first["odd_widths"] in ("pad-shapes", "torch-compile")  # which pads too
    assert first["bias_attention"] == "sdpa"
    assert first["plain_adamw"] == "fused-optimizer"
    assert first["slow_loader"] == "loader-workers"
    assert first["empty_cache"] == "keep-cache"
    assert first["checkpointed_blocks"] == "less-recompute"
    assert first["changing_lengths"] == "static-shapes"


def test_what_is_collected_behind_a_compiler_goes_with_it() -> None:
    compiled = job("changing_lengths")
    step = ms(compiled.step) / 1e3
    timed = StepTimes((step,) * 8, "measured", gc_s=0.05 * step)
    collected = facts_of(compiled.timeline, step_times=timed)
    assert collected.spent_ms("gc-pause") > 0
    _, given, _ = answer(collected)
    low = given["static-shapes"].step_ms.low
    assert low is not None and low <= BEATEN * TRUTH["changing_lengths"]["fixes"]["dynamic"]["step_ms"]


def test_pageable_copies_are_pinned_or_prefetched_before_all_else() -> None:
    _, given, _ = answer(job("pageable_batches"))
    assert list(given)[:2] == ["pin-memory", "prefetch-batches"]  # what is not pinned cannot be prefetched
    # Pinned, the bytes still pass over the link; prefetched or kept on the device, nobody waits for them.
    pinned, prefetched = given["pin-memory"].step_ms.low, given["prefetch-batches"].step_ms.low
    assert pinned is not None and prefetched is not None and pinned > prefetched
    assert pinned <= TRUTH["pageable_batches"]["fixes"]["pinned"]["step_ms"]


def test_popular_fixes_left_out_say_why() -> None:
    _, given, refused = answer(job("odd_widths"))
    assert "loader-workers" not in given
    assert in_words(refused["loader-workers"]) == "the device waits only 0.0 ms per step for the loader"
    assert refused["loader-workers"].at_most_speedup == 1.0
    assert in_words(refused["bf16-autocast"]) == "the matmuls already run in bf16"


def test_a_faster_model_does_not_help_a_starved_one() -> None:
    _, given, refused = answer(job("slow_loader"))
    assert "torch-compile" not in given
    assert refused["torch-compile"].at_most_speedup is not None
    assert refused["torch-compile"].at_most_speedup < 1.05
    assert "saves nothing while another wall stands" in in_words(refused["torch-compile"])


def test_launch_bound_inference_prefers_graphs() -> None:
    verdict, given, _ = answer(job("inference"))
    assert verdict.cause == "launch-bound"
    order = list(given)
    assert order[0] == "cuda-graphs"
    assert order[1] == "reduce-overhead"


@pytest.mark.parametrize("cause", ["launch-bound", "slow-kernels", "unfused-pointwise"])
@pytest.mark.parametrize("name", ["inference", "plain_adamw", "handwritten_gelu", "compiled_training"])
def test_no_two_fixes_of_one_list_read_alike(name: str, cause: str) -> None:
    given, _ = prescribe(with_cause(job(name), cause), cause)
    given = [one for one in given if len(one.fixes) == 1]
    assert sum("torch.compile(model)" in in_words(one) for one in given) <= 1
    openings = [in_words(one).partition(":")[0] for one in given]
    assert len(set(openings)) == len(openings)


def test_without_a_verdict_nothing_is_prescribed() -> None:
    given, refused = prescribe(job("odd_widths"), None)
    assert given == []
    assert refused
    assert all(one.at_most_speedup in (None, 1.0) for one in refused)


def seen(facts: Facts) -> Diagnosis:
    found = worded(diagnose_device(facts.run, [facts]))
    assert found.wall.cause is None  # so much of the step may hold a larger wall
    return found


def test_a_wait_that_was_timed_is_worth_a_trial_whatever_the_wall_is() -> None:
    found = seen(on_cores_without_floor())
    (one,) = found.prescriptions
    assert one.fixes == ["loader-workers"] and "num_workers=2" in in_words(one)
    assert "3.00 ms per step for the one worker there is" in in_words(one)
    assert one.step_ms.mid is None and one.basis is None
    assert one.step_ms.low == pytest.approx(9.0, rel=0.01)
    assert found.wall.sentence.endswith(
        "Whatever the wall is, the job waits 3.00 ms per step for the loader: `findwall try` shows whether "
        "`loader-workers` helps."
    )
    assert not found.road and not found.quality.checks_failed


def test_several_such_waits_bring_a_fix_each_and_none_together() -> None:
    crowded = on_cores_without_floor(in_line_share=0.2)
    assert [one.fixes for one in seen(crowded).prescriptions] == [["loader-workers"], ["omp-threads"]]
    collecting = seen(on_cores_without_floor(loader_s=0.0, gc_s=0.002))
    assert [one.fixes for one in collecting.prescriptions] == [["freeze-gc"]]
    assert "2.00 ms per step for the garbage collector" in collecting.wall.sentence


@pytest.mark.parametrize("loader_s", [0.0, 0.0005, None], ids=["no wait", "a trifle", "not timed"])
def test_what_is_no_wait_or_was_only_traced_is_not_tried(loader_s: float | None) -> None:
    found = seen(on_cores_without_floor(loader_s=loader_s))
    assert found.prescriptions == [] and "findwall try" not in found.wall.sentence


def test_a_job_that_was_measured_too_early_has_nothing_to_try() -> None:
    facts = on_cores_without_floor()
    later = replace(facts.rank.step_times, later_s=0.002)
    facts = replace(facts, rank=replace(facts.rank, step_times=later))
    assert timed_causes(facts.rank) == ("loader-starved",) and seen(facts).wall.too_early
    assert seen(facts).prescriptions == []


@pytest.mark.parametrize("cause", [None, "unfused-pointwise"])
def test_what_nobody_knows_is_neither_prescribed_nor_refused(cause: str | None) -> None:
    facts = on_another_gpu(job("conv_fp32"), "A GPU nobody knows")
    assert all(isinstance(FIXES[fix].advise(facts), CannotTell) for fix in ("tf32", "bf16-autocast"))
    given, refused = prescribe(facts, cause)
    named = {one.fixes[0] for one in [*given, *refused]}
    assert refused and not named & {"tf32", "bf16-autocast"}
    assert not any(isinstance(FIXES[name].advise(facts), CannotTell) for name in named)


def test_at_the_roof_no_gain_is_promised() -> None:
    verdict, given, _ = answer(job("decode_graph"))
    assert verdict.cause == "memory-roof"
    assert {"int8-weights", "smaller-model", "better-hardware"} <= set(given)
    assert all(one.step_ms.low is None and one.speedup.high is None for one in given.values())


def test_fp8_is_not_offered_where_there_is_none() -> None:
    drawing = sketch(
        steps="|       |       |       ", cpu="oo      oo      oo      ", gpu=" mmmMMM  mmmMMM  mmmMMM "
    )
    hopper, _ = prescribe(facts_of(drawing), "at-the-roof")
    assert any(one.fixes == ["fp8"] for one in hopper)
    volta = sketch(
        steps="|       |       |       ",
        cpu="oo      oo      oo      ",
        gpu=" mmmMMM  mmmMMM  mmmMMM ",
        device="Tesla V100-SXM2-16GB",
    )
    older, _ = prescribe(facts_of(volta), "at-the-roof")
    assert not any(one.fixes in (["fp8"], ["lower-precision"]) for one in older)


def test_fp64_at_its_roof_is_sent_to_fp32_and_tf32_not_to_fp8() -> None:
    facts = in_doubles()
    verdict, _, refused = answer(facts)
    assert verdict.cause == "at-the-roof"
    fix = all_fixes()["lower-precision"]
    how = in_words(fix.advise(facts))
    assert "`.float()`" in how and "in tf32" in how and "fp8" not in how
    assert "16 digits are not needed" in how and fix.safety == "changes-numerics"
    assert "leaves fp64 matmuls as they are" in in_words(refused["bf16-autocast"])


@pytest.mark.parametrize(
    "cause", ["throttled", "straggler", "pipeline-bubble", "gc-pause", "unfused-attention"]
)
def test_a_cause_brings_its_own_fixes(cause: str) -> None:
    given, _ = prescribe(with_cause(job("plain_adamw"), cause), cause)
    assert given
    assert all(cause in one.moves for one in given)


@pytest.mark.parametrize("cause", ["exposed-collective", "small-collectives", "slow-link"])
def test_communication_brings_its_own_fixes(cause: str) -> None:
    talking = replace(as_collectives(job("plain_adamw")), atoms=with_cause(job("plain_adamw"), cause).atoms)
    given, _ = prescribe(talking, cause)
    assert given
    assert all(cause in one.moves for one in given)


def test_graph_breaks_are_mended_where_there_is_a_graph() -> None:
    given, _ = prescribe(broken(), "graph-breaks")
    assert [one.fixes for one in given if "graph-breaks" in one.moves] == [["fewer-graph-breaks"]]


def test_the_order_of_the_answer_does_not_change() -> None:
    facts = job("layout_flips")
    assert answer(facts) == answer(facts)


def test_dims_and_syncs_are_named(shared: Path) -> None:
    facts = facts_of(read_trace(shared / "zoo" / "gpt2_item_every_param.json.gz"), step_ms=84.652)
    _, given, _ = answer(facts)
    assert "50257 → 50304 (next multiple of 64)" in in_words(given["pad-shapes"])
    assert "aten::item (150 times per step)" in in_words(given["remove-sync"])


# -- predictions ---------------------------------------------------------------------------------


def together(facts: Facts) -> list[Prescription]:
    given, _ = prescribe(facts, decide(facts).cause)
    return [one for one in given if len(one.fixes) > 1]


@pytest.mark.parametrize("name", [*JOBS, "inference", "eager_training"])
def test_stacks_shorten_the_step_further_with_each_of_their_fixes(name: str) -> None:
    facts = job(name)
    _, given, _ = answer(facts)
    stacks = together(facts)
    steps = {(fix,): one.step_ms.mid for fix, one in given.items()}
    steps |= {tuple(one.fixes): one.step_ms.mid for one in stacks}
    for one in stacks:
        assert not any(pair <= set(one.fixes) for pair in pairs()), one.fixes
        assert set(one.fixes) <= set(given)
        assert one.step_ms.mid is not None
        assert one.safety == max((FIXES[fix].safety for fix in one.fixes), key=SAFETIES.index)
        for fewer, step in steps.items():
            assert step is None or not set(fewer) < set(one.fixes) or one.step_ms.mid < step, one.fixes
    # The second may be another way to the first: no longer by the replay, and no better by what is known.
    ways = len(stacks) > 1 and is_another_way(*stacks[:2])
    mids = [one.step_ms.mid or 0.0 for one in stacks]
    ranked = [mids[0], *mids[2:]] if ways else mids
    assert ranked == sorted(ranked) and (not ways or mids[0] / ALIKE <= mids[1] <= mids[0])


def test_the_best_stack_comes_with_another_way_that_is_as_good() -> None:
    """The compiled step of checkpointed blocks waits for its device: graphs change next to nothing, by what
    is known, so both ways are worth a trial, the plainer one named first."""
    first, second = (set(one.fixes) for one in together(job("checkpointed_blocks"))[:2])
    assert first ^ second == {"torch-compile", "reduce-overhead"} and "torch-compile" in first


def test_what_a_compiler_does_anyway_is_not_stacked_on_it() -> None:
    """It makes images channels-last itself."""
    assert not any(
        {"torch-compile", "channels-last"} <= set(one.fixes) for one in together(job("layout_flips"))
    )


@pytest.mark.parametrize("pair", sorted(pairs(), key=sorted), ids=lambda pair: " and ".join(sorted(pair)))
def test_two_ways_to_the_same_end_are_of_fixes_there_are(pair: set[str]) -> None:
    assert len(pair) == 2 and pair <= set(FIXES)


def test_both_ways_to_fewer_launches_are_shown_and_never_stacked() -> None:
    _, given, _ = answer(job("inference"))
    assert {"cuda-graphs", "reduce-overhead"} <= set(given)
    assert not any({"cuda-graphs", "reduce-overhead"} <= set(one.fixes) for one in together(job("inference")))


@pytest.mark.parametrize("name", [*JOBS, "inference", "eager_training"])
def test_what_is_predicted_to_be_slower_is_worth_a_trial_only(name: str) -> None:
    facts = job(name)
    _, given, refused = answer(facts)
    for fix, outcome in ((fix, one.advise(facts)) for fix, one in FIXES.items()):
        found = predict(facts, {fix: outcome}) if isinstance(outcome, Use) else None
        if found is not None and found.mid > 0.99 * facts.step:
            assert fix not in given
        if found is not None and found.mid > 0.9 * facts.step and found.high > 1.05 * facts.step:
            assert fix not in given
    trials = [fix for fix, one in refused.items() if "worth a trial only" in in_words(one)]
    assert list(refused)[: len(trials)] == trials, "said first"
    for fix in trials:
        assert in_words(refused[fix]).endswith("today") and "is predicted" in in_words(refused[fix])


def test_of_a_doubtful_fix_the_predicted_step_is_told() -> None:
    _, given, refused = answer(job("graph_messages"))
    assert "sorted-index" not in given
    assert in_words(refused["sorted-index"]).startswith(
        "worth a trial only, next to no gain: a step of 54.7 ms (52."
    )
    _, given, refused = answer(job("conv_fp32"))
    assert "channels-last" not in given and "worth a trial only" in in_words(refused["channels-last"])


@pytest.mark.parametrize("name", [*JOBS, "inference", "eager_training"])
def test_the_shortest_step_that_is_sure_comes_first(name: str) -> None:
    """By the upper end of its interval, of what can be done as it stands; what needs something else first
    and, but at a roof, what does more in a step come behind."""
    facts = job(name)
    verdict, given, _ = answer(facts)
    said = {fix: one for fix in given if isinstance(one := FIXES[fix].advise(facts), Use)}
    later = [one.after_others or not one.shorter_step for one in said.values()]
    assert later == sorted(later) or verdict.cause in ROOFS
    rivals = {fix for pair in pairs() for fix in pair if pair <= given.keys()}
    highs = [
        one.step_ms.high
        for fix, one in given.items()
        if one.step_ms.high is not None and not said[fix].after_others and fix not in rivals
    ]
    assert all(first <= ALIKE * second for first, second in pairwise(highs))


def test_a_bound_promises_nothing() -> None:
    """A fix of the wall that has only a bound goes before what can hardly be as short, and one that could be
    said of any slow kernel, or that may not be possible, goes before nothing."""

    def one(name: str, low: float, high: float | None = None, condition: str = "") -> tuple[Candidate, str]:
        predicted = Range(low, low, high) if high is not None else None
        use = Use(Claim("x"), condition=condition)
        return Candidate(name, FIXES[name], use, ("launch-bound",), 0.0, predicted, None, low), "launch-bound"

    near, far = one("fused-optimizer", 4.0, 5.0), one("sdpa", 7.0, 8.0)
    bounded, of_anything = one("loop-on-device", 6.0), one("custom-kernels", 1.0)
    perhaps = one("batch-small-ops", 1.0, condition="calls-independent")
    found = ranked([of_anything, perhaps, bounded, far, near], "launch-bound")
    names = [one.name for one, _ in found]
    assert names == ["fused-optimizer", "loop-on-device", "sdpa", "custom-kernels", "batch-small-ops"]


def test_on_cores_what_was_found_in_the_job_goes_before_what_is_said_of_any_slow_one() -> None:
    """A compiler has no more than its bound there."""

    def one(
        name: str, low: float, basis: str | None = None, moved: str = "slow-kernels"
    ) -> tuple[Candidate, str]:
        predicted = Range(low, low, low + 1.0) if basis is not None else None
        use = Use(Claim("x"), condition="x")
        return Candidate(name, FIXES[name], use, (moved,), 0.0, predicted, basis, low, False, True), moved

    compiler, tuned, slow = (
        one("torch-compile", 2.0),
        one("autotune-kernels", 1.0),
        one("custom-kernels", 0.5),
    )
    order, lookup = one("product-order", 4.0), one("lookup-not-onehot", 3.0)
    other = one("smooth-fft", 1.0, moved="layout-copies")
    known = one("freeze-gc", 6.0, "replay", "gc-pause")
    found = ranked([slow, compiler, tuned, other, order, known, lookup], "slow-kernels")
    names = [one.name for one, _ in found]
    assert names[:2] == ["lookup-not-onehot", "product-order"]
    assert names.index("torch-compile") < names.index("custom-kernels")
    kept = one("keep-freed-memory", 5.0, "replay")  # of anything, though it has a figure
    assert [one.name for one, _ in ranked([kept, lookup], "slow-kernels")] == [
        "lookup-not-onehot",
        "keep-freed-memory",
    ]


def test_what_is_no_better_than_a_plainer_way_stands_behind() -> None:
    def one(name: str, high: float) -> tuple[Candidate, str]:
        predicted = Range(high, high, high)
        return Candidate(name, FIXES[name], Use(Claim("x")), ("at-the-roof",), 0.0, predicted), "at-the-roof"

    alike = ranked([one("bf16-autocast", 5.0), one("tf32", 5.1), one("sdpa", 8.0)], "at-the-roof")
    assert [one.name for one, _ in alike] == ["tf32", "sdpa", "bf16-autocast"]
    better = ranked([one("bf16-autocast", 4.0), one("tf32", 5.1), one("sdpa", 8.0)], "at-the-roof")
    assert [one.name for one, _ in better] == ["bf16-autocast", "tf32", "sdpa"]


def test_of_what_is_alike_a_compiler_and_what_cannot_be_made_yet_stand_behind() -> None:
    def one(name: str, high: float, later: bool = False) -> tuple[Candidate, str]:
        predicted, use = Range(high, high, high), Use(Claim("x"), after_others=later)
        return Candidate(name, FIXES[name], use, ("launch-bound",), 0.0, predicted), "launch-bound"

    lists = one("foreach-optimizer", 5.1)
    alike = ranked(
        [one("torch-compile", 5.0), one("fused-optimizer", 4.0, later=True), lists], "launch-bound"
    )
    assert [one.name for one, _ in alike] == ["foreach-optimizer", "torch-compile", "fused-optimizer"]
    better = ranked([one("torch-compile", 4.0), lists], "launch-bound")
    assert [one.name for one, _ in better] == ["torch-compile", "foreach-optimizer"]


@pytest.mark.parametrize("name", JOBS)
def test_a_refusal_is_proven_by_the_replay_that_predictions_use(name: str) -> None:
    """No fix is refused that the replay finds worth it, none claims to save less than the replay shows, and
    none is listed that is predicted to be slower."""
    facts = job(name)
    step = ms(facts.step)
    given, refused = prescribe(facts, decide(facts).cause)
    assert not {one.fixes[0] for one in given if len(one.fixes) == 1} & {one.fixes[0] for one in refused}
    assert all(one.step_ms.mid is None or one.step_ms.mid < step for one in given)
    for one in refused:
        fix = one.fixes[0]
        outcome = FIXES[fix].advise(facts)
        if not isinstance(outcome, Use) or one.claim is None:
            continue
        least = ms(step_at_best(FIXES[fix], outcome, facts))
        assert one.at_most_speedup == pytest.approx(step / least)
        mid = one.claim.figures.get("mid_ms")
        assert step - least <= 0.05 * step or (isinstance(mid, float) and mid > 0.9 * step)
        assert one.claim.figures.get("saves_ms", step - least) == pytest.approx(step - least, abs=1e-6)
        if one.claim.id == "refused/another-wall":
            assert ms(facts.saved((str(one.claim.figures["cause"]),))) < ROUNDING_MS
