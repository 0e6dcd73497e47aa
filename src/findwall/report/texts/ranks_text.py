"""The ranks of a job in a few lines: how they spread, and who is late. Never a line a rank."""

from __future__ import annotations

from findwall.model.answers.ranks_answer import GroupRow, RanksTogether, ShardingRow, Spread, Suspect
from findwall.report.printable_names import clean
from findwall.report.words.amounts import count_of
from findwall.units import format_bytes, format_ms, format_share, in_short

_FOR = {
    "device": "on the device",
    "copy": "in copies",
    "loader": "in the loader",
    "gc": "in garbage collection",
    "host": "on the host",
    "link": "in transfers",
}
_NOBODY = {
    "uneven": "another rank is last each step",
    "even": "nobody: no rank costs the others anything worth it",
    "unknown": "unknown: that takes several steps",
}


TRANSPORTS_NAMED = 4
_CARRIES = {
    "measured": "and the link was measured at",
    "table": "and the link carries",
    "peers": "and such groups reach",
}


def facts(ranks: RanksTogether | None) -> list[tuple[str, str]]:
    """A label and its text each; of one rank alone only what it can tell."""
    if ranks is None:
        return []
    more = {
        "layout": _layout(ranks),
        "pipeline": _pipeline(ranks),
        "links": _links(ranks),
        "sharding": _sharding(ranks),
        "nccl": _transports(ranks),
        "scaling": _scaling(ranks),
    }
    return _together(ranks) + [(label, text) for label, text in more.items() if text]


def _together(ranks: RanksTogether) -> list[tuple[str, str]]:
    named = next((one for one in ranks.suspects if one.named), None)
    if ranks.why_not:
        return [] if named is None else [("late", _late(named))]
    found = [("ranks", _compared(ranks))]
    if ranks.own is not None and ranks.waits is not None:
        share = f" · {format_share(ranks.efficiency)} of the step" if ranks.efficiency is not None else ""
        found.append(("own work", f"{_three(ranks.own)} per step (min, median, max of the ranks){share}"))
        found.append(("waiting", f"{_three(ranks.waits)} per step"))
    found.append(("late", _late(named) if named is not None else _nobody(ranks)))
    return found


def _layout(ranks: RanksTogether) -> str:
    """Groups whose use is known, each sort once."""
    sorts: dict[tuple[str, int | None], list[GroupRow]] = {}
    for one in ranks.groups:
        if one.role is not None:
            sorts.setdefault((one.role, one.ranks), []).append(one)
    return " · ".join(_groups(role, size, alike) for (role, size), alike in sorts.items())


def _groups(role: str, size: int | None, alike: list[GroupRow]) -> str:
    many = count_of(sum(one.groups for one in alike), "group")
    of = f" of {size}" if size else ""
    sent = [one.sent_bytes for one in alike if one.sent_bytes is not None]
    told = f", {format_bytes(sum(sent))} per step and rank" if len(sent) == len(alike) else ""
    across = " across nodes" if any(one.across_nodes for one in alike) else ""
    return f"{role} parallel: {many}{of}{told}{across}"


def _pipeline(ranks: RanksTogether) -> str:
    if ranks.bubble_share is None:
        return ""
    text = f"{format_share(ranks.bubble_share)} of the stages' time is waiting"
    if ranks.bubble_expected is None or ranks.micro_batches is None:
        return f"{text}; how many micro-batches a step has is unknown"
    expected = format_share(ranks.bubble_expected)
    return (
        f"{text}; {ranks.stages} even stages and {ranks.micro_batches} micro-batches would leave {expected}"
    )


def _links(ranks: RanksTogether) -> str:
    """The message that takes longest."""
    if not ranks.links:
        return ""
    one = ranks.links[0]
    text = f"{clean(one.kind)} of {format_bytes(one.bytes)} over {one.ranks} ranks"
    if one.busbw_gbps is None:
        return f"{text}: its rate is unknown without the other ranks of its group"
    text += f": {one.busbw_gbps:.3g} GB/s on the bus"
    if one.link_gbps is None:
        return text
    return f"{text}, {_CARRIES[one.link_source or 'table']} {one.link_gbps:.0f} GB/s"


