"""A device found by the exact name its driver reports, and its ceilings: from the table, or from a file.

A name that is not in the table gives no ceilings: a wrong roofline is worse than none.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from findwall.errors import InputError
from findwall.files import read_small
from findwall.machine.gpu_table import GPUS, Gpu, lookup
from findwall.model.machine import MATH_TYPES, UNKNOWN_CEILINGS, Ceilings
from findwall.units import format_share

# A measured ceiling may beat the datasheet a little (boost clocks); beyond this the measurement is wrong.
# Chosen by hand, not calibrated.
SPEC_TOLERANCE = 1.1
CARDS_NAMED = 3  # of those that a name may mean


def table_ceilings(name: str) -> Ceilings:
    """Ceilings of a device by its name; an unknown name gives ceilings in which nothing is known."""
    gpu = lookup(name)
    if gpu is None:
        return msgspec.structs.replace(UNKNOWN_CEILINGS, device=name)
    share = gpu.achievable
    return Ceilings(
        device=name,
        source="table",
        origin=f"{gpu.source}; achievable share: {share.source}",
        flops={
            kind: peak * (share.vector if kind in ("fp32", "fp64") else share.matrix)
            for kind, peak in gpu.flops.items()
        },
        spec_flops=dict(gpu.flops),
        bandwidth=gpu.bandwidth * share.memory,
        spec_bandwidth=gpu.bandwidth,
        l2_bytes=gpu.cache_bytes,
        sm_count=gpu.sm_count,
    )


def device_named(given: str, measured: Iterable[str] = ()) -> str:
    """The device that a person means: by its whole name, by how that ends ("H200"), or by words of it that
    only one card has ("A100-SXM4"). `measured`: devices that may not be in the table."""
    wanted = re.escape(" ".join(given.lower().split()))
    known = {name: name for name in measured} | {name: row.name for name, row in GPUS.items()}
    for pattern in (rf"{wanted}", rf"(?:.*\s)?{wanted}", rf"(?:.*[\s-])?{wanted}(?:[\s-].*)?"):
        found = [name for name in known if wanted and re.fullmatch(pattern, name.lower())]
        if len({known[name] for name in found}) == 1:
            return found[0]
        if found:
            cards = _cards([known[name] for name in found])
            raise InputError(f"--gpu {given} may be any of several cards.", cards)
    near = difflib.get_close_matches(given, list(known), n=CARDS_NAMED)
    raise InputError(f"--gpu {given} is not in the table of GPUs.", _cards([known[name] for name in near]))


def _cards(names: list[str]) -> str:
    """Each card once, with what tells cards of one name apart: how fast their memory is."""
    cards = [f"'{name}'{_memory(GPUS.get(name))}" for name in list(dict.fromkeys(names))[:CARDS_NAMED]]
    if not cards:
        return 'Give the name its driver reports, as in --gpu "NVIDIA H200" (nvidia-smi -L prints it).'
    return f"Did you mean {' or '.join(cards)}?"


def _memory(gpu: Gpu | None) -> str:
    return f" ({gpu.bandwidth / 1e9:.0f} GB/s)" if gpu is not None else ""


def ceilings_of(name: str) -> Ceilings:
    """The table's ceilings of a device that a person names."""
    return table_ceilings(device_named(name))


def load_ceilings(path: str | Path) -> Ceilings:
    """Ceilings from a file: what `findwall ceilings --json FILE` writes, or a bare Ceilings object."""
    try:
        raw = msgspec.json.decode(read_small(Path(path), hint=_LOAD_HINT))
    except FileNotFoundError as error:
        raise InputError(f"Cannot read the ceilings file {path}: {error.strerror}.", _LOAD_HINT) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}.", _LOAD_HINT) from error
    if isinstance(raw, dict) and isinstance(raw.get("ceilings"), dict):
        raw = raw["ceilings"]
    if not isinstance(raw, dict):
        raise InputError(f"{path} holds no ceilings.", _LOAD_HINT)
    return check_ceilings(raw, str(path))


_LOAD_HINT = "Write one with: findwall ceilings --json FILE"


def check_ceilings(raw: dict[str, object], where: str) -> Ceilings:
    """A Ceilings object from decoded JSON; InputError when a figure cannot be true."""
    strange = sorted(set(raw) - set(Ceilings.__struct_fields__))
    if strange:
        raise InputError(
            f"{where} has fields that are not ceilings: {', '.join(map(str, strange[:5]))}.", _LOAD_HINT
        )
    try:
        given = msgspec.convert(raw, Ceilings)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}.", _LOAD_HINT) from error
    for label, value in _figures(given):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{where}: {label} is {value:g}; a ceiling is a positive number.", _LOAD_HINT)
    unknown = sorted((set(given.flops) | set(given.spec_flops)) - set(MATH_TYPES))
    if unknown:
        raise InputError(
            f"{where}: no such math type: {', '.join(unknown[:5])}.", f"Known: {', '.join(MATH_TYPES)}."
        )
    if not given.flops and given.bandwidth is None:
        raise InputError(f"{where} holds no ceilings: neither flops nor bandwidth.", _LOAD_HINT)
    return _beside_spec(given, where)


def _figures(ceilings: Ceilings) -> list[tuple[str, float]]:
    figures = [(f"flops.{kind}", value) for kind, value in ceilings.flops.items()]
    figures += [(f"spec_flops.{kind}", value) for kind, value in ceilings.spec_flops.items()]
    for field in Ceilings.__struct_fields__:
        value = getattr(ceilings, field)
        if isinstance(value, (int, float)):
            figures.append((field, float(value)))
    return figures


def _beside_spec(given: Ceilings, where: str) -> Ceilings:
    """Hold the figures against the datasheet where the GPU is known, and carry the datasheet along."""
    gpu = lookup(given.device)
    spec_flops = gpu.flops if gpu else given.spec_flops
    spec_bandwidth = gpu.bandwidth if gpu else given.spec_bandwidth
    pairs = [(f"flops.{kind}", value, spec_flops.get(kind)) for kind, value in given.flops.items()]
    pairs.append(("bandwidth", given.bandwidth or 0.0, spec_bandwidth))
    for label, value, spec in pairs:
        if spec is not None and value > spec * SPEC_TOLERANCE:
            device = given.device or "the device"
            raise InputError(
                f"{where}: {label} of {value:.4g} is {format_share(value / spec)} of what {device} can do.",
                "Ceilings are in FLOP/s and bytes/s; measure again with: findwall ceilings --refresh",
            )
    source = given.source if given.source in ("measured", "table") else "measured"
    return msgspec.structs.replace(
        given,
        source=source,
        origin=given.origin or where,
        spec_flops=dict(spec_flops),
        spec_bandwidth=spec_bandwidth,
    )
