"""How a job is spread over its ranks, and what its links carry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from findwall.machine.gpu_table import GPUS
from findwall.machine.link_table import LINKS, bus_share, link_of
from findwall.model.answers.ranks_answer import LinkRow, RanksTogether
from findwall.model.events import ProcessGroup
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.compared_ranks import compare
from findwall.ranks.link_rates import held_against
from findwall.ranks.parallelism import even_bubble, role_of
from findwall.ranks.reduced.summarising import summarise
from findwall.readers.torch_trace.header import read_header
from findwall.report.texts.ranks_text import facts
from planted import PLANTED, loaded


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("mesh_tp", "tensor"),
        ("mesh_dp_shard", "data"),
        ("mesh_dp_shard_cp", "data"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None),
        ("default_pg", None),
        ("undefined", None),
        ("stamp", None),
    ],
)
def test_a_group_is_what_the_job_calls_it(description: str, role: str | None) -> None:
    assert role_of(description) == role


def summaries(fault: str, ranks: int) -> list[RankSummary]:
    made = map(summarise, PLANTED.plant(fault, ranks, seed=1).timelines)
    return [one for one in made if one is not None]


def test_stages_micro_batches_and_the_bubble_of_even_stages() -> None:
    answer = compare(summaries("long-stage", 16)).answer
    assert answer.micro_batches == PLANTED.MICRO_BATCHES
    expected = (PLANTED.STAGES - 1) / (PLANTED.MICRO_BATCHES + PLANTED.STAGES - 1)
    assert answer.bubble_expected == pytest.approx(expected)
    pairs = next(one for one in answer.groups if one.role == "pipeline")
    assert (pairs.groups, pairs.ranks, pairs.told_by) == (12, 2, "traffic")
    said = dict(facts(answer))
    assert "4 even stages and 8 micro-batches would leave 27 %" in said["pipeline"]
    assert len(said) < 10  # a few lines, however many ranks


@pytest.mark.parametrize(("name", "batches"), [("AR", 32), ("ST", 4)])
def test_micro_batches_of_recorded_jobs(shared: Path, name: str, batches: int) -> None:
    path = shared / "ranks_jobs" / f"{name}.npz"
    if not path.is_file():
        pytest.skip("the recorded jobs are not beside the project")
    answer = compare(loaded("recorded_ranks").summaries_of(path, 3)).answer
    assert answer.micro_batches == batches
    assert answer.bubble_expected == even_bubble(4, batches)
    assert answer.bubble_share is not None and answer.bubble_share > answer.bubble_expected


def test_a_group_that_is_not_whole_has_no_rate() -> None:
    made = summaries("nothing", 16)
    whole = compare(made).answer
    rates = [one.busbw_gbps for one in whole.links if one.ranks == 16]
    assert rates and all(rate is not None for rate in rates)
    part = compare(made[:12]).answer
    assert [one.algbw_gbps for one in part.links if one.ranks == 12] == [None] * len(rates)
    assert "unknown" in dict(facts(part))["links"] or part.links[0].algbw_gbps is not None


def test_a_name_goes_before_strides_and_strides_before_nothing() -> None:
    made = summaries("slow-link", 16)
    names = sorted({label.group for label in made[0].labels if label.group.startswith("shard")})
    named = [
        replace(one, groups=tuple(ProcessGroup(label.group, "mesh_tp", 8) for label in one.labels))
        for one in made
    ]
    roles = {one.role: one for one in compare(named).answer.groups}
    assert names and roles["tensor"].told_by == "name"
    assert roles["tensor"].across_nodes is not None


def test_each_link_is_of_a_known_card_and_below_its_memory() -> None:
    assert set(LINKS) <= set(GPUS)
    assert all(1e9 < spec.rate < GPUS[name].bandwidth and spec.source for name, spec in LINKS.items())
    found = link_of("NVIDIA H200")
    assert found is not None and found.rate == 450e9
    assert link_of("NVIDIA H200 NVL") is None  # with a bridge or without: the name does not say


def test_bytes_that_a_rank_sends_for_a_byte_of_message() -> None:
    assert [bus_share("all_reduce", 8), bus_share("all_gather", 8), bus_share("pair", 2)] == [1.75, 0.875, 1]
    assert bus_share("dispatch", 8) is None and bus_share("all_reduce", 1) is None


def row(group: str, rate: float, nbytes: int = 64 << 20) -> LinkRow:
    return LinkRow("all_reduce", group, 8, 1.0, nbytes, 1.0, rate, rate)


def test_a_rate_is_held_against_the_link_measured_or_of_the_table_or_its_peers() -> None:
    inside = RanksTogether(8, 0, 0, nodes=1, links=[row("a", 225), row("b", 500), row("c", 9, 4096)])
    held_against(inside, None, "NVIDIA H200")
    assert [one.link_source for one in inside.links] == ["table"] * 3
    # More than the link carries is no share of it, and a small message says nothing of a link.
    assert [one.link_share for one in inside.links] == [0.5, None, None]
    held_against(inside, 300e9, "NVIDIA H200")
    assert inside.links[0].link_gbps == pytest.approx(300) and inside.links[0].link_source == "measured"
    spread = RanksTogether(16, 0, 0, nodes=2, links=[row("a", 20), row("b", 40)])
    held_against(spread, None, "NVIDIA H200")
    assert [one.link_share for one in spread.links] == [0.5, 2.0]
    alone = RanksTogether(8, 0, 0, links=[row("a", 20)])
    held_against(alone, None, "NVIDIA H200")  # nobody knows whether they are in one machine
    assert alone.links[0].link_gbps is None


def test_efficiency_is_what_is_left_without_waiting() -> None:
    answer = compare(summaries("nothing", 16)).answer
    assert answer.efficiency is not None and answer.own is not None and answer.step_ms is not None
    assert answer.efficiency == pytest.approx(answer.own.median / answer.step_ms)
    assert np.isclose(answer.efficiency, 1, atol=0.3)


def test_groups_are_read_from_the_traces_own_list() -> None:
    said = {
        "world_size": 8,
        "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": []},
            {"pg_name": "1", "pg_desc": "mesh_dp", "pg_size": 4, "ranks": [1, 3, 5, 7]},
            {"pg_name": "2", "pg_desc": 7, "pg_size": 3, "ranks": [0, 1, 5]},
            {"pg_name": "3", "pg_size": 1, "ranks": [0]},
            {"pg_name": "4", "pg_size": 4, "ranks": ["all"]},
            "odd",
        ],
    }
    assert read_header({"distributedInfo": said}).groups == (
        ProcessGroup("0", "default_pg", 8, 0, 1),
        ProcessGroup("1", "mesh_dp", 4, 1, 2),
        ProcessGroup("2", "", 3, 0, 0),
        ProcessGroup("4", "", 4, -1, 0),
    )
    assert read_header({"distributedInfo": {"pg_config": {"0": 1}}}).groups == ()
