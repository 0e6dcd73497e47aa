"""Keep images channels-last in memory, as the tensor cores read them.

What it does:
Convolutions on tensor cores want the channels of a pixel side by side (NHWC). Given the default
layout (NCHW), the library reorders the input, and the result back, layer after layer, and adds
the bias in a separate kernel. One change at the start keeps the whole network in the right order:

    model = model.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)

When it does not help:
Nothing is convolved, or the network is channels-last already. Ops that do not know the layout turn
it back, as Fourier transforms along the sides and, on a GPU, group and instance norms do: then the copies
only move elsewhere, and torch's own take several times as long as those of the convolutions' library.

Risk:
None for the results beyond rounding. Code that calls `.view` on activations or relies on
`.is_contiguous()` must be checked. A checkpoint that was saved before the change has optimizer states in
the old layout, and a fused optimizer pairs them with the wrong weights: after it is loaded, replace each
state that has its weight's shape by `torch.empty_like(weight).copy_(state)`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
import numpy as np

from findwall.apply.applying import Effect, is_compiling_of
from findwall.apply.model_calls import Call, Model, each_model
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.facts.best_changes import at_least_bytes, bare_convolutions
from findwall.facts.likely_times import compiles, launch_ns, narrows, norms_channels_last, turned
from findwall.facts.memory_copies import turned_by_library
from findwall.facts.op_shapes import (
    IMAGE_DIMS,
    channels_last,
    convolves,
    on_images,
    transforms_images,
    under_convolution,
)
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Made,
    Outcome,
    Use,
    cannot_tell,
    gone,
    no_use,
    of_class,
    step_ms,
    time_of,
    unless,
)
from findwall.fixes.optimizer.state_layout import LaidStates
from findwall.model.applied import Place
from findwall.model.catalogue import MATRIX_CLASSES, WORTH_IT
from findwall.model.intervals import F64, I64
from findwall.patches import NoPatch
from findwall.patches.call_arguments import keyword_of
from findwall.patches.editor import Editor
from findwall.patches.model_names import named
from findwall.replay.change import Change, Issue, Longer
from findwall.units import ms
from findwall.work.fusion import BATCH_NORM
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import moving_ns, ops_named

MOVES = ("layout-copies", "slow-kernels", "unfused-pointwise")
# Classes of kernels that read images, beside the convolutions.
READ_IMAGES = ("norm", "pointwise", "reduce", "copy", "other")
# Ops whose CUDA kernels know images channels-first alone: they copy what lies otherwise, and what they give
# is channels-first too (torch 2.11).
CHANNELS_FIRST = re.compile(
    r"^aten::(native_group_norm|reflection_pad2d|replication_pad2d|upsample_bicubic2d|_upsample_bicubic2d_aa"
    r"|adaptive_max_pool2d|im2col|col2im|grid_sampler_2d|pixel_(un)?shuffle)(_backward)?$"
)
# Images turned for each such op: what it reads and what it gave. Fewer where another such op follows, more
# where ops on two tensors get one of each layout.
FEWEST_TURNS, TURNS, MOST_TURNS = 1.0, 2.0, 3.0
# Of the memory's bandwidth, what torch takes to turn one element: copies of 103 million bf16 took 0.60 and
# 0.68 ms on an H200, seven times what their bytes must.
TURNING_BYTES = 28.0
LAID = "laid"  # a place: the step before which loaded states were laid as their weights are


def use(facts: Facts) -> Outcome:
    inside = under_convolution(facts)
    spent = time_of(facts, np.flatnonzero(inside | of_class(facts, "conv")))
    if spent < WORTH_IT * step_ms(facts):
        return no_use("channels-last/little", spent_ms=spent)
    if not on_images(facts):
        return no_use("channels-last/no-images")
    copied = time_of(facts, facts.atoms_of("layout-copies"))
    slow = [atoms[inside[atoms]] for atoms in map(facts.atoms_of, MOVES[1:])]
    if copied + time_of(facts, np.concatenate(slow)) <= 0:
        return no_use("channels-last/nothing-left")
    back = _turned_back(facts)
    if (refused := _may_lose(facts, back)) is not None:
        return refused
    own = time_of(facts, np.setdiff1d(facts.atoms_of("layout-copies"), turned_by_library(facts)))

    def likely(made: Made, turns: float = TURNS) -> Change:
        return _likely(facts, made) + (Change() if compiles(made) else back.times(turns))

    return Use(
        Claim("channels-last/turn", {"copied_ms": copied, "own_copies_ms": own}),
        _best(facts),
        likely=likely,
        may=(partial(likely, turns=FEWEST_TURNS), partial(likely, turns=MOST_TURNS))
        if len(back.rows)
        else (),
    )


class _TurnedBack(msgspec.Struct, frozen=True):
    """Device rows of ops that know images channels-first alone, one an op, and what turning its images once
    takes, ns."""

    rows: I64
    ns: F64
    issue_ns: float

    def times(self, turns: float) -> Change:
        """So often in front of each, and behind it."""
        if len(self.rows) == 0:
            return Change()
        issued = np.full(len(self.rows), self.issue_ns * turns)
        return Change((Longer(self.rows, self.ns * turns), Issue(self.rows, issued, besides=True)))


def _turned_back(facts: Facts) -> _TurnedBack:
    """An op without a kernel for channels-last images copies them in front, and the convolution behind it
    copies what it gave; so do their backward passes."""
    op = facts.kernels.op[facts.atoms.index]
    named = np.flatnonzero(
        ops_named(facts.timeline, op, CHANNELS_FIRST) | ops_named(facts.timeline, op, BATCH_NORM)
    )
    _, first = np.unique(op[named], return_index=True)
    found: dict[int, int] = {}
    for atom in named[first].tolist():
        image = Arguments(facts.timeline.inputs_of(facts.op_row(atom))).tensor(0)
        if image is None or len(image.dims) < IMAGE_DIMS:
            continue
        # An instance norm is a batch norm of one image with as many channels as all images have.
        if image.dims[0] == 1 or CHANNELS_FIRST.search(facts.op_name(atom) or ""):
            found[int(facts.kernels.row[facts.atoms.index[atom]])] = image.elements
    moved = np.array(list(found.values()), np.float64) * TURNING_BYTES
    ns = moving_ns(facts, moved)
    return _TurnedBack(np.array(list(found), np.int64), ns, launch_ns(facts))


def _may_lose(facts: Facts, back: _TurnedBack) -> Outcome | None:
    """Whether turning images back takes what the layout gives, by device time: surely, or perhaps."""
    if len(back.rows) == 0:
        return None
    saved = _device_ns(facts, _likely(facts, frozenset()))
    figures = {"turned_ms": ms(float(back.ns.sum()) * TURNS / facts.steps.count), "saved_ms": ms(saved)}
    if saved + _device_ns(facts, back.times(TURNS)) <= 0:
        return no_use("channels-last/turned-back", **figures)
    if saved + _device_ns(facts, back.times(MOST_TURNS)) <= 0:
        return cannot_tell("channels-last/may-turn-back", **figures)
    return None


def _device_ns(facts: Facts, change: Change) -> float:
    """How much less the device works in a step with a change made."""
    less = facts.graph.own - change.apply(facts.graph).own
    return float((less * facts.graph.weight)[facts.graph.rows].sum()) / facts.steps.count


def _best(facts: Facts) -> Change:
    """No tensor is turned round, and what reads images (norms and pooling too) has kernels that do so at the
    memory's speed. Nothing is fused, and matmuls are what they were."""
    images = np.flatnonzero(of_class(facts, *READ_IMAGES) & ~under_convolution(facts))
    turned = facts.atoms_of("layout-copies")
    return gone(facts, turned) + bare_convolutions(facts) + at_least_bytes(facts, images)


