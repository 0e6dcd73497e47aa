"""Linear layers that pad inside, to show what padded ones would give: the same numbers, aligned products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from findwall.apply.applying import Effect
from findwall.facts.op_shapes import padded
from findwall.fixes import all_fixes
from findwall.fixes.kernels.padded_layers import PaddedLinear

torch = pytest.importorskip("torch")
ORIGINAL = torch.nn.functional.linear


@pytest.fixture
def layers() -> Iterator[PaddedLinear]:
    found = PaddedLinear(torch, padded, "cpu")
    yield found
    found.remove()


def one_step(dtype: Any, autocast: bool = False, compiled: bool = False) -> list[Any]:
    """What a model of odd widths gives, and all gradients."""
    torch.manual_seed(0)
    wide = torch.nn.Linear(301, 513)
    model = torch.nn.Sequential(wide, torch.nn.GELU(), torch.nn.Linear(513, 301, bias=False)).to(dtype)
    x = torch.randn(4, 7, 301, dtype=dtype, requires_grad=True)
    call = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = call(x)
    y.view(-1).float().square().mean().backward()
    return [y, x.grad, *(one.grad for one in model.parameters())]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_results_and_gradients_stay(autocast: bool, compiled: bool) -> None:
    torch._dynamo.reset()
    dtype = torch.float32 if autocast else torch.bfloat16
    plain = one_step(dtype, autocast)
    layers = PaddedLinear(torch, padded, "cpu")
    try:
        found = one_step(dtype, autocast, compiled)
    finally:
        layers.remove()
    for before, after in zip(plain, found, strict=True):
        assert before.shape == after.shape and before.dtype == after.dtype and after.is_contiguous()
        apart = (before.float() - after.float()).abs().max() / before.float().abs().max()
        assert apart < 2**-6  # of bfloat16, whose steps are 2**-8
    how = "linear layers were compiled" if compiled else "2 linear layers multiplied"
    shapes = "(513×301 as 520×304, 301×513 as 304×520)"
    assert layers.told().startswith(
        f"a stand-in for the edit: {how} with padding {shapes}; every call copies"
    )
    assert torch.nn.functional.linear is ORIGINAL


def test_the_products_are_aligned(layers: PaddedLinear) -> None:
    seen: list[Any] = []

    class Shapes(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ in ("addmm", "mm"):
                seen.extend(tuple(one.shape) for one in args if one.dim() == 2)
            return func(*args, **(kwargs or {}))

    with Shapes():
        torch.nn.Linear(301, 513, dtype=torch.bfloat16)(torch.randn(4, 301).bfloat16())
    assert seen == [(4, 304), (304, 520)]


def test_what_costs_nothing_stays_as_it_is(layers: PaddedLinear) -> None:
    def call(k: int, n: int, dtype: Any) -> None:
        torch.nn.Linear(k, n, dtype=dtype)(torch.randn(2, k, dtype=dtype))

    call(301, 513, torch.float32)  # not of 16 bits
    call(304, 512, torch.bfloat16)  # aligned
    call(31, 61, torch.bfloat16)  # small
    assert layers.told() == ""


def test_without_a_gpu_it_says_so() -> None:
    effect, fix = Effect(), all_fixes()["pad-shapes"]
    assert fix.apply is None and fix.stand_in is not None
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    fix.stand_in(torch, effect)
    assert not effect.told().took_effect and effect.told().trouble.startswith("there is no GPU here")
    assert torch.nn.functional.linear is ORIGINAL
