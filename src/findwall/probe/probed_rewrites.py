"""Both forms of a rewrite, run on this device on tensors like the job's, and what that says of the step.

What a job's integers are is not recorded: they are drawn all as often. So a probe counts only where the form
that the job has takes about what its kernels take in the trace; else it was not run as the job does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from findwall.errors import InputError
from findwall.facts.facts import Facts
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.probes import CHEAPER, PLAIN, REWRITE, Draw, Drawn, Probe, Rewrite

if TYPE_CHECKING:
    from findwall.machine.ceilings.clocks_used import Work  # it loads much that reading a trace does not need

Forms = Callable[[str], ModuleType]  # of a fix: the file that holds both forms
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::half": "float16",
    "c10::bfloat16": "bfloat16",
    "unsigned char": "uint8",
    "bool": "bool",
    "int": "int32",
    "long int": "int64",
}


def plan_rewrites(rewrites: Iterable[Rewrite]) -> list[Probe]:
    """What to run: each in both forms, one after the other."""
    found = [one.probe(form) for one in rewrites for form in (PLAIN, CHEAPER)]
    return list({probe.key: probe for probe in found}.values())


# -- what probes say -----------------------------------------------------------------------------------


class Timed(msgspec.Struct, frozen=True):
    """A rewrite as it was probed."""

    rewrite: Rewrite
    now: float  # ns that its kernels take, in all traced steps
    ratio: float  # of that: what the cheaper form takes

    @property
    def then(self) -> float:
        return self.now * self.ratio


def timed(facts: Facts, rewrite: Rewrite) -> Timed | None:
    """None where it was not probed, or ran otherwise than in the job: half as long, or twice."""
    probes = facts.run.probes
    if probes is None or rewrite.calls == 0:
        return None
    plain, cheaper = (probes.ns.get(rewrite.probe(form).key) for form in (PLAIN, CHEAPER))
    now = float(facts.timeline.events.duration[np.unique(rewrite.rows)].sum())
    if plain is None or cheaper is None or now <= 0:
        return None
    alike = MAJORITY_SHARE <= plain * rewrite.calls / now <= 1 / MAJORITY_SHARE
    return Timed(rewrite, now, cheaper / plain) if alike else None


# -- the forms, made runnable ----------------------------------------------------------------------------


def is_rewrite(probe: Probe) -> bool:
    return probe.op.startswith(REWRITE)


def form_work(torch: Any, device: Any, probe: Probe, forms: Forms | None) -> Work:
    """One form with its tensors ready, forward and, where the job has it, backward."""
    if forms is None:
        raise InputError("nobody said where the forms of a rewrite are")
    form, _, backward = probe.variant.partition("+")
    call = getattr(forms(probe.op.removeprefix(REWRITE)), form)
    kept: list[Any] = []  # tensors that get gradients
    given = [_argument(torch, device, _read(text), kept) for text in probe.inputs.concrete]
    if not backward:

        def forward() -> object:
            with torch.no_grad():
                return call(torch, *given)

        return forward
    gradients: list[Any] = []

    def both() -> object:
        results = [one for one in _flat(call(torch, *given)) if one.requires_grad]
        if not gradients:
            gradients.extend(torch.ones_like(one) for one in results)
        return torch.autograd.grad(results, kept, gradients, allow_unused=True)

    return both


def _read(text: str) -> Drawn:
    return msgspec.json.decode(text, type=Draw | list[Draw] | int | float | bool | str | None)


def _argument(torch: Any, device: Any, one: Drawn, kept: list[Any]) -> Any:
    if isinstance(one, list):
        return [_argument(torch, device, part, kept) for part in one]
    if not isinstance(one, Draw):
        return one
    made = draw(torch, device, one)
    if one.has_gradient:
        kept.append(made.requires_grad_())
    return made


def draw(torch: Any, device: Any, one: Draw) -> Any:
    name = DTYPES.get(one.dtype.lower())
    if name is None:
        raise InputError(f"a tensor of type {one.dtype} cannot be made")
    kind = getattr(torch, name)
    if one.entries:
        return _sparse(torch, device, one, kind)
    _must_fit(device, math.prod(one.dims))
    if kind.is_floating_point:
        return torch.randn(one.dims, device=device, dtype=torch.float32).to(kind)
    most = {"bool": 2, "uint8": 256}.get(name, one.below)
    return torch.randint(0, max(most, 1), one.dims, device=device).to(kind)


def _sparse(torch: Any, device: Any, one: Draw, kind: Any) -> Any:
    """Its numbers at places that are drawn, some twice."""
    rows, columns = one.dims
    _must_fit(device, one.entries)
    each = torch.arange(rows + 1, device=device) * one.entries // rows  # as many in every row
    places = torch.randint(0, columns, (one.entries,), device=device)
    row = torch.repeat_interleave(torch.arange(rows, device=device), each.diff())
    places = (row * columns + places).sort().values % columns
    numbers = torch.randn(one.entries, device=device).to(kind)
    return torch.sparse_csr_tensor(each, places, numbers, one.dims, check_invariants=False)


def _must_fit(device: Any, numbers: int) -> None:
    """A device says when it has no more memory; a host may end the process instead."""
    if device.type != "cuda":
        import psutil

        if numbers * WIDEST_BYTES > MEMORY_SHARE * psutil.virtual_memory().available:
            raise InputError("its tensors do not fit into the free memory")


MEMORY_SHARE = 0.1  # of what is free, a tensor: forms hold several beside what they are given. By hand.
WIDEST_BYTES = 8


def _flat(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]
