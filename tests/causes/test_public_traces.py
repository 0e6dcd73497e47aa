"""Traces of public projects, where they lie beside this one: what is known of each must be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.causes import all_causes
from findwall.causes.verdict import Verdict, decide
from findwall.examine.establish import establish
from findwall.examine.ranks import compare_ranks, speaker_of, with_ranks
from findwall.facts.facts import Facts
from findwall.facts.step_views import split_by_phase
from findwall.machine.hardware import table_ceilings
from findwall.model.catalogue import WALLS
from findwall.model.measured_run import Rank, Run
from findwall.readers.torch_trace import read_trace
from findwall.step.step_facts import CUT_AWAY, START_UP
from speaking import in_words, texts


@pytest.fixture(scope="module")
def traces(shared: Path) -> Path:
    return shared / "traces"


def facts_of(path: Path) -> Facts:
    timeline = read_trace(path)
    devices = timeline.header.devices
    rank = Rank(timeline.header.rank or 0, timeline)
    run = Run("torch-trace", (str(path),), (rank,))
    facts = establish(run, rank, table_ceilings(devices[0].name if devices else ""), None, "trace")
    assert facts is not None
    return facts


def spoken(facts: Facts, verdict: Verdict) -> str:
    assert verdict.cause is not None
    text: str = in_words(all_causes()[verdict.cause], facts)
    return text


def test_a_loader_without_workers_starves_the_device(traces: Path) -> None:
    facts = facts_of(traces / "v100_resnet50_workers0.json.gz")
    verdict = decide(facts)
    assert (verdict.wall, verdict.cause) == ("data", "loader-starved")
    assert "resnet50_profiler_api.py:42" in spoken(facts, verdict)


def test_with_workers_it_does_not(traces: Path) -> None:
    assert decide(facts_of(traces / "v100_resnet50_workers4.json.gz")).wall != "data"


def test_the_backward_pass_of_an_old_trace_is_not_its_forward(traces: Path) -> None:
    """torch 1.8 records the engine's nodes and no ranges around them."""
    phases = split_by_phase(facts_of(traces / "v100_resnet50_workers0.json.gz"))
    assert phases["backward"] > 1.5 * phases["forward"] > 0


def test_eager_serving_is_bound_by_launches(traces: Path) -> None:
    verdict = decide(facts_of(traces / "b200_vllm_tp8_rank0.json.gz"))
    assert (verdict.wall, verdict.cause) == ("overhead", "launch-bound")


def test_without_shapes_kernel_names_still_tell_fp32(traces: Path) -> None:
    facts = facts_of(traces / "v100_cnn_ns_timestamps.json.gz")
    verdict = decide(facts)
    assert verdict.cause == "fast-path-off"
    assert "no shapes: record_shapes=True" in spoken(facts, verdict)


def test_without_shapes_gaps_still_tell(traces: Path) -> None:
    facts = facts_of(traces / "a100_cnn_ddp_rank0_of_2.json.gz")
    assert decide(facts).wall == "overhead"
    assert facts.spent_ms("unknown") > 0  # the convolutions, whose work nobody recorded


def test_library_transposes_are_known_by_name_alone(traces: Path) -> None:
    facts = facts_of(traces / "mi210_no_cpu_events.json.gz")
    copies = facts.recoverable_ms("layout-copies")
    assert copies is not None and copies > 0.1 * facts.step / 1e6
    assert "channels_last" in in_words(all_causes()["layout-copies"], facts)
    # The convolutions, whose work nobody recorded, may be worth more.
    assert facts.spent_ms("unknown") > copies
    assert decide(facts).cause is None


def test_a_slow_kernel_of_milliseconds_is_not_bound_by_launches(traces: Path) -> None:
    facts = facts_of(traces / "mi300x_attention_large_heads.json.gz")
    verdict = decide(facts)
    assert (verdict.wall, verdict.cause) == ("compute", "slow-kernels")
    assert "reaches 12 %" in spoken(facts, verdict)


