"""Every fix: a job it helps, with what it says to do there, and one it cannot help, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from findwall.attribute.facts import Facts
from findwall.fixes import CannotTell, Use, all_fixes
from findwall.fixes.prescribe import prescribe, step_at_best
from findwall.hardware import table_ceilings
from findwall.model.events import Kind
from findwall.model.machine import CpuUse, Telemetry
from findwall.model.run import HostLine, StepTimes
from findwall.readers import read_trace
from findwall.units import ms
from findwall.walls.verdict import decide
from fixes.recorded import as_collectives, job, on_another_gpu, with_cause
from sketch import KERNELS, Drawn, facts_of, hosts_own, sketch

FIXES = all_fixes()
Case = tuple[Callable[[], Facts], str]  # a job, and words of the answer


def syncing() -> Facts:
    """The host asks for a value after every kernel, and the device waits for it."""
    return facts_of(
        sketch(
            steps="|           |           |           ",
            cpu="osssnnnonnnnosssnnnonnnnosssnnnonnnn",
            gpu=" k b   k    k b   k    k b   k      ",
        )
    )


def through_gloo(device_kind: str = "gpu") -> Facts:
    """Two thirds of each step are an all-reduce on the host, with copies there and back."""
    timeline = sketch(
        steps="|          |          |          ",
        cpu="o qqqqqqo  o qqqqqqo  o qqqqqqo   \n  s    c     s    c     s    c",
        gpu="mm b   h m mm b   h m mm b   h m",
    )
    facts = facts_of(timeline, step_ms=11)
    return replace(facts, rank=replace(facts.rank, device_kind=device_kind))


def on_one_core(used: float = 1.0) -> Facts:
    """Products of a CPU job on one of eight cores."""
    product = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000])
    timeline = sketch("oooo" * 3, "kKkK" * 3, "|   " * 3, kernels={"k": product}, device="")
    cpu = CpuUse(cores=8, own_busy=used, others_busy=0.0)
    return facts_of(hosts_own(timeline), device_kind="cpu", telemetry=Telemetry(cpu=cpu))


def at(name: str) -> Callable[[], Facts]:
    return lambda: job(name)


def given(name: str, cause: str) -> Callable[[], Facts]:
    return lambda: with_cause(job(name), cause)


def talking(name: str) -> Callable[[], Facts]:
    return lambda: as_collectives(job(name))


HELPS: dict[str, Case] = {
    "accumulate-gradients": (talking("plain_adamw"), "no_sync"),
    "autotune-kernels": (at("plain_adamw"), "max-autotune"),
    "balance-ranks": (given("plain_adamw", "straggler"), "late rank"),
    "better-hardware": (at("decode_graph"), "memory bandwidth"),
    "bf16-autocast": (at("conv_fp32"), "dtype=torch.bfloat16"),
    "bucket-collectives": (talking("plain_adamw"), "bucket_cap_mb"),
    "builtin-ops": (at("handwritten_gelu"), "F.gelu(x, approximate='tanh')"),
    "channels-last": (at("layout_flips"), "memory_format=torch.channels_last"),
    "cuda-graphs": (at("inference"), "torch.cuda.graph"),
    "reduce-overhead": (at("inference"), 'mode="reduce-overhead"'),
    "custom-kernels": (at("graph_messages"), "aten::gather"),
    "faster-link": (talking("plain_adamw"), "nvidia-smi topo -m"),
    "fewer-casts": (at("upcast_tower"), "[262144×512]"),
    "fewer-copies": (at("layout_flips"), "[128×256×56×56]"),
    "fewer-graph-breaks": (given("changing_lengths", "graph-breaks"), "fullgraph=True"),
    "freeze-gc": (given("plain_adamw", "gc-pause"), "gc.freeze()"),
    "fused-optimizer": (at("plain_adamw"), "torch.optim.AdamW(…, fused=True)"),
    "keep-cache": (at("empty_cache"), "30 cudaFree"),
    "larger-batch": (at("inference"), "no shorter"),
    "less-recompute": (at("checkpointed_blocks"), "torch.utils.checkpoint"),
    "lighter-samples": (at("slow_loader"), "118 ms per step"),
    "loader-workers": (at("slow_loader"), "for the workers there are"),
    "lower-precision": (at("decode_graph"), "fp8"),
    "more-microbatches": (given("plain_adamw", "pipeline-bubble"), "1F1B"),
    "more-threads": (on_one_core, "torch.set_num_threads(8)"),
    "move-io-off-step": (at("json_logging"), "27.4 ms per step"),
    "nccl-backend": (through_gloo, "gloo copies 9.0 MB per step to the host and back"),
    "overlap-comms": (talking("plain_adamw"), "async_op=True"),
    "pad-shapes": (at("odd_widths"), "4093 → 4096 (next multiple of 64)"),
    "pin-memory": (at("pageable_batches"), "154.1 MB per step"),
    "prefetch-batches": (at("pageable_batches"), "on its own stream"),
    "raise-clocks": (given("plain_adamw", "throttled"), "nvidia-smi -q"),
    "remove-sync": (syncing, "aten::item"),
    "sdpa": (at("bias_attention"), "scaled_dot_product_attention"),
    "smaller-model": (at("decode_graph"), "at the roof"),
    "sorted-index": (at("graph_messages"), "index_add"),
    "static-shapes": (at("changing_lengths"), "3 compilations of 1 function"),
    "tf32": (at("accelerate_fp32"), "torch.set_float32_matmul_precision('high')"),
    "torch-compile": (at("handwritten_gelu"), "torch.compile(model)"),
}
CANNOT_HELP: dict[str, Case] = {
    "accumulate-gradients": (talking("decode_graph"), "does not train"),
    "autotune-kernels": (at("upcast_tower"), "near the ceiling"),
    "balance-ranks": (talking("plain_adamw"), "one rank alone"),
    "better-hardware": (at("plain_adamw"), "of the step is at the roof"),
    "bf16-autocast": (at("odd_widths"), "already run in bf16"),
    "bucket-collectives": (at("plain_adamw"), "no communication"),
    "builtin-ops": (at("odd_widths"), "no chain"),
    "channels-last": (at("odd_widths"), "no convolutions"),
    "cuda-graphs": (at("decode_graph"), "already replayed from a graph"),
    "reduce-overhead": (at("decode_graph"), "already replayed from a graph"),
    "custom-kernels": (at("json_logging"), "no single kernel"),
    "faster-link": (at("plain_adamw"), "no communication"),
    "fewer-casts": (at("layout_flips"), "no tensor changes its number format"),
    "fewer-copies": (at("upcast_tower"), "no tensor is copied"),
    "fewer-graph-breaks": (at("plain_adamw"), "nothing is compiled"),
    "freeze-gc": (at("odd_widths"), "was seen"),
    "fused-optimizer": (at("layout_flips"), "already fused"),
    "keep-cache": (at("odd_widths"), "from its cache"),
    "larger-batch": (at("odd_widths"), "takes proportionally longer"),
    "less-recompute": (at("odd_widths"), "repeats no forward work"),
    "lighter-samples": (at("odd_widths"), "waits only 0.0 ms per step"),
    "loader-workers": (at("odd_widths"), "waits only 0.0 ms per step for the loader"),
    "lower-precision": (at("conv_fp32"), "move to 16 bits first"),
    "more-microbatches": (at("odd_widths"), "no pipeline stage"),
    "more-threads": (lambda: on_one_core(8.0), "no core is idle"),
    "move-io-off-step": (at("odd_widths"), "no long work"),
    "nccl-backend": (talking("plain_adamw"), "already run on the device"),
    "overlap-comms": (at("odd_widths"), "no communication"),
    "pad-shapes": (at("upcast_tower"), "no 16-bit matmul"),
    "pin-memory": (at("slow_loader"), "already come from pinned memory"),
    "prefetch-batches": (at("odd_widths"), "hardly waits for copies"),
    "raise-clocks": (at("odd_widths"), "`findwall run` samples them"),
    "remove-sync": (at("odd_widths"), "no synchronisation"),
    "sdpa": (at("odd_widths"), "no attention"),
    "smaller-model": (at("plain_adamw"), "of the step is at the roof"),
    "sorted-index": (at("odd_widths"), "neither gathers nor scatters"),
    "static-shapes": (at("odd_widths"), "compiles nothing"),
    "tf32": (at("odd_widths"), "already run in bf16"),
    "torch-compile": (at("compiled_training"), "already compiled"),
}


def test_no_fix_is_without_its_cases() -> None:
    assert set(HELPS) == set(FIXES)
    assert set(CANNOT_HELP) == set(FIXES)


@pytest.mark.parametrize("fix", HELPS)
def test_it_applies_and_says_how(fix: str) -> None:
    facts, words = HELPS[fix]
    advice = FIXES[fix].advise(facts())
    assert isinstance(advice, Use)
    assert words in advice.how, advice.how
    assert advice.how.endswith(".")
    assert step_at_best(FIXES[fix], advice, facts()) <= facts().step + 1


@pytest.mark.parametrize("fix", CANNOT_HELP)
def test_it_says_why_not(fix: str) -> None:
    facts, words = CANNOT_HELP[fix]
    advice = FIXES[fix].advise(facts())
    assert not isinstance(advice, Use)
    assert words in advice.why, advice.why


# -- what a job's details change in the answer -----------------------------------------------------


def test_other_optimizers_are_told_what_else_there_is() -> None:
    drawn = {"z": (Kind.ANNOTATION, "Optimizer.step#Shampoo.step")}
    timeline = sketch(
        steps="|     |     |     ",
        cpu="zzzz  zzzz  zzzz  \nooo   ooo   ooo   ",
        gpu=" kkKK  kkKK  kkKK ",
        host=drawn,
    )
    advice = FIXES["fused-optimizer"].advise(facts_of(timeline))
    assert isinstance(advice, Use)
    assert "no fused=True for Shampoo" in advice.how


def test_no_optimizer_no_fused_one() -> None:
    assert FIXES["fused-optimizer"].advise(job("upcast_tower")).why == "the trace shows no optimizer step"


def test_a_gpu_without_bfloat16_gets_float16_and_a_scaler() -> None:
    volta = on_another_gpu(job("conv_fp32"), "Tesla V100-SXM2-16GB")
    assert "torch.float16" in FIXES["bf16-autocast"].advise(volta).how
    assert "GradScaler" in FIXES["bf16-autocast"].advise(volta).how
    assert FIXES["tf32"].advise(volta).why == "Tesla V100-SXM2-16GB has no TF32"


@pytest.mark.parametrize("fix", ["tf32", "bf16-autocast"])
def test_an_unknown_gpu_is_not_a_no(fix: str) -> None:
    advice = FIXES[fix].advise(on_another_gpu(job("conv_fp32"), "A GPU nobody knows"))
    assert isinstance(advice, CannotTell)
    assert "not in the table" in advice.why


@pytest.mark.parametrize("name", ["conv_fp32", "odd_widths", "inference"])
def test_on_a_cpu_no_fix_speaks_of_gpus(name: str) -> None:
    facts = job(name)
    cores = replace(facts, rank=replace(facts.rank, device_kind="cpu"), ceilings=table_ceilings("Some CPU"))
    for fix in ("bf16-autocast", "tf32", "cuda-graphs", "pin-memory", "autotune-kernels", "torch-compile"):
        advice = FIXES[fix].advise(cores)
        assert not re.search(
            r"GPU|cuda|cudnn|reduce-overhead", getattr(advice, "how", "") + getattr(advice, "why", "")
        ), fix


def test_data_that_no_matmul_feeds_is_made_16_bit_itself() -> None:
    facts = facts_of(sketch(steps="|   |   |   ", cpu="oo  oo  oo  ", gpu=" kK  kK  kK "))
    advice = FIXES["bf16-autocast"].advise(facts)
    assert "Keep the data in bfloat16" in advice.how
    assert advice.moves == ("unfused-pointwise",)


def test_workers_that_are_not_there_are_told_from_too_few() -> None:
    facts = facts_of(sketch(steps="|     |     |     ", cpu="ddddo ddddo ddddo ", gpu="    kk    kk    kk"))
    assert (
        "without workers, each batch is made between two steps" in FIXES["loader-workers"].advise(facts).how
    )


def test_pinned_copies_that_wait_are_prefetched_not_pinned() -> None:
    facts = facts_of(
        sketch(steps="|      |      |      ", cpu="o o    o o    o o    ", gpu=" iiiikk iiiikk iiiikk")
    )
    assert FIXES["pin-memory"].advise(facts).why == "the copies already come from pinned memory"
    assert isinstance(FIXES["prefetch-batches"].advise(facts), Use)


def pageable(device: str = "NVIDIA H200", measured: float | None = None, **telemetry: int) -> float:
    """What 285 MB a step still take once pinned, of 20 ms in which nothing else runs."""
    copy = replace(KERNELS["h"], nbytes=285_000_000)
    drawing = sketch(
        steps=f"|{' ' * 29}" * 3,
        cpu=f"{'c' * 20}o{' ' * 9}" * 3,
        gpu=f"{'h' * 20} {'k' * 9}" * 3,
        kernels={"h": copy},
        device=device,
    )
    ceilings = msgspec.structs.replace(table_ceilings(device), h2d_pinned=measured)
    facts = facts_of(drawing, ceilings=ceilings, telemetry=Telemetry(**telemetry))
    advice = FIXES["pin-memory"].advise(facts)
    assert isinstance(advice, Use)
    return ms(step_at_best(FIXES["pin-memory"], advice, facts)) - 9  # of kernels


def test_pinned_copies_still_take_what_the_link_takes() -> None:
    assert pageable() == pytest.approx(5.0, abs=0.1)  # generation 5, 16 lanes
    assert pageable("NVIDIA A100-SXM4-80GB") == pytest.approx(10.0, abs=0.2)  # generation 4
    assert pageable(pcie_generation=5, pcie_width=8) == pytest.approx(10.0, abs=0.2)
    assert pageable(pcie_generation=1, pcie_width=16) == pytest.approx(5.0, abs=0.1)  # a link at rest
    assert pageable(measured=28.5e9) == pytest.approx(10.0, abs=0.01)
    assert pageable("A GPU nobody knows") == pytest.approx(5.0, abs=0.1)
    assert pageable("NVIDIA GH200 480GB") < 1.01  # the host's own launch is left


def test_a_sync_is_named_by_op_and_line() -> None:
    facts = facts_of(
        sketch(
            steps="|           |           |           ",
            cpu="yyyyyyyyyyy yyyyyyyyyyy yyyyyyyyyyy \nosss   o   osss   o   osss   o      ",
            gpu=" k b   k    k b   k    k b   k      ",
        )
    )
    advice = FIXES["remove-sync"].advise(facts)
    assert "aten::item at train.py:88" in advice.how
    assert "every n steps" in advice.how


def test_a_sync_bars_a_capture() -> None:
    advice = FIXES["cuda-graphs"].advise(syncing())
    assert isinstance(advice, Use)
    assert "Take aten::item out first" in advice.how


def test_the_collector_is_believed_once_it_is_timed() -> None:
    facts = job("collect_garbage")
    assert FIXES["freeze-gc"].advise(facts).how.startswith("If the garbage collector is to blame")
    quiet = facts_of(facts.timeline, step_times=StepTimes((0.2967,), "measured", gc_s=0.0001))
    assert not isinstance(FIXES["freeze-gc"].advise(quiet), Use)
    timed = facts_of(facts.timeline, step_times=StepTimes((0.2967,), "measured", gc_s=0.29))
    advice = FIXES["freeze-gc"].advise(timed)
    assert isinstance(advice, Use)
    assert "If the garbage collector" not in advice.how


def test_sampled_lines_say_where_the_host_stood() -> None:
    facts = facts_of(
        job("json_logging").timeline, step_ms=31.8, host_lines=(HostLine("log.py:12", "dump", 0.8),)
    )
    assert "log.py:12" in FIXES["move-io-off-step"].advise(facts).how


def test_small_calls_are_warned_of_the_compilers_default_mode() -> None:
    given, refused = prescribe(job("inference"), "launch-bound")
    assert {"cuda-graphs", "reduce-overhead"} <= {one.fixes[0] for one in given}
    assert ["torch-compile"] not in [one.fixes for one in given]
    why = next(one.why for one in refused if one.fixes == ["torch-compile"])
    assert why.startswith("worth a trial only: a step of ")


def test_through_the_host_comes_nccl_first_and_no_batch() -> None:
    facts = through_gloo()
    given, _ = prescribe(facts, decide(facts).cause)
    names = [one.fixes[0] for one in given]
    assert names[:3] == ["nccl-backend", "overlap-comms", "faster-link"]
    assert not {"remove-sync", "prefetch-batches", "pin-memory"} & set(names)
    assert "one GPU per rank" in given[0].how
    assert "GLOO_SOCKET_IFNAME" in FIXES["faster-link"].advise(facts).how


def test_collectives_of_cpu_tensors_are_not_for_nccl() -> None:
    assert "NCCL serves GPUs only" in FIXES["nccl-backend"].advise(through_gloo("cpu")).why
    timeline = sketch(cpu="o qqqqqqo " * 3, gpu=" m       m" * 3, steps="|         " * 3)
    facts = facts_of(timeline)
    assert facts.spent_ms("exposed-collective") > 0
    assert "no collective takes device data" in FIXES["nccl-backend"].advise(facts).why


def test_nothing_overlaps_with_more_than_the_rest_of_the_step() -> None:
    facts = through_gloo()
    advice = FIXES["overlap-comms"].advise(facts)
    assert isinstance(advice, Use)
    assert 5 <= ms(step_at_best(FIXES["overlap-comms"], advice, facts)) <= 11


def test_channels_last_already(shared: Path) -> None:
    timeline = read_trace(shared / "zoo" / "resnet_starved.json.gz")
    advice = FIXES["channels-last"].advise(facts_of(timeline, step_ms=525))
    assert advice.why == "the convolutions already read channels-last tensors"


def test_idle_cores_come_before_other_kernels() -> None:
    facts = on_one_core()
    found, _ = prescribe(facts, decide(facts).cause)
    assert found[0].fixes == ["more-threads"] and ["autotune-kernels"] not in [one.fixes for one in found]


# -- what the job does already is not advised ------------------------------------------------------

BIG = [32768, 8192]
MUL, ADD, TANH, SIGMOID, GELU = (
    Drawn(f"vectorized_elementwise_kernel<{name}>", f"aten::{name}").given(BIG)
    for name in ("mul", "add", "tanh", "sigmoid", "gelu")
)


def chain(letters: str, **drawn: Drawn) -> Facts:
    """One pointwise kernel of two milliseconds a letter, three steps of them."""
    wide = "".join(one * 2 for one in letters)
    return facts_of(
        sketch(f"{'o' * len(letters):<{len(wide)}}" * 3, wide * 3, f"|{' ' * (len(wide) - 1)}" * 3, drawn)
    )


def test_a_gelu_is_told_from_other_chains_with_a_tanh() -> None:
    drawn = {"k": MUL, "l": ADD, "t": TANH, "w": GELU}
    written_out = chain("kKkltlk", **drawn)
    assert "F.gelu(x, approximate='tanh')" in FIXES["builtin-ops"].advise(written_out).how
    assert not isinstance(FIXES["builtin-ops"].advise(chain("kltk", **drawn)), Use)
    assert not isinstance(FIXES["builtin-ops"].advise(chain("kKkltlkw", **drawn)), Use)  # calls F.gelu


def test_a_chain_of_other_ops_beside_the_builtin_is_no_gelu(shared: Path) -> None:
    facts = facts_of(read_trace(shared / "zoo" / "pointwise_chain.json.gz"))
    assert not isinstance(FIXES["builtin-ops"].advise(facts), Use)
    given, _ = prescribe(facts, decide(facts).cause)
    assert given[0].fixes == ["torch-compile"]


def recurrent(around: str) -> Facts:
    """Sigmoid, tanh and mul, of which the device waits for each; the last is of the backward pass."""
    small = {"k": replace(MUL, sequence=7), "t": TANH, "x": SIGMOID}
    small = {letter: one.given([64, 64]) for letter, one in small.items()}
    return facts_of(
        sketch(
            steps=f"|{' ' * 15}" * 3,
            cpu="rrrrrrrrrr AAAAA" * 3 + "\n" + "nonnonnonn nnnon" * 3,
            gpu="  k  t  x      k" * 3,
            kernels=small,
            host={"r": (Kind.OP, around)},
        ),
        step_ms=16,
    )


def test_what_lies_inside_a_recurrent_layer_is_not_to_be_replaced_by_one() -> None:
    assert "nn.GRU" in FIXES["builtin-ops"].advise(recurrent("my::loop")).how
    advice = FIXES["builtin-ops"].advise(recurrent("aten::gru"))
    assert advice.why == "most small kernels already belong to one call of aten::gru"
