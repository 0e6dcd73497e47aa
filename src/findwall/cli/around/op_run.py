"""An op that was asked about, run on the GPU that is here. torch is imported only where one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from findwall.errors import FindwallError, InputError
from findwall.op.op_probes import Probed, not_probed, plan, read

if TYPE_CHECKING:
    from findwall.model.probes import Probe, Probes
    from findwall.op.op_on_paper import Paper
    from findwall.probe.measuring import Target


def find_gpu() -> Target:
    """The GPU that torch uses here; InputError says why there is none."""
    from findwall.probe.measuring import Target

    hint = "Run it where torch and the GPU are, or leave --probe out for the answer on paper."
    try:
        import torch
    except ImportError:
        raise InputError("torch is not installed here", hint) from None
    except Exception as error:  # one that does not fit its CUDA libraries fails on import in many ways
        raise InputError(f"torch cannot be imported ({type(error).__name__}: {error})", hint) from error
    if not torch.cuda.is_available():
        raise InputError("torch sees no GPU here", hint)
    return Target(torch, on_gpu=True)


def run_here(paper: Paper, here: str | None, target: Target | None = None) -> Probed:
    """The op's times on the GPU that is here, where it is the one asked about.

    A target is given where a person wants it run: then it is run again, whatever is kept.
    """
    device = paper.ceilings.device
    if target is not None and target.gpu != device:
        raise InputError(
            f"--probe runs it on this machine's GPU, {target.gpu}, and {device} was asked about",
            "Leave out --probe or --gpu.",
        )
    if here != device:
        return Probed(why_not=f"this machine has {here}" if here else "there is no GPU here", tells=False)
    why_not = not_probed(paper)
    if why_not:
        return Probed(why_not=why_not)
    ways = plan(paper)
    wanted = list(ways.values())
    if target is None:
        known = _kept(here, wanted)
        if known is not None:
            return read(ways, known)
    try:
        return read(ways, _run(target or _same_gpu(device), wanted, again=target is not None))
    # The answer on paper stands, whatever the device says: it may be full, or stop answering.
    except (FindwallError, RuntimeError) as error:
        return Probed(why_not=(str(error).strip().splitlines() or [type(error).__name__])[0])


def _same_gpu(device: str) -> Target:
    from findwall.cli.around.progress import say

    say(f"running it on {device} (--no-probe leaves that out)")
    target = find_gpu()
    if target.gpu != device:
        raise InputError(f"torch's first GPU here is {target.gpu}")
    return target


def _kept(gpu: str, wanted: list[Probe]) -> Probes | None:
    """What was run before, where it is all there: that needs no torch."""
    from findwall.machine.environment import driver_version, versions
    from findwall.probe.probe_cache import kept_probes

    known = kept_probes(gpu, driver_version() or "", versions()["torch"] or "")
    return known if known is not None and all(probe.key in known.ns for probe in wanted) else None


def _run(target: Target, wanted: list[Probe], again: bool) -> Probes:
    from msgspec.structs import replace

    from findwall.cli.probe import warn_if_shared
    from findwall.probe.measuring import run_probes
    from findwall.probe.probe_cache import kept_probes, path_of, store

    warn_if_shared(target)
    known = kept_probes(target.gpu, target.driver, target.version)
    if known is not None and again:
        old = {probe.key for probe in wanted}
        known = replace(known, ns={key: ns for key, ns in known.ns.items() if key not in old})
    found = run_probes(target, wanted, known)
    store(found, path_of(target.gpu, target.driver, target.version))
    return found
