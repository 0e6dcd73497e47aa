"""What autocast makes of tensors on a GPU, by the rules of torch's own lists: small steps, drawn by hand."""

from __future__ import annotations

import numpy as np

from findwall.fixes import memory_edits
from findwall.fixes.precision.autocast_lives import BackwardFormats, ForwardFormats
from findwall.memory.batch_growth import with_batch
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.memory_ladder import predicted
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.memory.snapshots.snapshot_shape import history
from memory_samples import BACKWARD, BUILD, MAIN, MIB, STEP, Recorder, Stack, cpp_pickle

WEIGHT = 7 * MIB
Made = tuple[str, int, Stack]


def op(*names: str, line: int = 30, inside: Stack = ()) -> Stack:
    return *(f"at::_ops::{one}::call(...)" for one in names), *inside, f"model.py:{line}:forward", MAIN


def back(*names: str) -> Stack:
    return *(f"at::_ops::{one}::call(...)" for one in names), "Engine::thread_main()"


class Step:
    """Forward in order; backward makes `behind`, each gone with the next, and frees what was kept."""

    def __init__(
        self, kept: list[Made], passing: tuple[str, ...] = (), behind: tuple[Made, ...] = ()
    ) -> None:
        job = Recorder()
        self._names = [name for name, _, _ in kept]
        with job.recording():
            job.alloc("weight", WEIGHT, BUILD)
            for at, (name, size, stack) in enumerate(kept):
                job.alloc(name, size, stack)
                for before in self._names[:at]:
                    if before in passing and before in job.held:
                        job.free(before)
            for name, size, stack in behind:
                job.alloc(name, size, stack)
                job.free(name, BACKWARD)
            job.alloc("gradient", WEIGHT, back("mm"))
            for name in reversed(self._names):
                if name in job.held:
                    job.free(name, BACKWARD)
            job.alloc("update", MIB, STEP)
            job.free("update", STEP)
        self.facts: DeviceMemoryFacts = device_memory(history("x", PlainPickle(cpp_pickle(job.snapshot()))))[
            0
        ]
        self.formats = ForwardFormats(self.facts)

    def row(self, name: str) -> int:
        born = np.argsort(self.facts.walk.lives.born, kind="stable")
        return int(born[1 + self._names.index(name)])

    def at_end_of_forward(self, size: int) -> int:
        """In MiB, of that size as it was recorded and half of it: with autocast, what backward will find."""
        lives, forward = self.facts.walk.lives, self.formats
        now = int(self.facts.backward_starts[0]) - 1
        there = lives.alive_at(now) & (lives.asked == size)
        held = int(np.where(forward.narrow, lives.asked // 2, lives.asked)[there].sum())
        born, died, asked = forward.also()
        mine = (born <= now) & (died > now) & np.isin(np.abs(asked), (size, size // 2))
        return (held + int(asked[mine].sum())) // MIB

    def rung(self, fix: str) -> int:
        return {one.fix: one.mid for one in predicted(self.facts, memory_edits())}[fix]


CONVOLUTION = op("conv2d", "cudnn_convolution")


def test_a_norm_keeps_a_copy_in_fp32_of_what_a_convolution_made() -> None:
    """And nobody keeps the original."""
    step = Step([("conv", 8 * MIB, CONVOLUTION), ("norm", 6 * MIB, op("group_norm", "native_group_norm"))])
    assert step.at_end_of_forward(8 * MIB) == 8
    assert step.at_end_of_forward(6 * MIB) == 6


def test_what_a_norm_makes_for_a_product_is_kept_in_sixteen_bits() -> None:
    """Its mean and deviation, made last, are not what the product reads."""
    norm = op("layer_norm", "native_layer_norm")
    step = Step(
        [
            ("norm", 8 * MIB, norm),
            ("mean", MIB // 4, norm),
            ("deviation", MIB // 4, norm),
            ("out", 6 * MIB, op("linear", "addmm", line=31)),
        ]
    )
    assert step.at_end_of_forward(8 * MIB) == 4
    assert step.at_end_of_forward(6 * MIB) == 3


def test_an_overload_is_known_by_its_op() -> None:
    """`softmax_int` is a softmax, `gru_input` a GRU, and `add_Tensor` adds."""
    rows = [("scores", 8 * MIB, op("bmm")), ("weights", 8 * MIB, op("softmax_int", "_softmax"))]
    attention = Step(rows, passing=("scores",))
    assert attention.formats.narrow[[attention.row("scores"), attention.row("weights")]].tolist() == [
        True,
        False,
    ]
    rnn = Step([("hidden", 8 * MIB, op("gru_input", "_cudnn_rnn"))])
    assert rnn.formats.narrow[rnn.row("hidden")]
    residual = Step(
        [
            ("stream", 8 * MIB, op("index_select")),
            ("norm", 7 * MIB, op("layer_norm", "native_layer_norm")),
            ("out", 8 * MIB, op("linear", "addmm")),
            ("sum", 8 * MIB, op("add_Tensor")),
        ]
    )
    assert not residual.formats.narrow[residual.row("sum")]


def test_cross_entropy_takes_sixteen_bits_and_its_loss_a_copy_in_fp32() -> None:
    step = Step(
        [
            ("logits", 8 * MIB, op("linear", "mm")),
            ("log", 8 * MIB, op("cross_entropy_loss", "log_softmax_int", "_log_softmax")),
            ("loss", 512, op("cross_entropy_loss", "nll_loss_nd", "nll_loss", "nll_loss_forward")),
        ],
        passing=("logits",),
        behind=(
            ("of the loss", 8 * MIB, back("nll_loss_backward")),
            ("of the logits", 8 * MIB, back("_log_softmax_backward_data")),
        ),
    )
    assert step.at_end_of_forward(8 * MIB) == 4 + 8
    # The copy is gone before backward goes on.
    _, died, asked = step.formats.also()
    lives = step.facts.walk.lives
    of_logits = lives.born[(lives.asked == 8 * MIB) & (lives.born > step.facts.backward_starts[0])].max()
    assert (died[asked == 8 * MIB] <= of_logits).all()
    narrow = BackwardFormats(step.facts, step.formats).narrow
    assert {int(lives.born[row]) for row in np.flatnonzero(narrow & (lives.asked == 8 * MIB))} == {of_logits}


def test_what_is_added_into_fp32_is_kept_in_fp32() -> None:
    rows = [
        ("nodes", 4 * MIB, op("layer_norm", "native_layer_norm")),
        ("joined", 6 * MIB, op("cat")),
        ("told", 8 * MIB, op("linear", "addmm", line=31)),
        ("zeros", 4 * MIB, op("zeros_like", line=32)),
        ("heard", 4 * MIB, op("index_add", line=32)),
    ]
    assert Step(rows, passing=("zeros",)).at_end_of_forward(8 * MIB) == 8
    into_narrow = [("nodes", 4 * MIB, op("linear", "addmm")), *rows[1:]]
    assert Step(into_narrow, passing=("zeros",)).at_end_of_forward(8 * MIB) == 4


def test_a_caller_holds_what_it_hands_to_a_module_until_that_returns() -> None:
    """The convolution keeps a copy in sixteen bits, and the original is there while the block goes on."""
    block: Stack = ("block.py:9:forward", "/site-packages/torch/nn/modules/module.py:1:_call_impl")
    rows = [
        ("joined", 8 * MIB, op("cat", line=40)),
        ("conv", 6 * MIB, op("conv2d", inside=block, line=40)),
        ("more", 6 * MIB, op("silu", inside=block, line=40)),
        ("after", 6 * MIB, op("silu", line=41)),
    ]
    step = Step(rows)
    born, died, asked = step.formats.also()
    assert died[asked == 8 * MIB] == step.facts.walk.lives.born[step.row("after")]
    assert born[asked == 8 * MIB] == step.facts.walk.lives.born[step.row("joined")]


def test_masks_and_indices_have_no_format() -> None:
    dropout, pool = op("dropout", "native_dropout"), op("max_pool2d", "max_pool2d_with_indices")
    step = Step(
        [
            ("hidden", 8 * MIB, op("linear", "addmm")),
            ("mask", 2 * MIB, dropout),
            ("dropped", 8 * MIB, dropout),
            ("pooled", 3 * MIB, pool),
            ("places", 6 * MIB, pool),
        ]
    )
    counts = {name: bool(step.formats.counts[step.row(name)]) for name in step._names}
    assert counts == {"hidden": False, "mask": True, "dropped": False, "pooled": False, "places": True}


def test_the_parts_of_a_sum_are_as_large_as_the_device() -> None:
    """Neither sixteen bits nor a larger batch make them another size."""
    parts = ("void at::native::gpu_reduce_kernel<float, float, 4, 4>(...)", *back("sum_dim_IntList"))
    step = Step([("hidden", 8 * MIB, op("linear", "addmm"))], behind=(("parts", 64 * MIB, parts),))
    lives = step.facts.walk.lives
    assert step.facts.peak_bytes == WEIGHT + (8 + 64) * MIB
    assert step.rung("pure-bf16") == WEIGHT // 2 + (4 + 64) * MIB
    assert with_batch(step.facts, 2)[0].peak == WEIGHT + (16 + 64) * MIB
    assert not BackwardFormats(step.facts, step.formats).narrow[lives.asked == 64 * MIB].any()
