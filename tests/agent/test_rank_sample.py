"""Which ranks of a large job are traced: chosen from small files, agreed through the run folder."""

from __future__ import annotations

import types

import msgspec
import pytest

from findwall.agent import rank_sample
from findwall.agent.ending.runfolder import RunFolder
from findwall.agent.membership import Membership
from findwall.agent.options import Options
from findwall.agent.rank_sample import Choice, RankTiming, choose, is_sampled, named, parsed, standing_out
from findwall.agent.stages import trace_stages
from findwall.agent.stages.trace_stages import Agree, Plan
from findwall.model.measurement import Measurement, StepColumns

MS = 1_000_000


def timings(ranks: int, machine: int = 8, **longer: float) -> list[RankTiming]:
    """`longer`: of rank r7, say, so many ms."""
    return [
        RankTiming(rank, f"node{rank // machine}", (50 + longer.get(f"r{rank}", 0.0)) * MS, rank % 3 * 1000)
        for rank in range(ranks)
    ]


def test_what_a_person_may_ask_for():
    assert [parsed(text) for text in (None, "all", "12", "3-5,0")] == [
        None,
        "all",
        12,
        (0, 3, 4, 5),
    ]
    for text in ("0", "some", "1-", "-3", "1,,2", ""):
        with pytest.raises(ValueError):
            parsed(text)
    assert [is_sampled(None, size) for size in (16, 17)] == [False, True]
    assert not is_sampled("all", 64) and not is_sampled("0,1", 64) and is_sampled("4", 8)
    assert not is_sampled("8", 8)
    assert named("2,3") == [2, 3] and named("all") is None and named(None) is None


def test_some_of_each_machine_are_traced_from_other_places():
    chosen = choose(None, timings(128))
    assert len(chosen) == 32 and 0 in chosen
    assert {rank // 8: 0 for rank in chosen}.keys() == set(range(16))
    assert {rank % 8 for rank in chosen} == set(range(8))


def test_few_machines_give_as_many_ranks_as_many_do():
    assert len(choose(None, timings(32, machine=16))) == 16
    assert choose("3", timings(32, machine=16))[0] == 0
    assert len(choose("3", timings(32, machine=16))) == 3


def test_whose_timing_stands_out_is_traced_too():
    odd = timings(64, r29=8.0, r30=1.0)
    assert standing_out(odd) == [29]
    assert 29 in choose(None, odd) and 29 in choose("4", odd)
    starved = [msgspec.structs.replace(one, loader_ns=30.0 * MS) if one.rank == 5 else one for one in odd]
    assert standing_out(starved) == [5, 29]
    assert standing_out(timings(64)) == [] and standing_out([]) == []


def test_the_choice_waits_for_files_and_not_for_ever(tmp_path, monkeypatch):
    told = timings(4)
    choice = Choice(tmp_path, "2", told[0], 4)
    assert choice.ranks() is None
    for one in told[1:]:
        RunFolder(tmp_path, Membership(one.rank, 4)).write_timing(one)
    found = None
    while found is None:
        found = choice.ranks()
    assert len(found) == 2 and 0 in found
    monkeypatch.setattr(rank_sample, "WAIT_NS", 0)
    assert Choice(tmp_path / "nowhere", "2", told[0], 4).ranks() == [0]


def engine(tmp_path, rank: int, size: int, asked: str | None) -> types.SimpleNamespace:
    member = Membership(rank, size, "job")
    steps = StepColumns([MS] * 4, [None] * 4, [0] * 4, [0] * 4, [0] * 4, [1] * 4, [0] * 4, [False] * 4)
    record = Measurement(rank=rank, world_size=size, steps=steps, node="here")
    entered: list[str] = []
    return types.SimpleNamespace(
        rank=member,
        record=record,
        settle_folder=lambda: RunFolder(tmp_path, member),
        folder=RunFolder(tmp_path, member),
        options=Options(trace_ranks=asked, memory=False),
        step_number=100,
        prefetched=0,
        usual_ns=float(MS),
        kinds=[],
        device=None,
        entered=entered,
        enter=lambda stage: entered.append(type(stage).__name__),
    )


def test_ranks_agree_on_steps_and_on_who_is_traced(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_stages, "PLAN_LOOK_NS", -1)
    monkeypatch.setattr(trace_stages, "Lines", type("Lines", (), {"__init__": lambda self, engine: None}))
    monkeypatch.setattr(
        trace_stages, "Tracing", type("Tracing", (), {"__init__": lambda self, engine, steps: None})
    )
    engines = [engine(tmp_path, rank, 3, "2") for rank in range(3)]
    stages = [Agree(one) for one in engines]
    for _ in range(300):
        for one, stage in zip(engines, stages, strict=True):
            one.step_number += 1
            if not one.entered:
                stage.step(one, trace_stages.perf_counter_ns())
    plan = msgspec.json.decode((tmp_path / "plan.json").read_bytes(), type=Plan)
    assert plan.ranks is not None and len(plan.ranks) == 2 and plan.ranks[0] == 0
    traced = [["Tracing"] if rank in plan.ranks else ["Lines"] for rank in range(3)]
    assert [one.entered for one in engines] == traced
    assert [one.record.trace.others_are for one in engines] == [rank not in plan.ranks for rank in range(3)]