def test_a_trace_that_lacks_kernels_says_so(traces: Path) -> None:
    facts = facts_of(traces / "recsys_rank0_of_128.json.gz")
    assert "lacks rows" in " ".join(facts.reading.notes)
    assert facts.spent_ms("host-work") == 0


def test_a_slice_of_a_longer_trace_is_read_without_what_it_does_not_hold(traces: Path) -> None:
    facts = facts_of(traces / "mi300x_sglang_decode" / "sglang_Qwen3-8B_decode.json.gz")
    assert facts.step / 1e6 == pytest.approx(9.8, rel=0.06)
    assert facts.whole.left_out.of(CUT_AWAY).length / 1e6 == pytest.approx(463, abs=1)
    for cause in (*WALLS["overhead"], *WALLS["data"]):
        assert facts.share(cause) < 0.05


@pytest.mark.parametrize(
    ("name", "recorded_ms"), [("mi300x_norm_layers_first_calls", 1_090), ("a100_alexnet_cuda_sync", 40_000)]
)
def test_a_trace_of_first_calls_gets_no_wall(traces: Path, name: str, recorded_ms: float) -> None:
    facts = facts_of(traces / f"{name}.json.gz")
    verdict = decide(facts)
    assert (verdict.cause, verdict.why_not) == (None, "start-up")
    assert facts.whole.left_out.of(*START_UP).length / 1e6 >= recorded_ms


def test_a_kernel_of_unknown_grid_is_not_too_small(traces: Path) -> None:
    verdict = decide(facts_of(traces / "mi300x_attention_large_heads.json.gz"))
    assert (verdict.wall, verdict.cause) == ("compute", "slow-kernels")


def test_heuristics_for_every_new_shape_are_set_up_not_host_work(traces: Path) -> None:
    facts = facts_of(traces / "b200_vllm_tp8_rank0.json.gz")
    shown = all_causes()["recompilation"].evidence(facts)
    assert shown[0].op == "aten::addmm"
    assert "3 new shapes" in texts(shown)[0]


def test_how_ranks_entered_the_recording_blames_nobody(traces: Path) -> None:
    """Of the 11 ms of collectives 7.6 are how the profilers were started. One step names no rank."""
    ranks = [facts_of(path) for path in sorted((traces / "v100_dlrm_8_ranks").glob("*.json.gz"))]
    findings = compare_ranks(ranks)
    assert findings is not None
    answer = findings.answer
    assert answer.entry_skew_ms == pytest.approx(7.62, abs=0.01)
    assert answer.clock_residual_us is not None and answer.clock_residual_us < 10
    assert answer.replay_error == pytest.approx(0, abs=0.02)
    assert answer.pattern == "unknown" and findings.named is None
    assert (answer.suspects[0].name, answer.suspects[0].why) == ("7", "host")
    at = speaker_of(ranks, findings)
    first = with_ranks(ranks[at], findings, at)
    assert first.spent().total == pytest.approx(first.step)
    assert first.recoverable()["straggler"] <= findings.saves["straggler"] < 2e6


def test_ranks_that_share_five_collectives_match_five(traces: Path) -> None:
    ranks = [facts_of(traces / f"recsys_rank{number}_of_128.json.gz") for number in range(2)]
    findings = compare_ranks(ranks)
    assert findings is not None and findings.answer.matched == 2 * 5 and findings.named is None


def test_one_of_the_ranks_alone_cannot_know(traces: Path) -> None:
    facts = facts_of(traces / "v100_dlrm_8_ranks" / "worker0.pt.trace.json.gz")
    verdict = decide(facts)
    # Behind the collectives stands a host whose own time the profiler decides.
    assert verdict.between == ("exposed-collective", "launch-bound")
    assert "cannot tell" in in_words(all_causes()["exposed-collective"], facts)


@pytest.mark.parametrize("name", ["h100_qwen_forward", "mi300x_qwen_forward"])
def test_the_same_forward_pass_on_two_vendors(traces: Path, name: str) -> None:
    facts = facts_of(traces / f"{name}.json.gz")
    assert decide(facts).cause == "unfused-pointwise"
    assert any(one.line for one in all_causes()["unfused-pointwise"].evidence(facts))
