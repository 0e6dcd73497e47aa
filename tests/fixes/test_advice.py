"""Every fix: a job it helps, with what it says to do there, and one it cannot help, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from dataflow_observed import planted
from findwall.causes.verdict import decide
from findwall.facts.beside_the_model import behind_the_products
from findwall.facts.best_changes import best_step, in_lists
from findwall.facts.facts import Facts, of_class
from findwall.facts.message_traffic import buckets, sent_by_stage
from findwall.fixes import CannotTell, NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.predict import predict
from findwall.fixes.prescribe import prescribe
from findwall.machine.hardware import table_ceilings
from findwall.model.events import Kind
from findwall.model.machine import Ceilings, CpuUse, Telemetry
from findwall.model.measured_run import HostLine, StepTimes
from findwall.readers import read_trace
from findwall.replay.curves import curves
from findwall.step.step_facts import Called
from findwall.units import NS_PER_S, ms
from fixes import drawn, filter_calls, loop_calls, memory_rewrites, op_calls
from fixes.recorded import TRUTH, as_collectives, job, on_another_gpu, with_cause
from fixes.recorded_steps import (
    attending,
    by_tokens,
    filled_up,
    from_frames,
    modulated,
    over_neighbours,
    with_anomaly_mode,
    with_routine,
)
from fixes.test_unused_gradients import with_a_teacher
from fixes.test_waiting_rounds import rounds
from sketch import KERNELS, Drawn, facts_of, hosts_own, sketch
from speaking import in_words

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


def on_few_threads(threads: int, wanted: float | None = 6.5) -> Facts:
    """Seven workers and a training process on 16 cores: two for each."""
    facts = drawn.crowded()
    cpu = facts.rank.telemetry.cpu
    assert cpu is not None
    cpu = replace(cpu, threads=threads, children_wanted=wanted)
    return replace(facts, rank=replace(facts.rank, telemetry=Telemetry(cpu=cpu)))


def on_one_core(used: float = 1.0) -> Facts:
    """Products of a CPU job on one of eight cores."""
    product = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000])
    timeline = sketch("oooo" * 3, "kKkK" * 3, "|   " * 3, kernels={"k": product}, device="")
    cpu = CpuUse(cores=8, own_busy=used, others_busy=0.0)
    return facts_of(hosts_own(timeline), device_kind="cpu", telemetry=Telemetry(cpu=cpu))


def given_pages(faults: float = 4e5) -> Facts:
    """The same, where the system gives the process so many pages a second: a third of its time at most."""
    facts = on_one_core()
    cpu = replace(facts.rank.telemetry.cpu, system_busy=0.3, faults=faults)
    telemetry = replace(facts.rank.telemetry, cpu=cpu)
    return replace(facts, rank=replace(facts.rank, telemetry=telemetry))


def in_halves(fp16: float = 1e12) -> Facts:
    """Products of fp16 numbers on cores that multiply fp32 ones at 16 TFLOP/s."""
    product = Drawn("", "aten::mm").given([1000, 1000], [1000, 1000], dtype="c10::Half")
    timeline = sketch("oooo" * 3, "kKkK" * 3, "|   " * 3, kernels={"k": product}, device="")
    known = Ceilings("Some CPU, 8 cores", "measured", flops={"fp32": 16e12, "fp16": fp16}, bandwidth=1e12)
    return facts_of(hosts_own(timeline), device_kind="cpu", ceilings=known)


def on_volta() -> Facts:
    """fp32 convolutions on a GPU that has float16 and no bfloat16."""
    return on_another_gpu(job("conv_fp32"), "Tesla V100-SXM2-16GB")


def stood_on(*lines: tuple[str, str]) -> Facts:
    """A host that keeps the device waiting, and was seen on these lines, inside those library functions."""
    seen = tuple(HostLine(place, "overlap", 0.4, inside) for place, inside in lines)
    return facts_of(job("json_logging").timeline, step_ms=31.8, host_lines=seen)


def calling(once: bool | None = True) -> Facts:
    """A host that keeps the device waiting, on a line that a step comes to once."""
    facts = stood_on()
    called = Called([], np.full(len(facts.timeline.events), -1, np.int64))
    line = HostLine("replay.py:58", "draw", 0.8, looped=once is not True, once=once)
    return replace(facts, rank=replace(facts.rank, host_lines=(line,)), called=called)


def multiplying(device: str = "NVIDIA H200") -> Facts:
    """Inference that is nothing but large products of bf16 numbers."""
    steps, cpu, gpu = "|       " * 3, "oo      " * 3, " mmmMMM " * 3
    return facts_of(sketch(steps=steps, cpu=cpu, gpu=gpu, device=device))


def at(name: str) -> Callable[[], Facts]:
    return lambda: job(name)


def given(name: str, cause: str) -> Callable[[], Facts]:
    return lambda: with_cause(job(name), cause)


def talking(name: str) -> Callable[[], Facts]:
    return lambda: as_collectives(job(name))


HELPS: dict[str, Case] = {
    "cast-once": (loop_calls.casting, "Convert the weights once"),
    "foreach-checks": (loop_calls.checking, "torch.nn.utils.clip_grad_norm_"),
    "make-on-device": (loop_calls.made_on_the_host, "on the device (`device=`)"),
    "narrow-copies": (loop_calls.uploading, "make floats of them on the device"),
    "pairwise-product": (loop_calls.pairs, "2 * a @ b.mT"),
    "product-order": (loop_calls.three, "`a @ (b @ c)` instead of `(a @ b) @ c`"),
    "scan-loop": (loop_calls.over_time, "6 doublings over all of them"),
    "where-not-mask": (loop_calls.masking, "for `x[mask].mean()`"),
    "buffer-once": (lambda: memory_rewrites.joining(2100, 2101, 2102), "buffer[:, :, n:n+1] = new"),
    "scale-activations": (modulated, "F.conv2d(x * style[:, :, None, None], weight"),
    "sparse-product": (over_neighbours, "a.to_sparse_csr()"),
    "sparse-embedding": (memory_rewrites.looking_up, "of 8,000,000 rows a step looks up at most 100,000"),
    "separable-filter": (filter_calls.filtering, "27 products for each number instead of 729"),
    "scan-innermost": (filter_calls.scanning, "each of 1,600 threads goes down 64,000 numbers alone"),
    "smooth-fft": (lambda: memory_rewrites.transforming(521), "from 521 to 540"),
    "accumulate-gradients": (drawn.in_parallel, "no_sync"),
    "autotune-kernels": (at("plain_adamw"), "max-autotune"),
    "averages-in-lists": (drawn.averaging, "tensor after tensor it takes 40 kernels per step, and"),
    "balance-ranks": (given("plain_adamw", "straggler"), "late rank"),
    "batch-small-ops": (lambda: drawn.small_ops("u" * 12 + "vw"), "12 small products per step"),
    "better-hardware": (at("decode_graph"), "memory bandwidth"),
    "block-sparse-attention": (lambda: attending(64), "31 % of 128 × 128 blocks (8.0 % of positions)"),
    "bf16-autocast": (at("conv_fp32"), "dtype=torch.bfloat16"),
    "broadcast-buffers": (drawn.in_parallel, "broadcast_buffers=False"),
    "bucket-collectives": (talking("plain_adamw"), "bucket_cap_mb"),
    "builtin-ops": (at("handwritten_gelu"), "F.gelu(x, approximate='tanh')"),
    "channels-last": (at("layout_flips"), "memory_format=torch.channels_last"),
    "cuda-graphs": (at("inference"), "torch.cuda.graph"),
    "reduce-overhead": (at("inference"), 'mode="reduce-overhead"'),
    "cudnn-benchmark": (lambda: drawn.convolving(56, 56, 56), "torch.backends.cudnn.benchmark = True"),
    "custom-kernels": (at("graph_messages"), "aten::gather"),
    "device-side-preprocessing": (lambda: drawn.starved(workers=8, busy=7.5), "keep 7.2 of 16 cores busy"),
    "evaluate-less-often": (drawn.evaluating, "8.00 ms per step (80 %) is forward work without gradients"),
    "expandable-segments": (lambda: drawn.fetching(3000, 4000, 5000), "expandable_segments:True"),
    "faster-link": (talking("plain_adamw"), "nvidia-smi topo -m"),
    "fewer-casts": (at("upcast_tower"), "[262144×512]"),
    "fewer-copies": (at("layout_flips"), "[128×256×56×56]"),
    "fewer-graph-breaks": (given("changing_lengths", "graph-breaks"), "fullgraph=True"),
    "foreach-optimizer": (lambda: drawn.one_by_one("NAdam"), "torch.optim.NAdam(…, foreach=True)"),
    "fp16-autocast": (on_volta, "dtype=torch.float16)`"),
    "fp8": (multiplying, "Use fp8 for the large matmuls"),
    "freeze-gc": (given("plain_adamw", "gc-pause"), "gc.freeze()"),
    "fused-loss": (lambda: drawn.over_words(131072), "3 passes over 8,192 × 131,072 logits"),
    "fused-optimizer": (at("plain_adamw"), "torch.optim.AdamW(…, fused=True)"),
    "index-select": (op_calls.taking_rows, "x.index_select(0, idx)"),
    "full-precision": (in_halves, "multiplies fp32 numbers 16.0 times as fast as fp16"),
    "int8-weights": (at("decode_graph"), "Store the weights in int8"),
    "keep-cache": (at("empty_cache"), "30 cudaFree"),
    "keep-freed-memory": (given_pages, "MALLOC_TRIM_THRESHOLD_=4294967295 MALLOC_MMAP_MAX_=0"),
    "larger-batch": (at("inference"), "no shorter"),
    "less-recompute": (at("checkpointed_blocks"), "torch.utils.checkpoint"),
    "lighter-samples": (at("slow_loader"), "118 ms per step"),
    "loader-workers": (at("slow_loader"), "for the workers there are"),
    "lookup-not-onehot": (op_calls.one_hot_rows, "`F.embedding(idx, table)`"),
    "lower-precision": (drawn.in_doubles, "`.float()`"),
    "more-microbatches": (given("plain_adamw", "pipeline-bubble"), "1F1B"),
    "more-threads": (on_one_core, "torch.set_num_threads(8)"),
    "move-io-off-step": (at("json_logging"), "27.4 ms per step"),
    "nccl-backend": (through_gloo, "gloo copies 9.0 MB per step to the host and back"),
    "no-sync-accumulation": (lambda: drawn.in_parallel(" ", 3), "2 reductions and 8.00 ms per step"),
    "non-blocking-copy": (drawn.waits_for_pinned, "non_blocking=True"),
    "omp-threads": (drawn.crowded, "Set OMP_NUM_THREADS=2 before the start"),
    "skip-unused-search": (drawn.searching, "all 2 parameters get a gradient in each pass"),
    "overlap-comms": (talking("plain_adamw"), "async_op=True"),
    "pad-shapes": (at("odd_widths"), "4093 → 4096 (next multiple of 64)"),
    "persistent-workers": (drawn.short_epochs, "the workers restart in 1 step in 8, which takes 88.0 ms"),
    "pin-memory": (at("pageable_batches"), "154.1 MB per step"),
    "prefetch-batches": (at("pageable_batches"), "on its own stream"),
    "raise-clocks": (given("plain_adamw", "throttled"), "nvidia-smi -q"),
    "remove-sync": (syncing, "aten::item"),
    "sdpa": (at("bias_attention"), "scaled_dot_product_attention"),
    "smaller-model": (at("decode_graph"), "at the roof"),
    "shorter-host-calls": (calling, "Have the calls at replay.py:58 (draw, about 25.4 ms) do less"),
    "sorted-index": (at("graph_messages"), "index_add"),
    "static-shapes": (at("changing_lengths"), "3 compilations of 1 function"),
    "tf32": (at("accelerate_fp32"), "torch.set_float32_matmul_precision('high')"),
    "topk": (lambda: op_calls.sorting(op_calls.head(8)), "`x.topk(8)`"),
    "torch-compile": (at("handwritten_gelu"), "torch.compile(model)"),
    "no-unused-gradients": (with_a_teacher, "only added up"),
    "no-unread-results": (lambda: planted("unused_head"), "what nobody reads"),
    "reuse-results": (lambda: planted("loss_again"), "instead of computing it again"),
    "one-backward": (lambda: planted("backward_of_each_loss"), "call `backward()` once"),
    "compute-once": (lambda: planted("prompt_in_every_step"), "before the loop"),
    "fewer-rows": (lambda: planted("layer_for_each_edge"), "each row once"),
    "kv-cache": (by_tokens, "Keep keys and values"),
    "less-padding": (lambda: filled_up(96), "to its longest sample"),
    "convert-at-once": (from_frames, "np.stack"),
    "debug-off": (with_anomaly_mode, "anomaly mode off"),
    "linalg-route": (lambda: with_routine("pinv"), "torch.linalg.solve"),
    "loop-on-device": (lambda: rounds("kw"), "waits for aten::nonzero"),
    "group-experts": (lambda: rounds("xmk"), "one by one"),
    "vectorise-loop": (lambda: stood_on(("boxes.py:47", ""), ("boxes.py:48", "")), "boxes.py:47 (overlap)"),
}
CANNOT_HELP: dict[str, Case] = {
    "cast-once": (lambda: loop_calls.casting(trains=True), "change in every step"),
    "foreach-checks": (at("plain_adamw"), "no loop goes over the gradients"),
    "make-on-device": (at("pageable_batches"), "makes no tensors only to copy them"),
    "narrow-copies": (at("plain_adamw"), "hardly waits for copies"),
    "pairwise-product": (at("handwritten_gelu"), "no differences of all pairs"),
    "product-order": (at("plain_adamw"), "straight into another product"),
    "scan-loop": (at("plain_adamw"), "no loop carries a sum"),
    "where-not-mask": (at("plain_adamw"), "nothing is picked with a mask"),
    "buffer-once": (lambda: memory_rewrites.joining(2100, 2100, 2100), "grows from step to step"),
    "scale-activations": (lambda: modulated("places"), "weight for each sample"),
    "sparse-product": (lambda: over_neighbours(0.5), "a sparse product takes as long"),
    "sparse-embedding": (lambda: memory_rewrites.looking_up(lookups=4_000_000), "far more rows"),
    "separable-filter": (lambda: filter_calls.filtering(learns="True"), "weight that is not trained"),
    "scan-innermost": (at("plain_adamw"), "nothing is scanned"),
    "smooth-fft": (lambda: memory_rewrites.transforming(540), "made of 2, 3, 5 and 7 alone"),
    "accumulate-gradients": (talking("decode_graph"), "does not train"),
    "autotune-kernels": (at("upcast_tower"), "near the ceiling"),
    "averages-in-lists": (lambda: drawn.averaging(place="before"), "no average of the weights"),
    "compile-blocks": (at("odd_widths"), "what a model repeats"),
    "balance-ranks": (talking("plain_adamw"), "one rank alone"),
    "batch-small-ops": (lambda: drawn.small_ops("uvuwux" * 2), "no small op is called again and again"),
    "better-hardware": (at("plain_adamw"), "of the step is at the roof"),
    "block-sparse-attention": (lambda: attending(768), "leaves out most of what takes time"),
    "bf16-autocast": (at("odd_widths"), "already run in bf16"),
    "broadcast-buffers": (lambda: drawn.in_parallel(" "), "no buffer is sent"),
    "bucket-collectives": (at("plain_adamw"), "no communication"),
    "builtin-ops": (at("odd_widths"), "no chain"),
    "channels-last": (at("odd_widths"), "no convolutions"),
    "cuda-graphs": (at("decode_graph"), "already replayed from a graph"),
    "reduce-overhead": (at("decode_graph"), "already replayed from a graph"),
    "cudnn-benchmark": (lambda: drawn.convolving(56, 48, 40), "shapes change from step to step"),
    "custom-kernels": (at("json_logging"), "no single kernel"),
    "device-side-preprocessing": (lambda: drawn.starved(workers=8, busy=1.2), "they wait for storage"),
    "evaluate-less-often": (at("checkpointed_blocks"), "hardly any of the step"),
    "expandable-segments": (at("empty_cache"), "sizes are the same in every step"),
    "faster-link": (at("plain_adamw"), "no communication"),
    "fewer-casts": (at("layout_flips"), "no tensor changes its number format"),
    "fewer-copies": (at("upcast_tower"), "no tensor is copied"),
    "fewer-graph-breaks": (at("plain_adamw"), "nothing is compiled"),
    "foreach-optimizer": (at("plain_adamw"), "AdamW has fused=True"),
    "fp16-autocast": (at("conv_fp32"), "bfloat16 numbers too, which need no scaler"),
    "fp8": (at("decode_graph"), "no 16-bit matmul is held up by arithmetic"),
    "freeze-gc": (at("odd_widths"), "was seen"),
    "fused-loss": (syncing, "no loss over logits"),
    "fused-optimizer": (at("layout_flips"), "already fused"),
    "index-select": (lambda: op_calls.taking_rows(adds_us=1000.0), "as fast as atomics"),
    "full-precision": (lambda: in_halves(16e12), "about as fast as fp32 ones"),
    "int8-weights": (multiplying, "no 16-bit matmul waits for its weights"),
    "keep-cache": (at("odd_widths"), "from its cache"),
    "keep-freed-memory": (lambda: given_pages(400.0), "given 2 new pages"),
    "larger-batch": (at("odd_widths"), "takes proportionally longer"),
    "less-recompute": (at("odd_widths"), "repeats no forward work"),
    "lighter-samples": (at("odd_widths"), "waits only 0.0 ms per step"),
    "loader-workers": (at("odd_widths"), "waits only 0.0 ms per step for the loader"),
    "lookup-not-onehot": (lambda: op_calls.one_hot_rows(262_144, 2), "so few classes"),
    "lower-precision": (at("conv_fp32"), "move to 16 bits first"),
    "more-microbatches": (at("odd_widths"), "no pipeline stage"),
    "more-threads": (lambda: on_one_core(8.0), "no core is idle"),
    "move-io-off-step": (at("odd_widths"), "no long work"),
    "nccl-backend": (talking("plain_adamw"), "already run on the device"),
    "no-sync-accumulation": (drawn.in_parallel, "no gradient is reduced before the last"),
    "non-blocking-copy": (at("pageable_batches"), "from pageable memory"),
    "omp-threads": (lambda: drawn.crowded(in_line=0.001), "hardly ever waits for a core"),
    "skip-unused-search": (lambda: drawn.searching(1), "only 1 of the 2 parameters"),
    "overlap-comms": (at("odd_widths"), "no communication"),
    "pad-shapes": (at("upcast_tower"), "no 16-bit matmul"),
    "persistent-workers": (at("slow_loader"), "`findwall run` does"),
    "pin-memory": (at("slow_loader"), "already come from pinned memory"),
    "prefetch-batches": (at("odd_widths"), "hardly waits for copies"),
    "raise-clocks": (at("odd_widths"), "`findwall run` samples them"),
    "remove-sync": (at("odd_widths"), "no synchronisation"),
    "sdpa": (at("odd_widths"), "no attention"),
    "smaller-model": (at("plain_adamw"), "of the step is at the roof"),
    "shorter-host-calls": (lambda: calling(None), "no line was seen on which the host works long"),
    "sorted-index": (at("odd_widths"), "neither gathers nor scatters"),
    "static-shapes": (at("odd_widths"), "compiles nothing"),
    "tf32": (at("odd_widths"), "already run in bf16"),
    "topk": (lambda: op_calls.sorting(op_calls.head(8), stable="True"), "a stable order"),
    "torch-compile": (at("compiled_training"), "already compiled"),
    "no-unused-gradients": (at("plain_adamw"), "nobody takes away"),
    "no-unread-results": (lambda: planted("plain_training"), "as far as that was seen"),
    "reuse-results": (lambda: planted("plain_training"), "as far as that was seen"),
    "one-backward": (lambda: planted("plain_training"), "as far as that was seen"),
    "compute-once": (lambda: planted("plain_training"), "as far as that was seen"),
    "fewer-rows": (lambda: planted("plain_training"), "as far as that was seen"),
    "kv-cache": (lambda: planted("plain_training"), "as far as that was seen"),
    "less-padding": (lambda: filled_up(12), "no batch was seen"),
    "convert-at-once": (lambda: from_frames(at_once=True), "numbers"),
    "debug-off": (lambda: with_anomaly_mode(on=False), "find faults"),
    "linalg-route": (lambda: with_routine("solve"), "no costly routine"),
    "loop-on-device": (lambda: rounds("xmk"), "multiplies matrices"),
    "group-experts": (lambda: rounds("kw"), "no loop fetches tokens"),
    "vectorise-loop": (lambda: stood_on(("log.py:12", "encoder.py:iterencode")), "seen inside libraries"),
}


def test_no_fix_is_without_its_cases() -> None:
    instead = {
        one.instead for one in FIXES.values() if one.instead
    }  # made where another fails: never advised
    assert set(HELPS) == set(FIXES) - instead and instead <= set(FIXES)
    assert set(CANNOT_HELP) == set(FIXES)


@pytest.mark.parametrize("fix", HELPS)
def test_it_applies_and_says_how(fix: str) -> None:
    facts, words = HELPS[fix]
    advice = FIXES[fix].advise(facts())
    assert isinstance(advice, Use)
    assert words in in_words(advice), in_words(advice)
    assert in_words(advice).endswith(".")
    assert step_at_best(FIXES[fix], advice, facts()) <= facts().step + 1


def test_what_is_said_to_need_no_curve_reads_none() -> None:
    read = []
    for fix, (facts, _) in HELPS.items():
        before = curves.cache_info()
        advice = FIXES[fix].advise(facts())
        if isinstance(advice, Use) and advice.likely is not None and advice.uncurved:
            advice.likely(frozenset({fix}))
            assert curves.cache_info() == before, fix
            read.append(fix)
    assert len(read) > 9


@pytest.mark.parametrize("fix", CANNOT_HELP)
def test_it_says_why_not(fix: str) -> None:
    facts, words = CANNOT_HELP[fix]
    advice = FIXES[fix].advise(facts())
    assert not isinstance(advice, Use)
    assert words in in_words(advice), in_words(advice)


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
    assert "no fused=True for Shampoo" in in_words(advice)


def test_no_optimizer_no_fused_one() -> None:
    assert (
        in_words(FIXES["fused-optimizer"].advise(job("upcast_tower"))) == "the trace shows no optimizer step"
    )


def test_a_gpu_without_bfloat16_gets_float16_and_a_scaler() -> None:
    volta = on_another_gpu(job("conv_fp32"), "Tesla V100-SXM2-16GB")
    assert "torch.float16" in in_words(FIXES["fp16-autocast"].advise(volta))
    assert "GradScaler" in in_words(FIXES["fp16-autocast"].advise(volta))
    assert "has no bfloat16" in in_words(FIXES["bf16-autocast"].advise(volta))
    assert in_words(FIXES["tf32"].advise(volta)) == "Tesla V100-SXM2-16GB has no TF32"


@pytest.mark.parametrize("fix", ["tf32", "bf16-autocast"])
def test_an_unknown_gpu_is_not_a_no(fix: str) -> None:
    advice = FIXES[fix].advise(on_another_gpu(job("conv_fp32"), "A GPU nobody knows"))
    assert isinstance(advice, CannotTell)
    assert "not in the table" in in_words(advice)


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
    assert "Keep the data in bfloat16" in in_words(advice)
    assert advice.moves == ("unfused-pointwise",)


def test_workers_that_are_not_there_are_told_from_too_few() -> None:
    facts = facts_of(sketch(steps="|     |     |     ", cpu="ddddo ddddo ddddo ", gpu="    kk    kk    kk"))
    assert "without workers, each batch is made between two steps" in in_words(
        FIXES["loader-workers"].advise(facts)
    )


def test_pinned_copies_that_wait_are_prefetched_not_pinned() -> None:
    facts = facts_of(
        sketch(steps="|      |      |      ", cpu="o o    o o    o o    ", gpu=" iiiikk iiiikk iiiikk")
    )
    assert in_words(FIXES["pin-memory"].advise(facts)) == "the copies already come from pinned memory"
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
    assert "aten::item at train.py:88" in in_words(advice)
    assert "every n steps" in in_words(advice)


def test_a_sync_bars_a_capture() -> None:
    advice = FIXES["cuda-graphs"].advise(syncing())
    assert isinstance(advice, Use)
    assert "Take aten::item out first" in in_words(advice)


def test_the_collector_is_believed_once_it_is_timed() -> None:
    facts = job("collect_garbage")
    assert in_words(FIXES["freeze-gc"].advise(facts)).startswith("If the garbage collector is to blame")
    quiet = facts_of(facts.timeline, step_times=StepTimes((0.2967,), "measured", gc_s=0.0001))
    assert not isinstance(FIXES["freeze-gc"].advise(quiet), Use)
    timed = facts_of(facts.timeline, step_times=StepTimes((0.2967,), "measured", gc_s=0.29))
    advice = FIXES["freeze-gc"].advise(timed)
    assert isinstance(advice, Use)
    assert "If the garbage collector" not in in_words(advice)


def test_sampled_lines_say_where_the_host_stood() -> None:
    facts = facts_of(
        job("json_logging").timeline, step_ms=31.8, host_lines=(HostLine("log.py:12", "dump", 0.8),)
    )
    assert "log.py:12" in in_words(FIXES["move-io-off-step"].advise(facts))


def test_no_graph_does_what_the_jobs_own_python_does() -> None:
    """Where a library is at work between the ops nobody knows what it makes."""
    own, library = (
        facts_of(
            job("json_logging").timeline, step_ms=31.8, host_lines=(HostLine("tree.py:24", "find", 0.8, at),)
        )
        for at in ("", "json/encoder.py:12 iterencode")
    )
    told = [FIXES["cuda-graphs"].use(facts) for facts in (own, library)]
    assert [isinstance(one, Use) and one.after_others for one in told] == [True, False]


def test_small_calls_are_warned_of_the_compilers_default_mode() -> None:
    given, refused = prescribe(job("inference"), "launch-bound")
    assert {"cuda-graphs", "reduce-overhead"} <= {one.fixes[0] for one in given}
    assert ["torch-compile"] not in [one.fixes for one in given]
    why = next(in_words(one) for one in refused if one.fixes == ["torch-compile"])
    assert why.startswith("worth a trial only, likely slower: a step of ")


def test_through_the_host_comes_nccl_first_and_no_batch() -> None:
    facts = through_gloo()
    given, _ = prescribe(facts, decide(facts).cause)
    names = [one.fixes[0] for one in given]
    assert names[:2] == ["nccl-backend", "faster-link"] and "overlap-comms" in names
    assert not {"remove-sync", "prefetch-batches", "pin-memory"} & set(names)
    assert "one GPU per rank" in in_words(given[0])
    assert "GLOO_SOCKET_IFNAME" in in_words(FIXES["faster-link"].advise(facts))


def test_collectives_of_cpu_tensors_are_not_for_nccl() -> None:
    assert "NCCL serves GPUs only" in in_words(FIXES["nccl-backend"].advise(through_gloo("cpu")))
    timeline = sketch(cpu="o qqqqqqo " * 3, gpu=" m       m" * 3, steps="|         " * 3)
    facts = facts_of(timeline)
    assert facts.spent_ms("exposed-collective") > 0
    assert "no collective takes device data" in in_words(FIXES["nccl-backend"].advise(facts))


def test_nothing_overlaps_with_more_than_the_rest_of_the_step() -> None:
    facts = through_gloo()
    advice = FIXES["overlap-comms"].advise(facts)
    assert isinstance(advice, Use)
    assert 5 <= ms(step_at_best(FIXES["overlap-comms"], advice, facts)) <= 11


def test_channels_last_already(shared: Path) -> None:
    timeline = read_trace(shared / "zoo" / "resnet_starved.json.gz")
    advice = FIXES["channels-last"].advise(facts_of(timeline, step_ms=525))
    assert in_words(advice) == "the convolutions already read channels-last tensors"


def test_threads_that_leave_the_workers_their_cores_are_not_taken_away() -> None:
    told = [FIXES["omp-threads"].advise(on_few_threads(threads)) for threads in (1, 2, 3)]
    assert [isinstance(one, NoUse) for one in told] == [True, True, False]
    assert in_words(told[0]) == "torch's ops have one thread as it is, which leaves the others their cores"
    for wanted in (14.0, None):  # libraries in the workers have threads too, or nobody knows
        assert isinstance(FIXES["omp-threads"].advise(on_few_threads(1, wanted)), Use)


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
    assert "F.gelu(x, approximate='tanh')" in in_words(FIXES["builtin-ops"].advise(written_out))
    assert not isinstance(FIXES["builtin-ops"].advise(chain("kltk", **drawn)), Use)
    assert not isinstance(FIXES["builtin-ops"].advise(chain("kKkltlkw", **drawn)), Use)  # calls F.gelu


def test_one_sigmoid_among_many_products_is_no_silu() -> None:
    drawn = {"k": MUL, "l": ADD, "t": SIGMOID}
    assert "F.silu" in in_words(FIXES["builtin-ops"].advise(chain("ktkt", **drawn)))
    assert not isinstance(FIXES["builtin-ops"].advise(chain("kKlL" * 20 + "tk", **drawn)), Use)


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
    assert "nn.GRU" in in_words(FIXES["builtin-ops"].advise(recurrent("my::loop")))
    advice = FIXES["builtin-ops"].advise(recurrent("aten::gru"))
    assert in_words(advice) == "most small kernels already belong to one call of aten::gru"


# -- fixes that were once part of another ------------------------------------------------------------


def test_workers_that_restart_are_kept_and_not_made_more() -> None:
    facts = drawn.short_epochs()
    assert "only while they start again" in in_words(FIXES["loader-workers"].advise(facts))
    predicted = predict(facts, {"persistent-workers": FIXES["persistent-workers"].advise(facts)})
    assert predicted is not None and ms(predicted.mid) == pytest.approx(7.0, abs=0.1)
    without = FIXES["persistent-workers"].advise(drawn.short_epochs(workers=0))
    assert in_words(without) == "the loader has no workers that could restart"


def test_memory_that_is_given_away_is_told_from_sizes_that_change() -> None:
    changing, fixed = drawn.fetching(3000, 4000, 5000), drawn.fetching(3000, 3000, 3000)
    assert "sizes change" in in_words(FIXES["keep-cache"].advise(changing))
    assert in_words(FIXES["keep-cache"].advise(fixed)).startswith("Warm up with the largest batch first")
    freed = FIXES["keep-cache"].advise(drawn.fetching(3000, 3000, 3000, host="mf"))
    assert in_words(freed).startswith("Take `torch.cuda.empty_cache()` out of the loop.")


def test_slow_convolutions_are_left_to_their_own_switch() -> None:
    advice = FIXES["autotune-kernels"].advise(drawn.convolving(56, 56, 56))
    assert "cudnn.benchmark" in in_words(advice)


def test_lists_are_for_optimizers_that_have_nothing_better() -> None:
    own = FIXES["foreach-optimizer"].advise(drawn.one_by_one("Lion"))
    assert in_words(own).startswith("Write Lion's update with `torch._foreach_` ops")
    lists = drawn.one_by_one("NAdam", "multi_tensor_apply_kernel<TensorListMetadata<2>>")
    assert "already updates parameters in lists" in in_words(FIXES["foreach-optimizer"].advise(lists))


def test_lists_of_small_parameters_save_launches_and_lists_of_large_ones_cost_time() -> None:
    small = drawn.one_by_one("NAdam")
    saved = predict(small, {"foreach-optimizer": FIXES["foreach-optimizer"].advise(small)})
    assert saved is not None and saved.mid < 0.5 * small.step
    large = job("plain_adamw")
    atoms = np.flatnonzero(of_class(large, "optimizer"))
    listed = Use("", None, likely=lambda made: in_lists(large, atoms))
    taken = predict(large, {"foreach-optimizer": listed})
    measured = TRUTH["plain_adamw"]["fixes"]["foreach"]["step_ms"]
    assert taken is not None and ms(taken.mid) == pytest.approx(measured, rel=0.05)


def test_lists_of_ones_own_walk_over_no_parameters() -> None:
    """An optimizer of torch looks at each parameter in either case; ops that a job writes itself are all that
    is left of theirs, and lists cost 0.13 of them and not 0.19."""
    steps = []
    for name in ("NAdam", "Lion"):
        facts = drawn.one_by_one(name)
        steps.append(predict(facts, {"foreach-optimizer": FIXES["foreach-optimizer"].advise(facts)}))
    assert steps[1].mid < steps[0].mid < facts.step


def test_slow_steps_that_come_by_the_clock_are_fewer_in_a_shorter_step() -> None:
    """One step in ten takes three times as long, nobody knows why: a shorter step has less of that."""
    plain = drawn.one_by_one("NAdam")
    length = plain.step / NS_PER_S

    def mid(*others: float) -> float:
        times = StepTimes((length,) * 18 + others, "measured")
        facts = facts_of(plain.timeline, step_times=times)
        made = {"foreach-optimizer": FIXES["foreach-optimizer"].advise(facts)}
        assert best_step(facts, made["foreach-optimizer"].best, ("launch-bound",)) <= predict(facts, made).mid
        return predict(facts, made).mid / facts.step

    assert mid(3 * length, 3 * length) == pytest.approx(mid(length, length), rel=1e-3)


def test_a_copy_that_nobody_waits_for_is_left_alone() -> None:
    waits = FIXES["non-blocking-copy"].advise(drawn.waits_for_pinned(sync=""))
    assert in_words(waits) == "the host does not wait for the copies from pinned memory"
    facts = drawn.waits_for_pinned()
    best = step_at_best(FIXES["non-blocking-copy"], FIXES["non-blocking-copy"].advise(facts), facts)
    assert ms(best) == pytest.approx(10.0, abs=0.1)  # the host no longer waits two ms for the copy


def test_all_to_alls_are_of_each_batch() -> None:
    exchange = {
        "n": msgspec.structs.replace(KERNELS["n"], extra={"collective": "all_to_all"}, op="c10d::alltoall_")
    }
    facts = facts_of(sketch(cpu="ooo  " * 3, gpu=" mNNM" * 3, steps="|    " * 3, kernels=exchange))
    assert facts.spent_ms("exposed-collective") > 0
    assert not isinstance(FIXES["accumulate-gradients"].advise(facts), Use)


def test_buckets_are_seen_with_their_size() -> None:
    found = buckets(drawn.searching())
    assert found is not None and (found.count, found.median, found.gradients) == (2, 4e6, 8e6)
    assert found.made(25) == 1
    assert sent_by_stage(found) == {0: 8e6, 1: 8e6, 2: 8e6, 3: 12e6}


def test_who_accumulates_already_is_told_to_reduce_once() -> None:
    advice = FIXES["accumulate-gradients"].advise(drawn.in_parallel(" ", 3))
    assert "reduced after each backward pass" in in_words(advice)
    assert isinstance(FIXES["accumulate-gradients"].advise(drawn.in_parallel(" ")), Use)


def test_products_become_fp8_where_there_is_fp8_and_int8_where_there_is_not() -> None:
    assert "has fp8 for products" in in_words(FIXES["lower-precision"].advise(multiplying()))
    ampere = multiplying("NVIDIA A100-SXM4-80GB")
    assert in_words(FIXES["fp8"].advise(ampere)) == "NVIDIA A100-SXM4-80GB is no faster in fp8"
    assert "2.0 times as many products in it as in bf16" in in_words(FIXES["lower-precision"].advise(ampere))


def test_weights_that_change_are_not_narrowed() -> None:
    assert "this job trains" in in_words(FIXES["int8-weights"].advise(job("bias_attention")))


def test_a_loss_in_one_pass_reads_its_logits_once_each_way() -> None:
    facts = drawn.over_words(131072)
    advice = {"fused-loss": FIXES["fused-loss"].advise(facts)}
    forward, backward, rest = advice["fused-loss"].likely(frozenset(advice)).edits
    once = 8192 * 131072 * 2 / (facts.ceilings.bandwidth or 0.0) * 1e9  # in bf16
    assert 0.9 * once < forward.ns[0] < 1.5 * once and 1.8 * once < backward.ns[0] < 3 * once
    assert len(rest.rows) == facts.steps.count  # the casts
    compiled = advice["fused-loss"].likely(frozenset({"fused-loss", "torch-compile"}))
    assert not compiled  # which fuses the loss with the rest


def test_rounds_of_small_ops_without_a_product_are_a_loop_to_be_replaced() -> None:
    facts = drawn.small_ops("vwx" * 10 + "u", around="y")
    advice = FIXES["vectorise-loop"].advise(facts)
    assert "10 rounds of 3 small ops (aten::mul at train.py:88)" in in_words(advice)
    assert "30 kernels per step" in in_words(advice)
    assert not isinstance(FIXES["batch-small-ops"].advise(facts), Use)
    layers = FIXES["vectorise-loop"].advise(drawn.small_ops("uvw" * 10))  # a product in each: layers
    assert not isinstance(layers, Use)


def test_a_model_that_is_called_row_by_row_is_called_once(shared: Path) -> None:
    facts = facts_of(read_trace(shared / "zoo" / "rl_policy_infer.json.gz"), step_ms=31.0)
    advice = FIXES["batch-small-ops"].advise(facts)
    assert "once on a batch instead of 64 times per step" in in_words(advice)


def test_a_function_that_is_called_in_a_loop_is_named() -> None:
    calls = {"p": (Kind.PYTHON, "boxes.py(47): overlap"), "P": (Kind.PYTHON, "boxes.py(47): overlap")}
    looping = sketch(
        steps="|".ljust(300) * 3,
        cpu=("o" + "pP" * 120).ljust(300) * 3,
        gpu=" " + ("k" * 40).ljust(300) * 3,
        host=calls,
        us=10,
    )
    advice = FIXES["vectorise-loop"].advise(facts_of(looping))
    assert "the loop that calls overlap (boxes.py:47) 240 times per step" in in_words(advice)


def test_what_the_loader_does_is_told_by_its_ops_or_not_at_all() -> None:
    fix = FIXES["device-side-preprocessing"]
    assert "tensor ops take 75 % of its time" in in_words(fix.advise(drawn.starved(inside="nnn   ")))
    assert isinstance(fix.advise(drawn.starved()), CannotTell)
    assert isinstance(fix.advise(drawn.starved(workers=8)), CannotTell)
    assert "WebDataset, FFCV" in in_words(FIXES["lighter-samples"].advise(drawn.starved()))


@pytest.mark.parametrize(("busy", "enough"), [(15.8, True), (2.4, False), (None, True)])
def test_cores_limit_workers_that_compute_not_those_that_wait(busy: float | None, enough: bool) -> None:
    advice = FIXES["loader-workers"].advise(drawn.starved(workers=16, busy=busy))
    assert isinstance(advice, Use) != enough
    assert enough or "num_workers=32" in in_words(advice)


@pytest.mark.parametrize(
    ("busy", "children", "enough"), [(16.0, 15.8, True), (16.0, 0.3, False), (4, 15, True)]
)
def test_threads_of_the_training_process_are_no_work_of_its_workers(
    busy: float, children: float, enough: bool
) -> None:
    """They keep most cores busy in the ops of the step; or others do, and workers wait in line for one."""
    advice = FIXES["loader-workers"].advise(drawn.starved(workers=16, busy=busy, children=children))
    assert isinstance(advice, Use) != enough


@pytest.mark.parametrize(("busy", "workers"), [(1.0, 4), (0.4, 2), (None, 4)])
def test_a_loader_that_only_waits_loses_nothing_in_a_worker(busy: float | None, workers: int) -> None:
    """The step has 2 ms left for it, and making a batch takes 4."""
    advice = FIXES["loader-workers"].advise(drawn.starved(busy=busy))
    assert f"num_workers={workers}," in in_words(advice)


def test_a_loader_that_stands_in_line_for_a_core_computes() -> None:
    """Half of the time other processes had its core, so that it kept only half of one busy."""
    advice = FIXES["loader-workers"].advise(drawn.starved(busy=0.5, in_line=0.5))
    assert "num_workers=4," in in_words(advice)


def test_workers_of_a_batch_that_threads_make_have_one_each() -> None:
    """They may all work or wait for work, so that one worker may make a sixteenth of it: all cores are used,
    but that of the training process."""
    advice = FIXES["loader-workers"].advise(drawn.starved(busy=13.0, loading=(16.0, 1.0)))
    assert isinstance(advice, Use)
    assert advice.parameters == {"workers": 15, "prefetch": 4, "threads": 1} and advice.likely is None
    assert "each worker on one thread" in in_words(advice) and "16.0 busy cores" in in_words(advice)


@pytest.mark.parametrize("loading", [(1.02, 1.0), (0.5, 0.48), (0.06, 0.02)])
def test_workers_of_a_batch_that_one_thread_makes_need_no_limit(loading: tuple[float, float]) -> None:
    """It works, waits for its core, or waits for something else beside threads that do little."""
    advice = FIXES["loader-workers"].advise(drawn.starved(busy=0.7, in_line=0.3, loading=loading))
    assert isinstance(advice, Use) and "threads" not in advice.parameters
    assert "thread" not in in_words(advice)


def test_where_nobody_counted_threads_workers_get_one_as_the_choice_without_risk() -> None:
    advice = FIXES["loader-workers"].advise(drawn.starved())
    assert isinstance(advice, Use) and advice.parameters["threads"] == 1
    assert in_words(advice).endswith("Where NumPy makes the samples, keep it on one thread in each worker.")


@pytest.mark.parametrize(
    ("cores", "best_ms"), [(1, 4.0), (2, 2.0), (16, 2.0)]
)  # of 4 ms for a batch and 2 for the rest
def test_core_seconds_of_a_batch_over_the_cores_bound_the_step(cores: int, best_ms: float) -> None:
    facts = drawn.starved(loading=(1.0, 1.0), cores=cores)
    advice = FIXES["loader-workers"].advise(facts)
    assert isinstance(advice, Use)
    assert ms(step_at_best(FIXES["loader-workers"], advice, facts)) == pytest.approx(best_ms, rel=0.02)


def test_a_step_is_predicted_only_where_one_worker_would_keep_up() -> None:
    """A lock that all samples need is not seen in a process that has it to itself."""
    said = [
        FIXES["loader-workers"].advise(drawn.starved(host, loading=(1.0, 1.0)))
        for host in ("ddddo ", "do    ")
    ]
    assert [isinstance(one, Use) and one.likely is not None for one in said] == [False, True]


def test_a_batch_that_the_loop_itself_prepares_is_prepared_on_the_device() -> None:
    advice = FIXES["device-side-preprocessing"].advise(drawn.prepared_in_the_loop())
    assert "most of it right before a batch is sent" in in_words(advice) and advice.moves == ("host-work",)
    logging = FIXES["device-side-preprocessing"].advise(job("json_logging"))
    assert in_words(logging) == "the host's own work does not end with a batch that is sent to the device"


def test_threads_of_others_are_not_the_jobs() -> None:
    advice = FIXES["omp-threads"].advise(drawn.crowded(own=4.0, others=12.0))
    assert in_words(advice) == "it is not the job's own threads that keep the cores busy"
    assert isinstance(FIXES["omp-threads"].advise(job("inference")), CannotTell)


@pytest.mark.parametrize("workers", [None, 0])
def test_threads_of_one_process_do_not_fight_for_the_cores(workers: int | None) -> None:
    """A trial of it would say no more than this, after minutes."""
    facts = drawn.crowded()
    assert isinstance(FIXES["omp-threads"].advise(facts), Use)
    alone = replace(facts, rank=replace(facts.rank, loader_workers=workers))
    assert in_words(FIXES["omp-threads"].advise(alone)).startswith("no loader has workers")


def test_no_thread_takes_a_loop_of_python_off_the_step() -> None:
    """Python holds its interpreter in any thread: what is left of the step then nobody can tell."""
    move = FIXES["move-io-off-step"]
    looping = move.advise(stood_on(("boxes.py:47", ""), ("boxes.py:48", "")))
    assert isinstance(looping, Use) and looping.likely is None and "process" in in_words(looping)
    saving = move.advise(stood_on(("log.py:12", "encoder.py:iterencode")))
    assert isinstance(saving, Use) and saving.likely is not None and "thread" in in_words(saving)


def test_no_line_that_runs_ops_is_moved_off_the_step() -> None:
    """As of a loop over many small tensors in an optimizer: between its ops there is nothing to move."""
    move = FIXES["move-io-off-step"]
    facts = stood_on(
        ("train.py:48", "adam.py:_single_tensor_adam"), ("train.py:47", "graph.py:_engine_run_backward")
    )
    mostly = replace(facts.rank, host_lines=(*facts.rank.host_lines, HostLine("train.py:48", "step", 0.05)))
    said = move.advise(replace(facts, rank=mostly))
    assert isinstance(said, NoUse) and "where ops run" in in_words(said)
    saves = HostLine("train.py:52", "save", 0.5, "serialization.py:save")
    said = move.advise(replace(facts, rank=replace(mostly, host_lines=(*mostly.host_lines, saves))))
    assert isinstance(said, Use) and "train.py:52" in in_words(said)


@pytest.mark.parametrize(("cpu", "gpu", "together"), [("os  ", "kb  ", True), ("osss", "kbbb", False)])
def test_a_copy_longer_than_the_work_behind_it_is_no_part_of_it(cpu: str, gpu: str, together: bool) -> None:
    """A checkpoint is written for longer than it is copied; features are copied out for longer than used."""
    copied = {"b": replace(KERNELS["b"], op="aten::to", nbytes=10**8)}
    facts = facts_of(sketch(f"{cpu}  " * 3, f"{gpu}  " * 3, "|     " * 3, kernels=copied))
    found = FIXES["move-io-off-step"].advise(facts)
    assert isinstance(found, Use) and found.moves is not None
    assert ("host-sync" in found.moves) == together
    assert ("copied out" in in_words(found)) == together


def test_advice_names_what_its_number_counts() -> None:
    """Where most of what a fix gives is not what it is known for, its text says what it is."""
    chains = facts_of(sketch("oooonn  " * 3, " kKkK   " * 3, "|       " * 3))
    fused = FIXES["reduce-overhead"].advise(chains)
    assert isinstance(fused, Use) and "which it fuses" in in_words(fused)
    launched = FIXES["reduce-overhead"].advise(job("inference"))
    assert isinstance(launched, Use) and "which it fuses" not in in_words(launched)


def test_sound_has_no_layout_of_images() -> None:
    wave = Drawn("implicit_convolve_sgemm", "aten::cudnn_convolution").given([16, 64, 4096], [64, 64, 3])
    image = wave.given([16, 64, 64, 64], [64, 64, 3, 3])
    for drawn_as, warned in ((wave, False), (image, True)):
        facts = facts_of(sketch("o   " * 3, " ccc" * 3, "|   " * 3, kernels={"c": drawn_as}))
        found = FIXES["bf16-autocast"].advise(facts)
        assert isinstance(found, Use) and ("channels-last" in in_words(found)) == warned


def test_an_average_in_lists_takes_the_waits_for_it_out() -> None:
    facts = drawn.averaging()
    fix = FIXES["averages-in-lists"].advise(facts)
    saved = predict(facts, {"averages-in-lists": fix})
    assert saved is not None and saved.mid < 0.5 * facts.step
    assert isinstance(FIXES["averages-in-lists"].advise(drawn.averaging(place="other")), NoUse)


def test_a_compiled_model_leaves_the_average_as_it_is() -> None:
    averaged = drawn.averaging(tensors=200)
    for name in ("torch-compile", "reduce-overhead"):
        left = predict(averaged, {name: FIXES[name].advise(averaged)})
        assert left is not None and left.mid > 0.8 * averaged.step


def test_what_lies_behind_the_last_product_may_be_a_loss_of_its_own() -> None:
    facts = drawn.losing(behind=4, inside=2)
    assert len(behind_the_products(facts)) == 4 * facts.steps.count  # two forward, two back
    told = in_words(FIXES["torch-compile"].advise(facts))
    assert "4.00 ms per step of that lies behind the last product, as losses do: compile that" in told
    inside = in_words(FIXES["torch-compile"].advise(drawn.losing(behind=0, inside=4)))
    assert inside.startswith("Use `model = torch.compile(model)`") and "as losses do" not in inside


@pytest.mark.parametrize(
    ("samples", "unit", "busy", "whole"),
    [
        (8192, "samples", 6.0, True),
        (64, "samples", 6.0, False),  # 375 us each: work of its own
        (8192, "tokens", 6.0, False),
        (None, None, 6.0, False),
        (8192, "samples", 0.3, False),  # the workers wait: for a server, not for Python
    ],
)
def test_samples_of_microseconds_are_fetched_as_whole_batches(
    samples: int | None, unit: str | None, busy: float, whole: bool
) -> None:
    facts = drawn.starved(workers=4, busy=busy, children=busy)
    facts = replace(facts, run=replace(facts.run, samples_per_step=samples, sample_unit=unit))
    how = in_words(FIXES["lighter-samples"].advise(facts))
    assert ("Fetch whole batches" in how and "a sample takes 3 us" in how) is whole
    assert ("Make the samples cheaper" in how) is not whole


@pytest.mark.parametrize(("saving_s", "saves"), [(0.0185, True), (0.0, False), (None, False)])
def test_a_checkpoint_in_every_step_is_no_loop_of_python(saving_s: float | None, saves: bool) -> None:
    """Its lines with no library under them rename files and put states together."""
    facts = stood_on(("train.py:9", ""), ("train.py:21", ""))
    timed = StepTimes((0.0318,), "measured", saving_s=saving_s)
    facts = replace(facts, rank=replace(facts.rank, step_times=timed))
    move = FIXES["move-io-off-step"].advise(facts)
    assert ("writing checkpoints takes 18.5 ms per step" in in_words(move)) is saves
    assert (move.likely is not None) is saves
    assert isinstance(FIXES["vectorise-loop"].advise(facts), NoUse) is saves


def test_autocast_does_not_reach_a_kernel_of_the_job_s_own() -> None:
    for op, reached in (("aten::mm", True), ("my::gemm", False)):
        drawn = {"t": Drawn("sgemm_128x64_nn", op).given([8192, 8192], [8192, 512])}
        facts = facts_of(sketch("o  o  o  o", "tt tt tt t", "|  |  |  |  ", kernels=drawn))
        assert isinstance(FIXES["bf16-autocast"].advise(facts), Use) == reached
