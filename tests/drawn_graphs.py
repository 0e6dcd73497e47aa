"""Any graph, drawn for property tests: threads that hand over, streams, syncs, event waits, batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from findwall.model.causes import cause_index
from findwall.replay.graph import NOTHING, Graph, HostTime, Node

US = 1_000.0
PARTS = ("loader-starved", "gc-pause", "host-work")
OWNERS = ("host-sync", "copy-exposed", "allocator")
LENGTHS = st.integers(0, 60).map(lambda us: us * US)
DEFAULTS: dict[str, Any] = {"cause": -1, "turn": 0.0, "lag": NOTHING, "own": 0.0, "owner": -1, "row": -1}
DEFAULTS |= {"length": 0.0, "events": 0.0, "paced": False, "share": 0.0, "part": 0, "step": 0}


class Draft:
    """Nodes as they are added, in order; the graph once all are there."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.last: dict[int, int] = {}  # of each track
        self.first: dict[int, int] = {}

    def add(self, kind: Node, track: int, **columns: Any) -> int:
        at = len(self.nodes)
        self.first.setdefault(track, at)
        filled = {**DEFAULTS, "kind": kind, "track": track, "chain": self.last.get(track), **columns}
        self.nodes.append(filled)
        self.last[track] = at
        return at

    def row(self, track: int, row: int, **columns: Any) -> int:
        return self.add(Node.ROW, track, row=row, **columns)

    def column(self, name: str, dtype: Any = np.float64) -> Any:
        return np.array([node[name] for node in self.nodes], dtype)

    def graph(self, steps: int = 1, repeats: bool = True, **more: Any) -> Graph:
        count = len(self.nodes)
        for track, at in self.first.items():
            self.nodes[at]["chain"] = self.last[track] - count
        length, events = self.column("length"), self.column("events")
        share, which = self.column("share"), self.column("part", np.int64)
        parts = {
            name: HostTime(
                np.where(which == index, length * share, 0.0),
                np.where(which == index, events * share, 0.0),
                np.zeros(count),
            )
            for index, name in enumerate(PARTS)
        }
        turn = self.column("turn")
        if not repeats:  # as `build` has it: nothing came before
            kind, chain = self.column("kind", np.int64), self.column("chain", np.int64)
            first = np.isin(kind, (Node.ROW, Node.WAIT)) & (chain < 0)
            turn[first] = np.where(self.column("lag")[first] > NOTHING, NOTHING, np.maximum(turn[first], 0))
        columns: dict[str, Any] = {
            "kind": self.column("kind", np.uint8),
            "turn": turn,
            "host": HostTime(length, events, np.zeros(count)),
            "parts": {name: part for name, part in parts.items() if part.length.any()},
            "paced": self.column("paced", bool),
            "elsewhere": np.zeros(count),
            "inside": np.zeros(count),
            "freeing": np.zeros(count),
            "steps": steps,
            "on_cores": False,
            "repeats": repeats,
            "measured": frozenset(),
            "latency": 6 * US,
            "turnaround": US,
        }
        columns |= {name: self.column(name) for name in ("lag", "own")}
        whole = ("chain", "cause", "owner", "row", "track", "step")
        columns |= {name: self.column(name, np.int64) for name in whole}
        return Graph(**{**columns, **more})


@st.composite
def graphs(draw: st.DrawFn, streams: int = 3, threads: int = 2) -> Graph:
    """Tracks 0 … are threads, 10 … are streams, 20 is where batches come from."""
    repeats = draw(st.booleans())
    acts = draw(st.lists(ACTS, min_size=1, max_size=14))
    draft = Draft()
    rows: list[int] = []
    lag = st.sampled_from([0.0, 2 * US, 6 * US])
    mine = draw(st.integers(1, threads))
    for thread in range(mine):
        draft.add(Node.OPEN, thread)
    for act in acts:
        thread = draw(st.integers(0, mine - 1))
        stream = 10 + draw(st.integers(0, streams - 1))
        work = {"length": draw(LENGTHS), "events": float(draw(st.integers(0, 5)))}
        work |= {
            "share": draw(st.sampled_from([0.0, 0.5, 1.0])),
            "part": draw(st.integers(0, len(PARTS) - 1)),
        }
        if act == "launch":
            at = draft.add(Node.ISSUE, thread, row=1000 + len(draft.nodes), **work)
            for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
                turn = draw(st.sampled_from([-3 * US, 0.0, US]))
                columns = {"turn": turn, "own": draw(LENGTHS), "paced": draw(st.booleans())}
                rows.append(draft.row(stream, len(rows), cause=at, lag=draw(lag), **columns))
        elif act == "unknown":
            rows.append(draft.row(stream, len(rows), turn=draw(LENGTHS), own=draw(LENGTHS)))
        elif act == "sync" and rows:
            owner = cause_index(draw(st.sampled_from(OWNERS)))
            target = draw(st.sampled_from(rows))
            columns = {"cause": target, "lag": draw(lag), "owner": owner, "row": 1000 + len(draft.nodes)}
            draft.add(Node.RETURN, thread, **work, **columns)
        elif act == "wait" and rows:
            draft.add(Node.WAIT, stream, cause=draw(st.sampled_from(rows)), lag=draw(lag))
        elif act == "resume":
            other = [node for track, node in draft.last.items() if track < 10 and track != thread]
            if other:
                draft.add(Node.RESUME, thread, chain=other[0], **work)
        elif act == "batch":
            at = draft.add(Node.ARRIVAL, 20, length=draw(LENGTHS))
            owner = cause_index("loader-starved")
            draft.add(
                Node.RETURN, thread, cause=at, lag=0.0, owner=owner, row=1000 + len(draft.nodes), **work
            )
    for thread in range(mine):
        draft.add(Node.CLOSE, thread, length=draw(LENGTHS))
    return draft.graph(draw(st.integers(1, 2)), repeats)


ACTS = st.sampled_from(["launch", "launch", "launch", "unknown", "sync", "wait", "resume", "batch"])
GRAPHS = graphs()
ONE_STREAM = graphs(streams=1)
