"""The communications of all ranks in one table, a rank's together and in order."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.model.summaries.rank_summary import COLUMNS, RankSummary

PAIR = "pair"  # the kind of sends and receives: one's send is the other's receive


class AllRows(msgspec.Struct, frozen=True):
    """All columns have one length, but for `first`."""

    numbers: tuple[int, ...]  # of the ranks, in order
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]  # of each group, as its ranks say; -1 unknown
    first: I64  # where each rank's rows begin; one more than there are ranks
    rank: I64  # its place among the ranks
    group: I64  # -> groups
    kind: I64  # -> kinds
    sends: I64  # 1: this end of a pair sends, -1: it receives, 0: no pair
    nbytes: I64
    stream: I64
    step: I64
    launched: F64  # ns since the first rank's trace began, as the ranks' own clocks have it
    start: F64
    end: F64
    ready: F64
    left: F64
    since: F64
    hosted: F64
    held: F64
    joins: Bool
    idle: F64
    spent: F64  # own progress until ready by DOINGS

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def ranks(self) -> int:
        return len(self.numbers)

    def of(self, rank: int) -> slice:
        return slice(int(self.first[rank]), int(self.first[rank + 1]))


def gather(summaries: list[RankSummary]) -> AllRows:
    """Ranks in the order given; those that do not say their number bear their place."""
    said = [one.rank for one in summaries]
    known = [number for number in said if number is not None]
    numbers = known if len(set(known)) == len(said) else list(range(len(said)))
    groups: dict[str, int] = {}
    kinds: dict[str, int] = {}
    sizes: dict[int, int] = {}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (*COLUMNS, "group", "kind", "sends")}
    parts |= {name: [] for name in ("nbytes", "stream", "rank", "spent")}
    origin = min((one.base_time_ns for one in summaries), default=0)
    for place, (summary, number) in enumerate(zip(summaries, numbers, strict=True)):
        told = _told(summary, number, groups, kinds)
        for group, size in zip(told["group"].tolist(), told.pop("size").tolist(), strict=True):
            sizes[group] = max(sizes.get(group, 0), size)
        messages, which = summary.messages, summary.messages.label
        for name, column in told.items():
            parts[name].append(column[which] if len(column) else which)
        for name in COLUMNS:
            moved = summary.base_time_ns - origin if name in ("launched", "start", "end") else 0
            parts[name].append(getattr(messages, name) + moved)
        parts["rank"].append(np.full(len(messages), place))
        parts["spent"].append(messages.spent())
    first = np.cumsum([0, *(len(one.messages) for one in summaries)])
    joined = {name: np.concatenate(columns) for name, columns in parts.items()}
    return AllRows(
        numbers=tuple(numbers),
        groups=tuple(groups),
        kinds=tuple(kinds),
        sizes=tuple(sizes[group] for group in range(len(groups))),
        first=first,
        joins=joined["joins"] > 0,
        spent=joined["spent"],
        rank=_whole(joined["rank"]),
        group=_whole(joined["group"]),
        kind=_whole(joined["kind"]),
        sends=_whole(joined["sends"]),
        nbytes=_whole(joined["nbytes"]),
        stream=_whole(joined["stream"]),
        step=_whole(joined["step"]),
        launched=_real(joined["launched"]),
        start=_real(joined["start"]),
        end=_real(joined["end"]),
        ready=_real(joined["ready"]),
        left=_real(joined["left"]),
        hosted=_real(joined["hosted"]),
        held=_real(joined["held"]),
        since=_real(joined["since"]),
        idle=_real(joined["idle"]),
    )


def _whole(column: np.ndarray) -> I64:
    found: I64 = column.astype(np.int64)
    return found


def _real(column: np.ndarray) -> F64:
    found: F64 = column.astype(np.float64)
    return found


def _told(summary: RankSummary, number: int, groups: dict[str, int], kinds: dict[str, int]) -> dict[str, I64]:
    """What a rank's labels say, as numbers that all ranks share."""
    group, kind, sends = [], [], []
    for label in summary.labels:
        name = label.group
        if label.is_pair and label.peer >= 0:
            name = f"{label.group} {min(number, label.peer)}-{max(number, label.peer)}".strip()
        group.append(groups.setdefault(name, len(groups)))
        kind.append(kinds.setdefault(PAIR if label.is_pair else label.kind, len(kinds)))
        sends.append({"send": 1, "recv": -1}.get(label.kind, 0))
    columns = {"group": group, "kind": kind, "sends": sends}
    columns["nbytes"] = [label.nbytes for label in summary.labels]
    columns["stream"] = [label.stream for label in summary.labels]
    columns["size"] = [2 if label.is_pair else label.members for label in summary.labels]
    return {name: np.array(values, np.int64) for name, values in columns.items()}
