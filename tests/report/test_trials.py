"""What `try` prints: the number first, one row for each attempt, and what to do to keep it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from captures import FIXTURES
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, Prescription, Wall
from findwall.model.patch import Patch
from findwall.report.texts.trials import WIDTH, to_text, why_nothing, with_trials
from findwall.trial.equivalence import Losses
from findwall.trial.judge import MORE_TIME, Attempt, too_few
from findwall.trial.screened import Screened
from findwall.trial.stacks_tried import EARLY, TOO_SHORT, Candidate, Found, Stage, View
from findwall.trial.statistics import Comparison


@pytest.fixture
def diagnosis() -> Diagnosis:
    return msgspec.json.decode((FIXTURES / "documents" / "full.json").read_bytes(), type=Diagnosis)


def found(*attempts: Attempt, stack: tuple[str, ...] = ()) -> Found:
    total = next((one for one in attempts if one.fixes == stack), None)
    view = View("data / loader-starved", 20.0, [])
    return Found([Stage((), view, list(attempts))], stack, total, 0.012, 20.0, "nothing is left to try", 90.0)


def test_what_is_kept_is_told_first_with_its_interval(diagnosis: Diagnosis) -> None:
    faster = Comparison(2.0, 1.9, 2.1, (6, 3))
    losses = Losses("same", 0.004, 0.02, 3, plain=(3.0, 2.0, 1.0), fixed=(3.0, 2.1, 1.0))
    kept = Attempt(("tf32",), "faster", 10.0, faster, losses, why="TF32 is on", starts_s=20.0)
    failed = Attempt(("sdpa",), "failed", why="sdpa did not take effect")
    tried = found(kept, failed, stack=("tf32",))
    text = to_text(with_trials(diagnosis, tried), tried, None, "train.py --lr 1")
    priced = to_text(with_trials(diagnosis, tried), tried, None, "train.py", price=2.5)
    assert "30.00 for each GPU, at 2.5 an hour" in " ".join(priced.split())
    assert text.startswith("2.00 times faster (1.90 to 2.10), 10.0 ms per step instead of 20.0 ms")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "tf32 – 10.0 ms 2.00× (1.90–2.10) faster, kept" in rows and "sdpa – – failed" in rows
    assert "same losses, 0.4 % apart, 2.0 % allowed; its longer start is made up for" in rows
    assert "after 2,000 steps (20 s)" in " ".join(rows)
    assert rows[rows.index("plain █▄▁") + 1] == "with it █▄▁"
    assert "20.0 ms today: data / loader-starved" in rows and "10.0 ms tf32: not looked at again" in rows
    assert "What takes a day takes 12.0 hours less." in rows
    assert "findwall run --apply tf32 train.py --lr 1" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_wall_that_is_not_known_comes_with_its_reason(diagnosis: Diagnosis) -> None:
    kept = Attempt(("tf32",), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    tried = found(kept, stack=kept.fixes)
    why = "Only its own work takes the step's time. Run `findwall ceilings` (under 30 s)."
    after = replace(diagnosis, wall=Wall(None, None, why))
    text = to_text(with_trials(diagnosis, tried), tried, after, "train.py")
    assert f"tf32: its wall is not known\n  {why}\n" in text
    short = replace(tried, ended=EARLY["deadline"])
    text = to_text(with_trials(diagnosis, short), short, None, "train.py")
    assert "tf32: not looked at again, as the budget is spent" in text


def test_the_steps_and_the_ratio_agree_whatever_a_later_trial_measured(diagnosis: Diagnosis) -> None:
    kept = Attempt(("tf32",), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    tried = replace(found(kept, stack=kept.fixes), plain_ms=23.0)
    text = to_text(with_trials(diagnosis, tried), tried, None, "train.py")
    assert "10.0 ms per step instead of 20.0 ms" in text and "20.0 ms  today" in text and "23.0" not in text


def test_a_patch_is_shown_and_what_it_leaves_out_is_told(diagnosis: Diagnosis) -> None:
    kept = Attempt(("tf32", "sdpa", "bf16-autocast"), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    tried = found(kept, stack=kept.fixes)
    left = {"sdpa": "it has no line", "bf16-autocast": "Set `Trainer(precision='bf16-mixed')`."}
    patch = Patch(
        "--- a/job.py\n+++ b/job.py\n@@ -1 +1,2 @@\n+\tx\x1b[31m\n" + "+y\n" * 80, "/", ["tf32"], left
    )
    text = to_text(with_trials(diagnosis, tried), tried, None, "train.py", patch)
    assert "tf32: in the patch below" in text and "bf16-autocast: Set `Trainer(" in text
    assert "\n--- a/job.py\n+++ b/job.py\n@@ -1 +1,2 @@\n+\tx[31m\n" in text
    assert text.endswith("… 24 more lines: --write-patch FILE writes them all\n")


def test_a_verdict_on_top_of_a_stack_is_told_with_its_own_figures(diagnosis: Diagnosis) -> None:
    """Twice as fast as the plain job, and no faster than the stack it stands on."""
    beside, on_top = Comparison(2.0, 1.98, 2.02, (6, 3)), Comparison(1.0, 0.99, 1.01, (3, 3))
    tried = found(Attempt(("a", "b"), "no-difference", 50.0, beside, base="a", on_base=on_top))
    shown = with_trials(diagnosis, tried)
    assert shown.trials[0].base == "a" and shown.trials[0].speedup_over_base.high == 1.01
    text = " ".join(to_text(shown, tried, None, "train.py").split())
    assert "2.00× (1.98–2.02) no-difference 1.00× (0.99–1.01) on top of a;" in text


def test_an_interval_that_leaves_out_1_does_not_read_as_if_it_held_it(diagnosis: Diagnosis) -> None:
    kept = Attempt(("tf32",), "faster", 10.0, Comparison(1.018, 1.0025, 1.034, (6, 3)))
    tried = found(kept, stack=kept.fixes)
    text = to_text(with_trials(diagnosis, tried), tried, None, "train.py")
    assert text.startswith("1.018 times faster (1.002 to 1.034)") and "1.018× (1.002–1.034)" in text


def test_what_is_not_settled_is_called_so(diagnosis: Diagnosis) -> None:
    wide, why = Comparison(5.42, 0.72, 12.58, (4, 2)), "not settled, it may be up to 12.58 times faster"
    tried = found(Attempt(("tf32",), "no-difference", 10.0, wide, why=why))
    text = " ".join(to_text(with_trials(diagnosis, tried), tried, None, "train.py").split())
    assert "tf32 – 10.0 ms 5.4× (0.7–12.6) not settled" in text


def test_losses_that_differ_by_little_are_told_by_how_much(diagnosis: Diagnosis) -> None:
    losses = Losses("differs", 2e-5, 1e-5, 3)
    tried = found(Attempt(("tf32",), "incorrect", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)), losses))
    text = to_text(with_trials(diagnosis, tried), tried, None, "train.py")
    assert "other losses, 2e-05 apart, 1e-05 allowed" in " ".join(text.split())


def test_losses_that_nobody_can_compare_are_told_why(diagnosis: Diagnosis) -> None:
    losses = Losses("not-checked", 0.5, 0.2, 3, why="plain processes differ by too much to tell")
    kept = Attempt(("tf32",), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)), losses)
    tried = found(kept, stack=kept.fixes)
    text = " ".join(to_text(with_trials(diagnosis, tried), tried, None, "train.py").split())
    assert "losses not checked, 50 % apart, 20 % allowed; losses: plain processes differ by too much" in text


def test_a_fix_that_is_not_prescribed_says_why_it_has_no_patch(diagnosis: Diagnosis) -> None:
    kept = Attempt(("freeze-gc", "loader-workers=2"), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    tried = found(kept, stack=kept.fixes)
    why = {"freeze-gc": "the step is in no loop of its function"}
    patch = Patch("+x\n", "/", ["loader-workers=2"], why, {"loader-workers=2": "The order differs."})
    bare = replace(diagnosis, prescriptions=[])
    text = " ".join(to_text(with_trials(bare, tried), tried, None, "train.py", patch).split())
    assert "- freeze-gc: no patch, because the step is in no loop of its function. -" in text
    assert "- loader-workers=2: in the patch below. The order differs. +x" in text


def test_losses_that_differ_are_named_and_not_kept(diagnosis: Diagnosis) -> None:
    wrong = Attempt(("tf32",), "incorrect", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)), Losses("differs"))
    tried = found(wrong)
    shown = with_trials(diagnosis, tried)
    assert not shown.trials[0].kept and shown.trials[0].measured.mid == 10.0
    text = to_text(shown, tried, None, "train.py")
    assert "incorrect" in text and "other losses" in text
    assert text.startswith("Nothing that was tried is proven")


def test_what_there_was_no_time_to_prove_is_told_with_its_step(diagnosis: Diagnosis) -> None:
    once = Attempt(("tf32",), "failed", 5.0, why="1 process of it told a step")
    tried = found(once, Attempt(("sdpa",), "failed", why="sdpa did not take effect"))
    shown = with_trials(diagnosis, tried)
    assert shown.trials[0].measured.mid == 5.0 and shown.trials[1].measured.mid is None
    text = " ".join(to_text(shown, tried, None, "train.py").split())
    assert "tf32 took 5.00 ms per step instead of 20.0 ms in the little there was time for" in text
    text = " ".join(to_text(shown, replace(tried, ended=EARLY["interrupted"]), None, "train.py").split())
    assert "instead of 20.0 ms in what was through when it was interrupted. It stands" in text


def test_what_too_few_processes_told_is_not_settled_not_failed(diagnosis: Diagnosis) -> None:
    once = Attempt(("tf32",), "failed", 5.0, why=too_few([5.0], "it", MORE_TIME))
    shown = with_trials(diagnosis, tried := found(once))
    rows = [" ".join(line.split()) for line in to_text(shown, tried, None, "train.py").splitlines()]
    assert "tf32 – 5.00 ms not settled" in rows and shown.trials[0].verdict == "failed"


def test_a_budget_that_is_too_short_for_anything_says_by_how_much(diagnosis: Diagnosis) -> None:
    untried = [Candidate(("sdpa",), False, Range(mid=7.5))]
    tried = Found(ended=TOO_SHORT, seconds=12.0, untried=untried, short_s=200.0)
    text = " ".join(to_text(replace(diagnosis, trials=[]), tried, None, "train.py").split())
    assert text.startswith("Nothing was tried: what is left of the budget is too short for another trial.")
    assert "to try sdpa (predicted 7.50 ms): give it a longer --budget (about 3.3 min more)." in text
    text = " ".join(
        to_text(replace(diagnosis, trials=[]), replace(tried, short_s=0.2), None, "train.py").split()
    )
    assert "(about 1 s more)" in text


def test_where_nothing_is_kept_the_wall_and_what_to_edit_come_first(diagnosis: Diagnosis) -> None:
    edit = Prescription(
        ["lighter-samples"], ["loader-starved"], Range(low=4.0), Range(), "safe", "Read less."
    )
    tried = found(Attempt(("tf32",), "failed", why="tf32 did not take effect"))
    text = " ".join(to_text(with_trials(diagnosis, tried), tried, None, "train.py", left=[edit]).split())
    first = text.index(" ".join(diagnosis.wall.sentence.split()))
    assert "It stands at" in text and "More may be in an edit: lighter-samples" in text[:first]
    assert text[:first].endswith("The look before the trial said: ")
    assert first < text.index("- lighter-samples, a step of 4.00 ms at best: Read less.")
    assert text.index("Read less.") < text.index("fix predicted measured")


@pytest.mark.parametrize(
    ("step", "named"), [(Range(low=7.9), True), (Range(low=8.1), False), (Range(), False)]
)
def test_an_edit_that_is_worth_more_than_what_is_kept_is_named_at_once(
    diagnosis: Diagnosis, step: Range, named: bool
) -> None:
    edit = Prescription(["lighter-samples"], ["loader-starved"], step, Range(), "safe", "Read less.")
    kept = Attempt(("tf32",), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    tried = found(kept, stack=kept.fixes)
    text = " ".join(to_text(with_trials(diagnosis, tried), tried, None, "train.py", left=[edit]).split())
    assert ("More may be in an edit: lighter-samples, a step of 7.90 ms at best (below)." in text) is named
    assert text.endswith("Read less.") and diagnosis.wall.sentence not in text


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        (0, "The trial took 90 s of this machine; two plain"),
        (1, "The trial took 90 GPU seconds (0.10 at 4 an hour); two plain"),
        (8, "The trial took 90 s on 8 GPUs, 720 GPU seconds (0.80 at 4 an hour); two plain"),
    ],
)
def test_what_the_trial_cost_is_told_in_gpu_seconds(diagnosis: Diagnosis, gpus: int, told: str) -> None:
    machine, tried = replace(diagnosis.machine, count=gpus), found(Attempt(("tf32",), "failed"))
    shown = with_trials(replace(diagnosis, machine=machine), tried)
    assert told in " ".join(to_text(shown, tried, None, "train.py", price=4.0).split())


def test_what_there_was_no_time_for_is_named(diagnosis: Diagnosis) -> None:
    kept = Attempt(("tf32",), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    untried = [Candidate(("reduce-overhead",), False, Range(mid=7.5)), Candidate(("sdpa",), False)]
    tried = replace(found(kept, stack=kept.fixes), ended=EARLY["deadline"], untried=untried)
    text = " ".join(to_text(with_trials(diagnosis, tried), tried, None, "train.py").split())
    assert (
        "no time left to try reduce-overhead (predicted 7.50 ms) or sdpa: give it a longer --budget." in text
    )
    tried = replace(tried, ended=EARLY["interrupted"])
    assert "--budget" not in to_text(with_trials(diagnosis, tried), tried, None, "train.py")


def test_what_ended_before_a_fix_was_through_does_not_blame_the_fixes(diagnosis: Diagnosis) -> None:
    tried = replace(found(), ended="interrupted")
    text = " ".join(to_text(with_trials(diagnosis, tried), tried, None, "train.py").split())
    assert text.startswith("Nothing is known so far: no process with a fix was through yet (interrupted).")
    assert "takes 20.0 ms per step" in text and "without an edit" not in text


def test_without_a_prescription_what_was_missing_is_told(diagnosis: Diagnosis) -> None:
    bare = replace(diagnosis, prescriptions=[], trials=[], notes=["the job ended after 12 steps"])
    tried = Found(ended="nothing is left to try", seconds=7.0)
    text = " ".join(to_text(bare, tried, None, "train.py").split())
    assert "and no fix is prescribed for it; the job ended after 12 steps." in text


def test_without_a_wall_it_says_what_to_do_to_find_one(diagnosis: Diagnosis) -> None:
    blind = replace(diagnosis, wall=replace(diagnosis.wall, wall=None, cause=None, sentence="Run longer."))
    tried = Found(ended="nothing is left to try", seconds=36.0)
    text = to_text(with_trials(blind, tried), tried, None, "train.py")
    assert text.startswith("Nothing was tried, because no wall was found. Run longer.")
    assert "Looking at the job took 36 GPU seconds" in text and "left to try" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_what_a_stand_in_showed_is_no_command(diagnosis: Diagnosis) -> None:
    kept = Attempt(("remove-sync",), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)), why="a stand-in")
    tried = found(kept, stack=kept.fixes)
    text = to_text(with_trials(diagnosis, tried), tried, None, "train.py", stand_ins=("remove-sync",))
    said = " ".join(text.split())
    assert "20.0 ms, with a stand-in for remove-sync. It takes an edit to have it." in said
    assert "remove-sync (stand-in) – 10.0 ms" in said and "--apply" not in said
    assert "No command makes remove-sync: a stand-in showed what it is worth, and only the edit" in said
    assert max(map(len, text.splitlines())) <= WIDTH


def test_the_command_leaves_out_what_a_stand_in_showed(diagnosis: Diagnosis) -> None:
    kept = Attempt(("tf32", "remove-sync"), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    tried = found(kept, stack=kept.fixes)
    text = to_text(with_trials(diagnosis, tried), tried, None, "train.py", stand_ins=("remove-sync",))
    said = " ".join(text.split())
    assert "with tf32 + a stand-in for remove-sync." in said
    assert "findwall run --apply tf32 train.py That command leaves out remove-sync: a stand-in" in said
    assert with_trials(diagnosis, tried).trials[0].fix == "tf32 + remove-sync"


def test_a_longer_start_is_made_up_for_only_by_a_gain_that_is_proven(diagnosis: Diagnosis) -> None:
    none = Attempt(("tf32",), "no-difference", 19.0, Comparison(1.05, 0.9, 1.2, (2, 2)), starts_s=20.0)
    assert with_trials(diagnosis, found(none)).trials[0].break_even_steps is None


def test_where_the_job_stands_may_not_be_known(diagnosis: Diagnosis) -> None:
    """What a person names is tried without a wall."""
    none = Attempt(("tf32",), "no-difference", 19.0, Comparison(1.05, 0.9, 1.2, (2, 2)))
    lost = replace(diagnosis, wall=replace(diagnosis.wall, wall=None, cause=None))
    told = with_trials(lost, found(none))
    text = " ".join(to_text(told, found(none), None, "train.py", only=("tf32",)).split())
    assert "is proven to make the job faster. It stands at no wall that is known." in text


def test_what_a_person_named_and_may_not_be_tried_is_said(diagnosis: Diagnosis) -> None:
    shown = replace(diagnosis, trials=[])
    tried = Found(ended="nothing is left to try")
    text = " ".join(to_text(shown, tried, None, "train.py", only=("tf32", "sdpa")).split())
    assert "sdpa and tf32 may change the numbers, which --no-numerics leaves out." in text
    assert why_nothing(shown) == "no fix that is prescribed for it can be made without an edit"


def test_a_switch_of_the_job_is_told_as_the_command_line_to_use(diagnosis: Diagnosis) -> None:
    stack = ("bf16-autocast by --dtype bfloat16", "tf32 by --tensorcores 1")
    kept = Attempt(stack, "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)), base=stack[0])
    tried = found(kept, stack=stack)
    document = with_trials(diagnosis, tried)
    (row,) = document.trials
    assert (row.fix, row.base, row.kept) == ("bf16-autocast + tf32", "bf16-autocast", True)
    assert row.switches == {"bf16-autocast": "--dtype bfloat16", "tf32": "--tensorcores 1"}
    line = "python train.py --lr 1 --dtype bfloat16 --tensorcores 1 --and-so-on --until-it-is-long"
    text = to_text(document, tried, None, "train.py", plain=line)
    assert f"  To keep bf16-autocast and tf32, use the script's own switches:\n    {line}\n" in text
    assert "--apply" not in text and "To keep it" not in text
    assert "with bf16-autocast by --dtype bfloat16 + tf32 by --tensorcores 1." in " ".join(text.split())


def test_what_no_switch_makes_is_made_beside_them(diagnosis: Diagnosis) -> None:
    kept = Attempt(("tf32 by --tf32", "sdpa"), "faster", 10.0, Comparison(2.0, 1.9, 2.1, (6, 3)))
    tried = found(kept, stack=kept.fixes)
    how = (None, "torchrun -m findwall run")
    text = to_text(
        with_trials(diagnosis, tried), tried, None, "train.py --tf32", *how, plain="torchrun train.py --tf32"
    )
    assert "    torchrun -m findwall run --apply sdpa train.py --tf32\n" in text
    assert "  To keep tf32, use the script's own switch:\n    torchrun train.py --tf32\n" in text
    assert "  To keep the rest:\n  - " in text


def test_what_was_screened_is_told_with_the_smallest_gain_it_could_have_shown(diagnosis: Diagnosis) -> None:
    none = Screened("freeze-gc", "no-gain", Comparison(1.0, 0.98, 1.02, (8, 8)), 0.02, "froze 9 objects")
    gain = Screened("tf32", "gain", Comparison(2.0, 1.9, 2.1, (8, 8)), 0.02, "TF32 is on", base=("sdpa",))
    never = Screened("sdpa", "open", trouble="attention that a job writes out needs an edit")
    seen = found()
    seen.screened = [none, gain, never]
    told = with_trials(diagnosis, seen)
    assert [(one.fix, one.says, one.base) for one in told.screened] == [
        ("freeze-gc", "no-gain", ""),
        ("tf32", "gain", "sdpa"),
        ("sdpa", "open", ""),
    ]
    lines = to_text(told, seen, None, "job.py").splitlines()
    assert "    freeze-gc  1.00× (0.98–1.02); it would have shown a gain of 2.0 %" in lines
    assert "    tf32       2.00× (1.90–2.10) (on top of sdpa)" in lines
    assert "    sdpa       attention that a job writes out needs an edit" in lines
