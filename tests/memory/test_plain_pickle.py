"""A snapshot is decoded as an unpickler would, and nothing in it runs."""

from __future__ import annotations

import pickle
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from findwall.memory.snapshots import event_windows, stack_bodies
from findwall.memory.snapshots.pickled_values import RefusedError, Rows
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.model.memory_history import ACTIONS
from memory_samples import cpp_pickle, torch_2_0, torch_2_15, trained


def events(decoder: PlainPickle, document: Any) -> list[dict[str, Any]]:
    """What the columns say, as the dicts they were made of."""
    frames, stacks = list(decoder.frames), list(decoder.stacks)
    found = []
    for trace in document["device_traces"]:
        for rows in trace:
            assert isinstance(rows, Rows)
            for row in range(rows.start, rows.end):
                columns = decoder.columns
                found.append(
                    {
                        "action": ACTIONS[columns.action[row]],
                        "addr": columns.address[row],
                        "size": columns.size[row],
                        "time_us": columns.time[row],
                        "frames": [frames[frame] for frame in stacks[columns.stack[row]]],
                    }
                )
    return found


def expected(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "action": event["action"],
            "addr": event["addr"] % (1 << 64),
            "size": event["size"],
            "time_us": event.get("time_us", -1),
            "frames": [(one["name"], one["filename"], one["line"]) for one in event["frames"]],
        }
        for trace in snapshot["device_traces"]
        for event in trace
    ]


WRITERS = {
    "python 2": lambda one: pickle.dumps(one, 2),
    "python 3": lambda one: pickle.dumps(one, 3),
    "python 4": lambda one: pickle.dumps(one, 4),
    "python 5": lambda one: pickle.dumps(one, 5),
    "c++": cpp_pickle,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("version", [lambda one: one, torch_2_0, torch_2_15], ids=["plain", "2.0", "2.15"])
def test_columns_hold_what_was_pickled(writer: str, version: Any) -> None:
    """Enough events for frames of the format and batches of lists to end in their midst."""
    snapshot = version(trained(steps=60).snapshot())
    decoder = PlainPickle(WRITERS[writer](snapshot))
    assert events(decoder, decoder.load()) == expected(snapshot)
    assert len(decoder.columns) > 4096


@pytest.mark.parametrize("writer", ["python 4", "c++"])
def test_a_form_may_be_missing_for_a_while(monkeypatch: pytest.MonkeyPatch, writer: str) -> None:
    """Sizes take one byte here, five there: stretches of the file have forms that others do not have."""
    monkeypatch.setattr(event_windows, "WINDOW_BYTES", 4096)
    snapshot = trained(steps=60).snapshot()
    for number, event in enumerate(snapshot["device_traces"][0]):
        event["size"] = (100, 1 << 20, 1 << 40)[number // 500 % 3]
    decoder = PlainPickle(WRITERS[writer](snapshot))
    assert events(decoder, decoder.load()) == expected(snapshot)


def test_stacks_that_hash_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_windows, "WINDOW_BYTES", 1 << 15)
    monkeypatch.setattr(stack_bodies, "_hashes", lambda written, length: np.zeros(len(length), np.uint64))
    snapshot = torch_2_15(trained(steps=60).snapshot())
    decoder = PlainPickle(pickle.dumps(snapshot, 4))
    assert events(decoder, decoder.load()) == expected(snapshot)


def test_nearly_all_events_are_taken_by_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = torch_2_15(trained(steps=300).snapshot())
    decoder = PlainPickle(pickle.dumps(snapshot, 4))
    singly: list[Any] = []
    monkeypatch.setattr(
        decoder, "_add", lambda event: singly.append(event) or PlainPickle._add(decoder, event)
    )
    decoder.load()
    assert 0 < len(singly) < 0.02 * len(decoder.columns)


class Runs:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pickle.dumps(Runs(), 4), r"wants to import 'builtins\.exec'"),
        (pickle.dumps(Runs(), 2), r"wants to import '(__builtin__|builtins)\.exec'"),
        (pickle.dumps({"segments": [Runs()]}, 4), r"wants to import"),
        (b"\x80\x02cos\nsystem\n.", r"wants to import 'os\.system'"),
        (b"\x80\x02(S'ls'\nios\nsystem\n.", r"no plain data|wants to import"),
        (b"\x80\x02)R.", r"wants to call something \(REDUCE\)"),
        (b"\x80\x04}}b.", r"wants to call something \(BUILD\)"),
        (b"\x80\x04\x8c\x01aQ.", r"no plain data \(BINPERSID\)"),
        (b"\x80\x04r\xff\xff\xff\xff.", r"damaged|cut off"),  # asks an unpickler's memo for 32 GiB
        (b"\x80\x04]r\xff\xff\xff\xff.", r"damaged"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", r"cut off"),
        (b"\x80\x04\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", r"no plain data \(BYTEARRAY8\)"),
        (b"\x80\x04" + b"(" * 100_000, r"lists in lists"),
        (b"\x80\x04" + b"]\x94" * 3 + b"h\x09.", r"cut off"),
        (b"\x80\x04]\x94}\x94(K\x00h\x01uah\x00a.", r"damaged|cut off|."),
        (b"\x80\x09.", r"protocol"),
        (b"{}", r"begin"),
        (b"\x80\x04", r"cut off"),
    ],
)
def test_what_is_no_plain_data_is_refused_by_name(data: bytes, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        PlainPickle(data).load()
        raise RefusedError(".")  # harmless plain data, refused for its shape later


def test_an_event_in_two_places_is_refused() -> None:
    snapshot = trained().snapshot()
    snapshot["device_traces"].append([snapshot["device_traces"][0][5]])
    with pytest.raises(RefusedError, match="twice"):
        PlainPickle(pickle.dumps(snapshot, 4)).load()


@pytest.mark.parametrize("writer", ["python 4", "c++"])
def test_cut_and_mutated_pickles_are_refused_or_read(writer: str) -> None:
    """Whatever bytes: plain data comes out or a refusal, never another error."""
    whole, chance = WRITERS[writer](torch_2_15(trained(steps=3).snapshot())), random.Random(7)
    for _ in range(150):
        data = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.3 else whole)
        for _ in range(chance.randrange(1, 4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(RefusedError):
            PlainPickle(bytes(data)).load()


def test_every_cut_is_refused() -> None:
    whole = pickle.dumps(trained().snapshot(), 4)
    for end in range(0, len(whole), 97):
        with pytest.raises(RefusedError):
            PlainPickle(whole[:end]).load()