def _likely(facts: Facts, made: Made) -> Change:
    """Convolutions as fast as they run in this layout, no tensor turned round by them, norms at the speed
    they have in it; what else reads images is as fast in either, and what the job copies it still copies."""
    if compiles(made):  # which turns images by itself
        return Change()
    inside, multiply = under_convolution(facts), of_class(facts, *MATRIX_CLASSES)
    change = gone(facts, turned_by_library(facts)) + gone(facts, np.flatnonzero(inside & ~multiply))
    if narrows(made):  # which says how fast products and norms are in this layout
        return change
    return change + turned(facts) + norms_channels_last(facts)


def apply(torch: Any, effect: Effect) -> None:
    """Models with convolutions at their first call, and the images they are given at each."""

    by_us: set[int] = set()  # what was turned before it was shared among ranks, by its first convolution
    states = LaidStates(torch, lambda: effect.at(LAID))

    def turn(model: Model) -> str:
        convolutions = _convolutions(torch, model.module)
        if not convolutions:
            return "the model has no Conv2d"
        weights = [one.weight for one in convolutions]
        last = all(_is_last(torch, one) for one in weights)
        if last and not all(one.is_contiguous() for one in weights) and id(convolutions[0]) not in by_us:
            return "the model is channels-last already"
        _turn(torch, model.module)
        states.follow()
        if not isinstance(model.module, torch.nn.parallel.DistributedDataParallel):
            effect.at("model")
        model.around(lambda call: _with_images(torch, call, effect))
        turned_ones = sum(_is_last(torch, one.weight) for one in convolutions)
        if turned_ones == 0:
            return "no weight of a convolution could be turned"
        turned = f"{turned_ones} of {len(convolutions)} convolution weights"
        if model.can_look:
            model.look_at_first_call(_first_input(torch, effect, convolutions, turned))
        else:
            effect.saw(f"{turned} are channels-last")
        return ""

    def before(module: Any) -> None:
        if convolutions := _convolutions(torch, module):
            _turn(torch, module)
            states.follow()
            by_us.add(id(convolutions[0]))
            effect.at("ranks")

    _before_sharing(torch.nn.parallel.DistributedDataParallel, before)
    each_model(torch, effect, turn)


