"""Weights that are scaled for each sample: seen where whole channels are, and the same with scaled maps."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

pytest.importorskip("torch")

import torch

from findwall.fixes import CannotTell, NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.less_work import scale_activations
from findwall.fixes.predict import predict
from findwall.probe.probed_rewrites import form_work
from fixes.recorded_steps import modulated
from speaking import in_words

pytestmark = pytest.mark.usefixtures("alone")
FIX = all_fixes()["scale-activations"]
ONE, PADDED = "1,1;1,1;1,1", "2,2;0,0;1,1"


@pytest.mark.parametrize("way", ["lengths", "styles alone"])
def test_one_weight_for_all_samples_is_seen(way: str) -> None:
    facts = modulated(way)
    use = FIX.advise(facts)
    assert isinstance(use, Use), in_words(use)
    (found,) = facts.scaled or ()
    assert (found.samples, found.weight, found.maps) == (4, (16, 12, 3, 3), (8, 8))
    assert found.reads and found.makes is found.lengths is (way == "lengths")
    assert found.how == ((1, 1), (1, 1), (1, 1)) and len(found.backward)
    said = in_words(use)
    assert "F.conv2d(x * style[:, :, None, None], weight" in said and "recorded_steps.py:" in said
    assert ("rsqrt()" in said) is (way == "lengths")
    assert predict(facts, {"scale-activations": use}) is None  # nobody measured such cores
    assert step_at_best(FIX, use, facts) < facts.step


@pytest.mark.parametrize("way", ["places", "read"])
def test_places_of_the_window_and_weights_that_are_read_stay(way: str) -> None:
    outcome = FIX.advise(modulated(way))
    assert isinstance(outcome, NoUse) and outcome.claim.id == "scale-activations/none"
    assert isinstance(FIX.advise(replace(modulated(), scaled=None)), CannotTell)


@pytest.mark.parametrize(
    ("styled", "given", "lengths", "how"),
    [
        (True, False, True, ONE),
        (True, False, False, PADDED),
        (False, True, False, ONE),
        (True, True, False, ONE),
    ],
)
def test_both_forms_agree_in_values_and_gradients(styled: bool, given: bool, lengths: bool, how: str) -> None:
    torch.manual_seed(0)

    def drawn(*dims: int) -> torch.Tensor:
        return torch.randn(*dims, dtype=torch.float64, requires_grad=True)

    x, weight = drawn(3, 4, 6, 6), drawn(5, 4, 3, 3)
    style, out = drawn(3, 4) if styled else None, drawn(3, 5) if given else None
    wanted = [one for one in (x, weight, style, out) if one is not None]
    results = []
    for form in (scale_activations.plain, scale_activations.cheaper):
        found = form(torch, x, weight, style, out, lengths, how)
        results.append([found, *torch.autograd.grad(found.pow(3).sum(), wanted)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_both_forms_are_run_as_the_job_has_them() -> None:
    use = FIX.advise(modulated())
    assert isinstance(use, Use)
    (rewrite,) = use.rewrites
    assert rewrite.backward and rewrite.calls == modulated().steps.count
    shapes = []
    for form in ("plain", "cheaper"):
        found = form_work(torch, torch.device("cpu"), rewrite.probe(form), lambda fix: scale_activations)()
        shapes.append([one.shape for one in found])
    assert shapes[0] == shapes[1] and np.prod(shapes[0][1]) == 16 * 12 * 9
