"""Ops made runnable again from what a trace recorded of them: tensors by shape, type and strides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from findwall.errors import InputError
from findwall.machine.ceilings.clocks_used import Work
from findwall.model.events import Inputs
from findwall.model.probes import ATTENTION, OPTIMIZER, UPLOAD, Probe

# Types as the profiler writes them, and torch's names.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::half": "float16",
    "c10::bfloat16": "bfloat16",
    "unsigned char": "uint8",
}
NARROW = {"bf16": "bfloat16", "fp16": "float16"}
IMAGE_DIMS = 4
# Of the free memory: a device says when it has no more, a host may end the process instead. Chosen by hand.
MEMORY_SHARE = 0.25
OPTIMIZER_COPIES = 4  # of each parameter: itself, its gradient and two states
WIDE_BYTES = 4  # a number as it is drawn
# Positions of (stride, padding, dilation, groups) of the ops that a convolution becomes; -1: not taken.
_FORWARD = {
    "cudnn_convolution": (3, 2, 4, 5),
    "convolution": (3, 4, 5, 8),
    "_convolution": (3, 4, 5, 8),
    "conv1d": (3, 4, 5, 6),
    "conv2d": (3, 4, 5, 6),
    "conv3d": (3, 4, 5, 6),
    "_conv_depthwise2d": (4, 5, 6, -1),
}
# Pointwise ops, and the tensors that each reads.
_READS = {"relu": 1, "add": 2, "addcmul": 3}


class Maker:
    """Makes work of probes, on one device."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch, self.device = torch, device
        self._ways: dict[str, Callable[[str, Inputs, list[str]], Work]] = {
            ATTENTION: self._attention,
            OPTIMIZER: self._optimizer,
            UPLOAD: self._upload,
        }

    def work(self, probe: Probe) -> Work:
        """One op with its tensors ready. Raises what torch raises where that is not possible."""
        stem = probe.op.rpartition("::")[2]
        way = self._ways.get(probe.op) or self._way(stem)
        return way(stem, probe.run or probe.inputs, probe.variant.split("+"))

    def _way(self, stem: str) -> Callable[[str, Inputs, list[str]], Work]:
        if "batch_norm" in stem:
            return self._batch_norm
        if stem == "convolution_backward":
            return self._convolution_backward
        if stem in _FORWARD:
            return self._convolution
        if stem in ("_efficient_attention_forward", "_efficient_attention_backward"):
            return self._fused_attention
        if stem in ("mm", "addmm", "bmm", "baddbmm", "linear"):
            return self._product
        if stem == "native_layer_norm":
            return self._layer_norm
        if stem in _READS:
            return self._pointwise
        raise InputError(f"{stem} cannot be run again")

    # -- tensors ---------------------------------------------------------------------------------------

    def _tensor(self, inputs: Inputs, at: int, variant: list[str]) -> Any:
        dims, dtype = _dims(inputs, at), inputs.types[at]
        if not isinstance(dtype, str) or dtype.lower() not in DTYPES:
            raise InputError(f"a tensor of type {dtype} cannot be made")
        strides = _strides(inputs, at, len(dims))
        kind = getattr(self.torch, DTYPES[dtype.lower()])
        if kind == self.torch.float32:
            kind = next((getattr(self.torch, NARROW[part]) for part in variant if part in NARROW), kind)
        reach = 1 + sum((extent - 1) * step for extent, step in zip(dims, strides, strict=True))
        self._must_fit(reach)
        made = self.torch.randn(max(reach, 1), device=self.device).to(kind).as_strided(dims, strides)
        if "nhwc" in variant and len(dims) == IMAGE_DIMS:
            made = made.contiguous(memory_format=self.torch.channels_last)
        return made

    def _must_fit(self, numbers: int) -> None:
        if self.device.type == "cuda":
            return
        import psutil

        if numbers * WIDE_BYTES > MEMORY_SHARE * psutil.virtual_memory().available:
            raise InputError("its tensors do not fit into the free memory")

    # -- products --------------------------------------------------------------------------------------

    def _product(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        count = 3 if stem in ("addmm", "baddbmm") else 2
        tensors = [self._tensor(inputs, at, variant) for at in range(count)]
        if stem == "linear":
            bias = self._tensor(inputs, 2, variant) if len(inputs.dims) > 2 and inputs.dims[2] else None
            return lambda: self.torch.nn.functional.linear(*tensors, bias)
        call = getattr(self.torch, stem)
        scales = {}
        if count == 3:
            scales = {name: _number(inputs, at, 1.0) for name, at in (("beta", 3), ("alpha", 4))}
        return lambda: call(*tensors, **scales)

    def _convolution(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        x, weight = self._tensor(inputs, 0, variant), self._tensor(inputs, 1, variant)
        stride, padding, dilation, groups = _FORWARD[stem]
        spatial = weight.dim() - 2
        given = [_numbers(inputs, at, spatial) for at in (stride, padding, dilation)]
        parts = int(_number(inputs, groups, 1)) if groups >= 0 else x.shape[1] // weight.shape[1]
        return lambda: self.torch.ops.aten.convolution(x, weight, None, *given, False, [0] * spatial, parts)

    def _convolution_backward(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        tensors = [self._tensor(inputs, at, variant) for at in range(3)]
        spatial = tensors[2].dim() - 2
        bias = _numbers(inputs, 3, 1)
        stride, padding, dilation, more = (_numbers(inputs, at, spatial) for at in (4, 5, 6, 8))
        mask = [one in ("true", "1") for one in _listed(inputs, 10)] or [True, True, False]
        call, groups = self.torch.ops.aten.convolution_backward, int(_number(inputs, 9, 1))
        transposed = _text(inputs, 7).lower() == "true"
        rest = (bias, stride, padding, dilation, transposed, more, groups, mask)
        return lambda: call(*tensors, *rest)

    # -- norms -----------------------------------------------------------------------------------------

    def _batch_norm(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        """Through the front door, which chooses the kernel: that depends on type and layout."""
        torch = self.torch
        x = self._tensor(inputs, 0, variant)
        channels = x.shape[1]
        weight, bias, mean, spread = (torch.rand(channels, device=self.device) + 0.5 for _ in range(4))
        backward = stem.endswith("backward")
        training = backward or _text(inputs, 5).lower() == "true"
        on_cudnn = torch.backends.cudnn.enabled

        def forward() -> Any:
            return torch.batch_norm(x, weight, bias, mean, spread, training, 0.1, 1e-5, on_cudnn)

        if not backward:
            return _without_gradients(torch, forward)
        wanted = [one.requires_grad_() for one in (x, weight, bias)]
        return _gradients(torch, forward(), wanted)

    def _layer_norm(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        x = self._tensor(inputs, 0, variant)
        weight, bias = (self._tensor(inputs, at, variant) for at in (2, 3))
        shape, normalise = _numbers(inputs, 1, 1), self.torch.native_layer_norm
        return lambda: normalise(x, shape, weight, bias, _number(inputs, 4, 1e-5))

    # -- pointwise -------------------------------------------------------------------------------------

    def _pointwise(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        call = getattr(self.torch, stem)
        tensors = [self._tensor(inputs, at, variant) for at in range(_READS[stem])]
        return lambda: call(*tensors)

    # -- attention -------------------------------------------------------------------------------------

    def _attention(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        """[batch, heads, length, width], with what is added to the scores."""
        query, key, value = (self._tensor(inputs, at, variant) for at in (0, 1, 1))
        mask = self._tensor(inputs, 2, variant) if inputs.dims[2] else None
        return self._sdpa(query, key, value, mask, inputs.concrete[1] == "True", inputs.concrete[0])

    def _fused_attention(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        """[batch, length, heads, width]; backward comes after the gradient."""
        backward = stem.endswith("backward")
        first = 1 if backward else 0
        if len(inputs.dims) > first + 3 and inputs.dims[first + 3]:
            raise InputError("attention with a bias is not run again")
        query, key, value = (
            self._tensor(inputs, at, variant).transpose(1, 2) for at in range(first, first + 3)
        )
        causal = _text(inputs, 14 if backward else 9) not in ("", "0")
        return self._sdpa(query, key, value, None, causal, "backward" if backward else "forward")

    def _sdpa(self, query: Any, key: Any, value: Any, mask: Any, causal: bool, way: str) -> Work:
        attend = self.torch.nn.functional.scaled_dot_product_attention

        def forward() -> Any:
            return attend(query, key, value, attn_mask=mask, is_causal=causal and mask is None)

        if way == "forward":
            return _without_gradients(self.torch, forward)
        wanted = [query, key, value] = [one.detach().requires_grad_() for one in (query, key, value)]
        return _gradients(self.torch, forward(), wanted)

    # -- optimizers and copies -------------------------------------------------------------------------

    def _optimizer(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        torch = self.torch
        name, momentum = inputs.concrete[0], inputs.concrete[1] == "True"
        kind = getattr(torch, DTYPES[str(inputs.types[0]).lower()])
        shapes = [dims for dims in inputs.dims[0] if isinstance(dims, list)]
        self._must_fit(OPTIMIZER_COPIES * sum(math.prod(dims) for dims in shapes))
        parameters = [torch.randn(dims, device=self.device).to(kind).requires_grad_() for dims in shapes]
        for one in parameters:
            one.grad = torch.randn_like(one)
        more = {"momentum": 0.9} if name == "SGD" and momentum else {}
        step: Work = getattr(torch.optim, name)(parameters, lr=1e-6, fused=True, **more).step
        return step

    def _upload(self, stem: str, inputs: Inputs, variant: list[str]) -> Work:
        size = _dims(inputs, 0)
        pinned = "pinned" in variant and self.device.type == "cuda"
        source = self.torch.randint(0, 255, size, dtype=self.torch.uint8)
        source = source.pin_memory() if pinned else source
        target = self.torch.empty(size, dtype=self.torch.uint8, device=self.device)
        return lambda: target.copy_(source, non_blocking=pinned)


def _without_gradients(torch: Any, forward: Work) -> Work:
    def run() -> object:
        with torch.no_grad():
            return forward()

    return run


def _gradients(torch: Any, result: Any, wanted: list[Any]) -> Work:
    """The backward pass of one op alone."""
    with torch.no_grad():
        gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, wanted, gradient, retain_graph=True)


def _dims(inputs: Inputs, at: int) -> list[int]:
    return [one for one in inputs.dims[at] if isinstance(one, int)]


def _strides(inputs: Inputs, at: int, count: int) -> list[int]:
    """As recorded; of a whole tensor where they are not."""
    found = [one for one in inputs.strides[at] if isinstance(one, int)] if at < len(inputs.strides) else []
    if len(found) == count:
        return found
    steps, step = [], 1
    for extent in reversed(_dims(inputs, at)):
        steps.append(step)
        step *= max(extent, 1)
    return steps[::-1]


def _text(inputs: Inputs, at: int) -> str:
    return str(inputs.concrete[at]).strip() if 0 <= at < len(inputs.concrete) else ""


def _number(inputs: Inputs, at: int, default: float) -> float:
    try:
        return float(_text(inputs, at))
    except ValueError:
        return default


def _listed(inputs: Inputs, at: int) -> list[str]:
    text = _text(inputs, at).strip("[]").lower()
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(inputs: Inputs, at: int, count: int) -> list[int]:
    """A recorded list of numbers; InputError where the trace has none: a guess would be another op."""
    found = [int(part) for part in _listed(inputs, at)]
    if not found:
        raise InputError("the trace does not say its stride, padding or dilation")
    return found * count if len(found) == 1 and count > 1 else found
