"""A sweep as part of the Diagnosis: its points, what they say together, and the claims about both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from findwall.model.answers.sweep_answer import Sweep, SweepPoint
from findwall.model.arms import MemoryOf
from findwall.model.catalogue import FAIR_PART
from findwall.model.claims import Claim, Range, known
from findwall.model.diagnosis import Wall
from findwall.trial.sweep_sizes import Ended, Shape, Tried, Way, fits_in, largest_predicted, shape_of
from findwall.units import GIB


def sweep_document(
    tried: Sequence[Tried],
    way: Way,
    walls: Mapping[int, Wall],
    ended: Ended,
    seconds: float,
    argument: str = "",
    others_busy: float | None = None,
) -> Sweep:
    """`walls`: the verdict at each size that has one; `others_busy`: cores that other processes used."""
    measured = [one for one in tried if one.rate is not None]
    of: MemoryOf = next((one.swept.peaks.of for one in tried if one.swept is not None), "unknown")
    device = next((one.swept.peaks.limit for one in tried if one.swept and one.swept.peaks.limit), None)
    limit = fits_in(device, way.limit if of == "resident" else None)
    shape = shape_of(tried)
    found = Sweep(
        varied="argument" if argument else "loader",
        argument=argument,
        own=None if argument else way.own,
        memory_of=of,
        limit_gib=_gib(limit),
        points=[_point(one, limit, walls.get(one.size), way) for one in tried],
        largest=max((one.size for one in measured), default=None),
        largest_predicted=largest_predicted(tried, way, limit),
        ended=ended,
        seconds=seconds,
    )
    if shape is not None:
        found.knee, found.plateau = shape.knee, list(shape.plateau) if shape.levels else []
        found.smallest, found.best = shape.smallest, shape.best
        at = next((size for size in (shape.best, shape.smallest) if size in walls), None)
        if at is not None:
            found.wall, found.cause = walls[at].wall, walls[at].cause
    found.claims = _claims(found, way, shape, tried, others_busy)
    return found


def _point(one: Tried, limit: float | None, wall: Wall | None, way: Way) -> SweepPoint:
    point = SweepPoint(
        one.size,
        one.outcome,
        samples_per_s=one.rate,
        samples_per_step=one.samples,
        predicted_gib=_gib(one.predicted),
        predicted_reserved_gib=_gib(one.predicted_reserved),
        seconds=one.seconds,
    )
    swept = one.swept
    if swept is not None and one.outcome == "measured":
        point.step_ms, point.steps = Range(swept.low_ms, swept.mean_ms, swept.high_ms), swept.steps
        on_cores = swept.peaks.of == "resident"  # then what is kept is part of it, and nothing else is seen
        point.peak_gib = _gib(swept.peaks.reserved or swept.peaks.whole if on_cores else swept.peaks.whole)
        point.reserved_gib = None if on_cores else _gib(swept.peaks.reserved)
    reserved = one.predicted_reserved
    point.is_doubtful = limit is not None and reserved is not None and reserved > limit
    if wall is not None:
        point.wall, point.cause = wall.wall, wall.cause
    point.claim = _why(one, point, limit, way)
    if point.is_doubtful and point.claim is not None and swept is not None and swept.peaks.of == "resident":
        point.claim = replace(point.claim, id="sweep/doubtful-on-cores")
    return point


def _why(one: Tried, point: SweepPoint, limit: float | None, way: Way) -> Claim | None:
    """Why there are no figures, or what is to be said of them."""
    limits = {"limit_gib": _gib(limit), "predicted_gib": point.predicted_gib}
    if one.outcome == "measured":
        reserved = {**limits, "reserved_gib": point.predicted_reserved_gib}
        return Claim("sweep/doubtful", reserved) if point.is_doubtful else None
    counts = {"samples": way.samples, "steps": one.swept.steps if one.swept is not None else None}
    return Claim(f"sweep/{one.outcome}", {**limits, **counts}, known(error=one.why))


def _claims(
    found: Sweep, way: Way, shape: Shape | None, tried: Sequence[Tried], others: float | None
) -> list[Claim]:
    """What the points say together, the answer first."""
    if shape is None:
        return [Claim("sweep/nothing")]
    rates = {one.size: one.rate for one in tried}
    small = {"smallest": shape.smallest, "rate": rates[shape.smallest], "best_rate": rates[shape.best]}
    wall = {"wall": found.wall, "cause": found.cause}
    low, high = shape.plateau
    said = "sweep/no-plateau" if not shape.levels else "sweep/falls" if low == high else "sweep/plateau"
    claims = [Claim(said, {**small, **wall, "low": low, "high": high, "best": shape.best})]
    if shape.knee is not None:
        claims.append(Claim("sweep/knee", {"knee": shape.knee, "is_lower": shape.knee_is_lower}))
    if found.largest is not None:
        sizes = {"largest": found.largest, "predicted": found.largest_predicted}
        beyond = (found.largest_predicted or 0) > found.largest
        last = way.samples is not None and 2 * (found.largest_predicted or 0) > way.samples
        figures = {**sizes, "beyond": beyond, "is_all": last, "limit_gib": found.limit_gib}
        claims.append(Claim("sweep/largest", figures))
    claims += [Claim("sweep/counted-by-argument")] if _is_counted(found, tried) else []
    claims += [Claim("sweep/out-of-time")] if any(one.outcome == "no-time" for one in tried) else []
    claims += [Claim("sweep/others-busy", {"cores": others})] if (others or 0.0) > FAIR_PART else []
    return [*claims, Claim("sweep/changes-training")]


def _is_counted(found: Sweep, tried: Sequence[Tried]) -> bool:
    """Whether no loader said how many samples a step has."""
    loaders = [loader for one in tried if one.swept is not None for loader in one.swept.fed]
    return found.varied == "argument" and not any(one.size for one in loaders)


def _gib(value: float | None) -> float | None:
    return None if value is None else value / GIB