def shows(torch: Any, effect: Effect) -> None:
    """Weights that the job turned itself, and what its first convolution is given."""

    def look(model: Model) -> str:
        convolutions = _convolutions(torch, model.module)
        turned = [
            one for one in convolutions if _is_last(torch, one.weight) and not one.weight.is_contiguous()
        ]
        if not turned:
            return "no weight of a convolution is channels-last"
        told = f"{len(turned)} of {len(convolutions)} convolution weights"
        if model.can_look:
            model.look_at_first_call(_first_input(torch, effect, convolutions, told))
        else:
            effect.saw(f"{told} are channels-last")
        return ""

    each_model(torch, effect, look)


def _convolutions(torch: Any, module: Any) -> list[Any]:
    return [one for one in module.modules() if isinstance(one, torch.nn.Conv2d)]


def _turn(torch: Any, module: Any) -> None:
    with (
        torch.inference_mode(False),
        torch.no_grad(),
    ):  # a first call that infers must not keep others from training
        module.to(memory_format=torch.channels_last)


def _before_sharing(kind: Any, before: Callable[[Any], None]) -> None:
    """The buckets of gradients that ranks share have the layout that the weights have when they are made."""

    def shares(original: Call) -> Call:
        @functools.wraps(original)
        def share(shared: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            with suppress(Exception):  # fail open: it is shared as it is
                before(module)
            original(shared, module, *args, **kwargs)

        return share

    REGISTRY.wrap("channels-last", kind, "__init__", shares, past_end=APPLIED)


def _is_last(torch: Any, tensor: Any) -> bool:
    """Also what has one channel or one pixel, and is both ways at once."""
    return tensor.dim() == 4 and bool(tensor.is_contiguous(memory_format=torch.channels_last))


def _with_images(torch: Any, call: Call, effect: Effect) -> Call:
    def is_image(given: Any) -> bool:
        return isinstance(given, torch.Tensor) and given.dim() == 4 and given.is_floating_point()

    def turned(given: Any) -> Any:
        return given.to(memory_format=torch.channels_last) if is_image(given) else given

    compiling = is_compiling_of(torch)

    def on_images(*args: Any, **kwargs: Any) -> Any:
        if effect.looks and not compiling():
            each = {**{str(at): one for at, one in enumerate(args)}, **kwargs}
            learns = "trains" if torch.is_grad_enabled() else ""
            effect.at("input", given=[name for name, one in each.items() if is_image(one)], value=learns)
        return call(*map(turned, args), **{name: turned(one) for name, one in kwargs.items()})

    return on_images


@contextmanager
def _first_input(torch: Any, effect: Effect, convolutions: list[Any], turned: str) -> Iterator[None]:
    """What the first convolution that runs is given: the job may turn images back on the way to it."""
    inputs: list[bool] = []

    def look(_module: Any, given: tuple[Any, ...]) -> None:
        if given and not inputs:
            inputs.append(_is_last(torch, given[0]))

    hooks = [one.register_forward_pre_hook(look) for one in convolutions]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if inputs and inputs[0]:
        effect.saw(f"{turned} and the first convolution's input are channels-last")
    elif inputs:
        effect.cannot("the job turns its images back before the first convolution")


def patch(editor: Editor) -> None:
    if editor.some(LAID):
        editor.remark(
            "The checkpoint's optimizer states are in the old layout, and a fused optimizer pairs them with "
            "the wrong weights: after `load_state_dict`, replace each state that has its weight's shape by "
            "`torch.empty_like(weight).copy_(state)`."
        )
    for place in editor.some("model"):
        model = named(editor, place)
        torch = model.edits.module("torch")
        model.then(f"{model.name}.to(memory_format={torch}.channels_last)")
    for place in editor.some("ranks"):  # their buckets have the layout that the weights have then
        _turn_argument(editor, place, "0", "module")
    inputs = editor.places("input")
    for place in [one for one in inputs if one.value] or inputs:
        for name in place.given:
            _turn_argument(editor, place, name, name)


def _turn_argument(editor: Editor, place: Place, at: str, name: str) -> None:
    """`model(x)` becomes `model(x.to(memory_format=torch.channels_last))`."""
    if place.library:
        raise NoPatch(f"{place.library} calls the model, not the job's own code")
    call, edits = editor.call(place.spots[0]), editor.file(place.spots[0].file)
    given: ast.expr | None = None
    if at.isdigit() and int(at) < len(call.args):
        given = call.args[int(at)]
        if any(isinstance(one, ast.Starred) for one in call.args[: int(at) + 1]):
            given = None
    elif (keyword := keyword_of(call, name)) is not None:
        given = keyword.value
    if given is None:
        raise NoPatch("the call does not show the images that it passes")
    if not isinstance(given, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        edits.enclose(given)
    edits.append(given, f".to(memory_format={edits.module('torch')}.channels_last)")


FIX = Fix(
    MOVES,
    "safe",
    use,
    (
        unless("channels-last/no-convolutions", lambda facts: not convolves(facts)),
        unless("channels-last/already", channels_last),
        unless("channels-last/transformed", transforms_images),
    ),
    tried=9,
    apply=apply,
    shows=shows,
    patch=patch,
    reorders=True,
)
