"""Which function holds a step's calls of layers, and what it takes to put another in its place."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from findwall.apply import layer_calls
from findwall.apply.layer_calls import Instead
from watched_layers import Layer, Watched


@pytest.fixture(autouse=True)
def only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_calls, "is_job", lambda file: file == __file__)


def loop(step: Callable[[], object], times: int = 3) -> None:
    for _ in range(times):
        step()


def test_it_is_the_innermost_function_around_all_of_them() -> None:
    watched = Watched()
    layers = [watched.layer() for _ in range(3)]

    def block(layer: Layer) -> None:
        layer()

    def forward() -> None:
        for layer in layers:
            block(layer)

    loop(lambda: forward())
    assert watched.names == ["forward"]


def test_a_comprehension_is_no_function_that_one_could_decorate() -> None:
    watched = Watched()
    layers = [watched.layer() for _ in range(2)]

    def forward() -> list[None]:
        return [layer() for layer in layers]  # type: ignore[func-returns-value]

    loop(forward)
    assert watched.names == ["forward"]


def test_a_layer_that_is_called_twice_in_a_step_does_not_end_it() -> None:
    watched = Watched()
    tied, other = watched.layer(), watched.layer()

    def forward() -> None:
        tied()
        other()
        tied()

    loop(forward)
    assert watched.names == ["forward"]


@pytest.mark.parametrize("trains", [True, False])
def test_a_function_that_trains_is_none(trains: bool) -> None:
    watched = Watched()
    layer = watched.layer()

    class Loss:
        def backward(self) -> None: ...

    def train() -> None:
        layer()
        Loss().backward()

    def infer() -> None:
        layer()

    loop(train if trains else infer)
    assert watched.names == ([] if trains else ["infer"])


@pytest.mark.parametrize("defines", [True, False])
def test_a_function_that_defines_one_that_trains_is_none(defines: bool) -> None:
    watched = Watched()
    layer = watched.layer()

    def closure_step() -> None:
        def closure() -> None:
            layer()
            if not layer:
                layer.backward()  # type: ignore[attr-defined]

        closure()

    def step() -> None:
        def closure() -> None:
            layer()

        closure()

    loop(closure_step if defines else step)
    assert watched.names == ([] if defines else ["closure"])


def test_layers_in_two_functions_and_in_a_generator_have_none() -> None:
    watched = Watched()
    first, last = watched.layer(), watched.layer()

    def encode() -> None:
        first()

    def decode() -> None:
        last()

    for _ in range(3):
        encode()
        decode()
    assert watched.names == []

    watched = Watched()
    layer = watched.layer()

    def outputs() -> Any:
        yield layer()

    for _ in range(3):
        list(outputs())
    assert watched.names == []


@pytest.mark.parametrize("probed", [0, 1])
def test_what_calls_layers_before_the_steps_does_not_hide_what_the_steps_call(probed: int) -> None:
    """A look at shapes, of the first layer or of another."""
    watched = Watched()
    layers = [watched.layer(), watched.layer()]

    def probe() -> None:
        layers[probed]()

    def forward() -> None:
        for layer in layers:
            layer()

    def main() -> None:
        probe()
        loop(forward, 8)

    main()
    assert watched.names[-1] == "forward"
    assert set(watched.names) <= {"probe", "forward"}
    assert watched.calls.outside == 0


def test_two_functions_that_are_called_in_turn_are_both_found_where_one_repeats() -> None:
    watched = Watched()
    makes, judges = watched.layer(), watched.layer()

    def generator() -> None:
        makes()

    def discriminator() -> None:
        judges()

    for _ in range(12):
        generator()
        discriminator()
        discriminator()
    assert set(watched.names) == {"generator", "discriminator"}


def test_calls_that_stay_outside_of_what_was_found_are_counted() -> None:
    watched = Watched()
    layer = watched.layer()

    def evaluate() -> None:
        layer()

    loop(evaluate)
    assert watched.names == ["evaluate"] and watched.calls.outside == 0
    for _ in range(2):
        layer()
    assert watched.calls.outside == 2


def test_a_function_that_is_defined_anew_in_each_step_is_told() -> None:
    watched = Watched()
    layer = watched.layer()

    def define() -> Callable[[], None]:
        def forward() -> None:
            layer()

        return forward

    loop(define(), 5)
    assert [one.anew for one in watched.calls.instead.values()] == [False]
    loop(define(), 2)
    assert [one.anew for one in watched.calls.instead.values()] == [True]


def test_nothing_of_the_job_is_held() -> None:
    """Neither what a function had nor a layer."""
    watched = Watched()

    class Big: ...

    held: list[weakref.ref[Any]] = []

    def forward(layer: Layer) -> None:
        big = Big()
        held.append(weakref.ref(big))
        layer()

    def train() -> None:
        layer = watched.layer()
        held.append(weakref.ref(layer))
        forward(layer)

    train()
    gc.collect()
    assert [one() for one in held] == [None, None]


def counted(calls: list[str]) -> Callable[[FunctionType], Callable[..., Any]]:
    def make(same: FunctionType) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(same.__qualname__)
            return same(*args, **kwargs)

        return call

    return make


class Model:
    def forward(self, x: int, scale: int = 2, *, bias: int = 1) -> int:
        return scale * x + bias


def test_whoever_holds_a_function_calls_what_was_made_of_it() -> None:
    calls: list[str] = []
    model = Model()
    bound = model.forward
    former = Model.forward.__code__
    try:
        assert len(Instead(former, counted(calls)).codes) == 1
        assert bound(3) == 7 and model.forward(3, 4, bias=5) == 17 and Model().forward(x=1) == 3
        assert calls == ["Model.forward"] * 3
        assert list(inspect.signature(Model.forward).parameters) == ["self", "x", "scale", "bias"]
    finally:
        Model.forward.__code__ = former


def test_what_a_function_closes_over_stays_with_it() -> None:
    def made(offset: int) -> tuple[Callable[[int], int], Callable[[int], None]]:
        total = offset

        def add(x: int) -> int:
            return total + x

        def move(to: int) -> None:
            nonlocal total
            total = to

        return add, move

    calls: list[str] = []
    (first, move), (second, _) = made(10), made(20)
    assert len(Instead(first.__code__, counted(calls)).codes) == 2
    move(30)
    assert first(1) == 31 and second(2) == 22 and len(calls) == 2


def test_a_function_that_calls_itself_comes_to_an_end() -> None:
    def down(x: int) -> int:
        return 0 if x == 0 else down(x - 1)

    calls: list[str] = []
    Instead(down.__code__, counted(calls))
    assert down(3) == 0 and len(calls) == 4


def positional(x: int, /, y: int = 2) -> list[Any]:
    return [x, y]


def everything(x: int, y: int = 2, *rest: int, z: int, w: int = 4, **more: int) -> list[Any]:
    return [x, y, rest, z, w, more]


def only_names(*, args: int = 1, kwargs: int = 2) -> list[Any]:
    return [args, kwargs]


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (positional, (1,), {}),
        (positional, (1,), {"y": 3}),
        (everything, (1, 2, 3, 4), {"z": 5, "v": 6}),
        (everything, (), {"x": 1, "z": 5}),
        (only_names, (), {"kwargs": 7}),
    ],
)
def test_its_parameters_are_what_they_were(
    function: FunctionType, args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    """Jobs look at `__code__` to see what a function takes, and set defaults."""
    former, told = function.__code__, inspect.getfullargspec(function)
    expected, calls = function(*args, **kwargs), []  # type: tuple[Any, list[str]]
    try:
        Instead(former, counted(calls))
        assert function(*args, **kwargs) == expected and calls == [function.__name__]
        assert inspect.getfullargspec(function) == told
        assert inspect.getsource(function).startswith(f"def {function.__name__}(")
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\)"):
            function(nothing_of_this=1, **kwargs) if function is not everything else function()
    finally:
        function.__code__ = former


def test_defaults_can_be_set_as_before() -> None:
    calls: list[str] = []
    former = positional.__code__
    try:
        Instead(former, counted(calls))
        positional.__defaults__ = (9,)
        assert positional(1) == [1, 9] and calls
    finally:
        positional.__code__, positional.__defaults__ = former, (2,)