def _sharding(ranks: RanksTogether) -> str:
    """Bytes a rank sends as it is, and by ZeRO's stages where they differ."""
    if not ranks.sharding or ranks.sharding[0].least_ms is None:
        return ""
    now = next(one for one in ranks.sharding if one.stage == 0)
    others = [one for one in ranks.sharding if one.stage and one.sent_bytes != now.sent_bytes]
    told = [f"ZeRO-{one.stage} {_sent(one)}" for one in others]
    return ", ".join([f"each rank sends {_sent(now)} of gradients per step", *told])


def _sent(one: ShardingRow) -> str:
    least = f" (at least {format_ms(one.least_ms)})" if one.least_ms is not None else ""
    took = f" ({format_ms(one.ms)})" if one.ms is not None else least
    return f"{format_bytes(one.sent_bytes)}{took}"


def _transports(ranks: RanksTogether) -> str:
    told = ", ".join(
        f"{count_of(one.connections, 'pair')} by {clean(one.via)}" for one in ranks.transports[:4]
    )
    return f"connects {told}" if told else ""


def _scaling(ranks: RanksTogether) -> str:
    one = ranks.scaling
    if one is None:
        return ""
    spread = ""
    if one.low is not None and one.high is not None and one.low < one.high:
        spread = f" ({format_share(one.low)} to {format_share(one.high)})"
    text = f"{format_share(one.efficiency)}{spread} from {one.baseline_ranks} ranks to {one.ranks}"
    return text if one.basis == "throughput" else f"{text}, if a rank does the same work in a step of both"


def _compared(ranks: RanksTogether) -> str:
    parts = [f"{ranks.compared} compared"]
    parts += [count_of(ranks.nodes, "node")] if ranks.nodes else []
    parts += [f"{ranks.stages} stages"] if ranks.stages else []
    parts.append(f"{ranks.matched:,} of {ranks.messages:,} communications matched")
    parts += [f"{ranks.timed:,} only timed"] if ranks.timed else []
    if ranks.missing_count:
        parts.append(_missing(ranks))
    return " · ".join(parts)


def _missing(ranks: RanksTogether) -> str:
    """By number, as long as those are told."""
    one = ranks.missing_count == 1
    if ranks.missing_count > len(ranks.missing):
        return f"{ranks.missing_count:,} ranks are not here"
    return f"{'rank' if one else 'ranks'} {in_short(ranks.missing)} {'is' if one else 'are'} not here"


def _three(spread: Spread) -> str:
    return f"{format_ms(spread.min)} / {format_ms(spread.median)} / {format_ms(spread.max)}"


def _late(one: Suspect) -> str:
    if one.by == "timing":
        return (
            f"{one.what} {clean(one.name)}, slow by timing: its steps take {format_ms(one.excess_ms)} longer "
            "than the others'; it was not traced"
        )
    where = f" at {clean(one.line)}" if one.line else ""
    why = f" {_FOR[one.why]}" if one.why else ""
    return (
        f"{one.what} {clean(one.name)}{where}: {format_ms(one.excess_ms)} longer than its peers{why}; "
        f"as they are, it would save {format_ms(one.saves_ms)} per step"
    )


def _nobody(ranks: RanksTogether) -> str:
    text = _NOBODY.get(ranks.pattern, "")
    if ranks.timed and ranks.pattern == "even":
        text = "nobody of those traced: none costs the others anything worth it"
    if ranks.pattern == "uneven" and ranks.all_level_ms and ranks.step_ms:
        share = format_share(ranks.all_level_ms / ranks.step_ms)
        text += f"; even work would save {format_ms(ranks.all_level_ms)} ({share})"
    return text
