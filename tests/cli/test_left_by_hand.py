"""Which prescriptions are left to a person once `try` is through."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from captures import FIXTURES
from findwall.cli.jobs.left_by_hand import left_by_hand
from findwall.cli.jobs.trying import Tried
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, Prescription
from findwall.trial.stacks_tried import Found

SAFETIES = {"fp8": "changes-numerics"}


def prescribing(*stacks: str) -> Diagnosis:
    document = (FIXTURES / "documents" / "full.json").read_bytes()
    said = [
        Prescription(one.split("+"), ["launch-bound"], Range(), Range(), SAFETIES.get(one, "safe"), "How.")
        for one in stacks
    ]
    return replace(msgspec.json.decode(document, type=Diagnosis), prescriptions=said)


def left(tried: Tried, numerics: bool = True) -> list[str]:
    return ["+".join(one.fixes) for one in left_by_hand(tried, numerics)]


def test_what_a_trial_can_make_is_not_left_and_the_order_stays() -> None:
    seen = prescribing(
        "torch-compile", "vectorise-loop", "remove-sync", "larger-batch", "vectorise-loop+torch-compile"
    )
    assert left(Tried(Found(), seen)) == ["vectorise-loop", "larger-batch"]


def test_the_last_look_at_the_job_decides() -> None:
    before, after = prescribing("vectorise-loop", "static-shapes"), prescribing("move-io-off-step")
    assert left(Tried(Found(stack=("loader-workers=2",)), before, after)) == ["move-io-off-step"]
    assert left(Tried(Found(stack=("loader-workers=2",)), before, prescribing())) == []


@pytest.mark.parametrize("kept", ["reduce-overhead", "torch-compile"])
def test_another_way_to_what_is_kept_is_not_left(kept: str) -> None:
    seen = prescribing("cuda-graphs", "vectorise-loop")
    assert left(Tried(Found(stack=(kept,)), seen, seen)) == ["vectorise-loop"]


def test_without_a_look_at_what_is_kept_its_own_causes_are_left_out() -> None:
    seen = prescribing("vectorise-loop")
    assert left(Tried(Found(stack=("torch-compile",)), seen)) == []
    assert left(Tried(Found(stack=("loader-workers=2",)), seen)) == ["vectorise-loop"]
    removing = prescribing("evaluate-less-often", "vectorise-loop")
    assert left(Tried(Found(stack=("torch-compile",)), removing)) == ["evaluate-less-often"]


def test_numbers_that_may_not_change_keep_their_edits_out() -> None:
    seen = prescribing("fp8", "vectorise-loop")
    assert left(Tried(Found(), seen), numerics=False) == ["vectorise-loop"]
    assert left(Tried(Found(), seen)) == ["fp8", "vectorise-loop"]
