"""A sweep as part of the Diagnosis: its points, what they say together, and the claims about both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from findwall.model.answers.sweep_answer import Sweep, SweepPoint
from findwall.model.arms import MemoryOf
from findwall.model.catalogue import FAIR_PART
from findwall.model.claims import Claim, Range, known
from findwall.model.diagnosis import Wall
from findwall.trial.sweep_sizes import Ended, Shape, Tried, Way, largest_predicted, limit_of, shape_of
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
    of: MemoryOf = next((one.swept.peaks.of for one in tried if one.swept is not None), "unknown")
    limit = limit_of(tried, way)
    shape = shape_of(tried)
    found = Sweep(
        varied="argument" if argument else "loader",
        argument=argument,
        own=None if argument else way.own,
        memory_of=of,
        limit_gib=_gib(limit),
        points=[_point(one, limit, walls.get(one.size), way, ended) for one in tried],
        largest=max((one.size for one in tried if one.rate is not None), default=None),
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


def _point(one: Tried, limit: float | None, wall: Wall | None, way: Way, ended: Ended) -> SweepPoint:
    point = SweepPoint(
        one.size,
        one.outcome,
        samples_per_s=one.rate,
        samples_per_step=one.samples,
        predicted_gib=_gib(one.predicted.mid),
        predicted_low_gib=_gib(one.predicted.low),
        predicted_high_gib=_gib(one.predicted.high),
        predicted_reserved_gib=_gib(one.predicted.reserved),
        seconds=one.seconds,
    )
    swept = one.swept if one.outcome == "measured" else None
    on_cores = swept is not None and swept.peaks.of == "resident"
    if swept is not None:
        point.step_ms, point.steps = Range(swept.low_ms, swept.mean_ms, swept.high_ms), swept.steps
        # On the cores what is kept is part of it, and nothing else is seen.
        point.peak_gib = _gib(swept.peaks.reserved or swept.peaks.whole if on_cores else swept.peaks.whole)
        point.reserved_gib = None if on_cores else _gib(swept.peaks.reserved)
    least, most = one.predicted.low, one.predicted.reserved
    if limit is not None and least is not None and most is not None:
        point.is_doubtful = least <= limit < most
    if wall is not None:
        point.wall, point.cause = wall.wall, wall.cause
    point.claim = _why(one, point, limit, way, on_cores)
    if ended == "interrupted" and one.outcome == "no-time":
        point.claim = Claim("sweep/stopped")
    return point


def _why(one: Tried, point: SweepPoint, limit: float | None, way: Way, on_cores: bool) -> Claim | None:
    """Why there are no figures, or what is to be said of them."""
    limits = {"limit_gib": _gib(limit), "predicted_gib": point.predicted_gib}
    if one.outcome == "measured":
        reserved = {**limits, "reserved_gib": point.predicted_reserved_gib}
        doubtful = "sweep/doubtful-on-cores" if on_cores else "sweep/doubtful"
        return Claim(doubtful, reserved) if point.is_doubtful else None
    counts = {"samples": way.samples, "steps": one.swept.steps if one.swept is not None else None}
    return Claim(f"sweep/{one.outcome}", {**limits, **counts}, known(error=one.why))


def _claims(
    found: Sweep, way: Way, shape: Shape | None, tried: Sequence[Tried], others: float | None
) -> list[Claim]:
    """What the points say, the answer first."""
    rates = {one.size: one.rate for one in tried if one.rate is not None}
    if not rates:
        return [Claim("sweep/nothing")]
    largest, predicted = max(rates), found.largest_predicted or 0
    sizes = {"largest": largest, "predicted": predicted, "limit_gib": found.limit_gib}
    is_all = way.samples is not None and 2 * predicted > way.samples
    dies = way.own if any(one.size == way.own and one.outcome == "out-of-memory" for one in tried) else None
    claims = [
        *([Claim("sweep/own-too-large", {"own": dies, "largest": largest})] if dies and way.loader else []),
        *_together(found, shape, rates),
        Claim("sweep/largest", {**sizes, "beyond": predicted > largest, "is_all": is_all}),
    ]
    claims += [Claim("sweep/counted-by-argument")] if _is_counted(found, tried) else []
    if found.ended == "interrupted":
        claims.append(Claim("sweep/interrupted"))
    elif any(one.outcome == "no-time" for one in tried):
        claims.append(Claim("sweep/out-of-time"))
    claims += [Claim("sweep/others-busy", {"cores": others})] if (others or 0.0) > FAIR_PART else []
    return [*claims, Claim("sweep/changes-training")]


def _together(found: Sweep, shape: Shape | None, rates: Mapping[int, float]) -> Iterator[Claim]:
    if shape is None:
        ((size, rate),) = rates.items()
        yield Claim("sweep/one-size", {"size": size, "rate": rate})
        return
    small = {"smallest": shape.smallest, "rate": rates[shape.smallest], "best_rate": rates[shape.best]}
    wall = {"wall": found.wall, "cause": found.cause}
    low, high = shape.plateau
    said = "sweep/no-plateau" if not shape.levels else "sweep/falls" if low == high else "sweep/plateau"
    yield Claim(said, {**small, **wall, "low": low, "high": high, "best": shape.best})
    if shape.knee is not None:
        yield Claim("sweep/knee", {"knee": shape.knee, "is_lower": shape.knee_is_lower})


def _is_counted(found: Sweep, tried: Sequence[Tried]) -> bool:
    """Whether no loader said how many samples a step has."""
    loaders = [loader for one in tried if one.swept is not None for loader in one.swept.fed]
    return found.varied == "argument" and not any(one.size for one in loaders)


def _gib(value: float | None) -> float | None:
    return None if value is None else value / GIB
