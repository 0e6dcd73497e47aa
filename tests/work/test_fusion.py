"""What a chain of memory-bound kernels need not move if it were one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.facts.facts import Facts
from findwall.model.causes import CAUSES
from findwall.model.events import Timeline
from findwall.work.fusion import fuse, score_shapes
from sketch import BIG, KERNELS, Drawn, facts_of, sketch

SIZE = 4.0 * BIG[0] * BIG[1]


def saved(gpu: str, **kernels: Drawn) -> list[float]:
    """Whole tensors each kernel of one step need not move."""
    facts = chain(gpu, **kernels)
    index = facts.atoms.index
    index = index[: len(index) // facts.steps.count]
    step = np.zeros(len(index), np.int64)
    found = fuse(facts.timeline, facts.kernels, index, step, float(facts.ceilings.l2_bytes or 0)).saved
    return [round(float(value) / SIZE, 3) for value in found]


def chain(gpu: str, **kernels: Drawn) -> Facts:
    width = len(gpu) + 1
    return facts_of(
        sketch(
            cpu=("o" * len(gpu)).ljust(width) * 3,
            gpu=gpu.ljust(width) * 3,
            steps=("|" + " " * (width - 1)) * 3,
            kernels=kernels,
        )
    )


def test_an_intermediate_is_neither_written_nor_read() -> None:
    assert saved("kKk") == [1, 2, 1]


def test_a_matmul_ends_the_chain() -> None:
    assert saved("kmk") == [0, 0, 0]


def test_another_size_is_another_tensor() -> None:
    other = KERNELS["k"].given([100, 100])
    assert saved("kak", a=other)[1] == 0


def test_a_single_kernel_saves_nothing() -> None:
    assert saved("k") == [0]


def test_without_shapes_nothing_is_known() -> None:
    blank = Drawn(KERNELS["k"].kernel, "aten::mul")
    assert saved("aAa", a=blank) == [0, 0, 0]


def test_a_fused_chain_keeps_its_ends() -> None:
    """Eight kernels that read one tensor and write one leave one read and one write."""
    facts = chain("mkKkKkKkK")  # the matmul parts one step's chain from the next one's
    gain = facts.recoverable_ms("unfused-pointwise")
    must = 2 * SIZE / float(facts.ceilings.bandwidth or np.nan) * 1e3
    arithmetic = 8 * SIZE / 4 / facts.ceilings.flops["fp32"] * 1e3
    assert gain is not None
    assert facts.spent_ms("unfused-pointwise") - gain == pytest.approx(max(must, arithmetic), rel=0.2)


BATCH_NORM = Drawn("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "aten::cudnn_batch_norm").given(
    BIG, [8192]
)
BATCH_NORM_BACKWARD = Drawn(
    "void cudnn::bn_bw_1C11_kernel_new<float>", "aten::cudnn_batch_norm_backward"
).given(BIG, BIG, [8192])
MASKED = Drawn(
    "void at::native::vectorized_elementwise_kernel<4, at::native::threshold_kernel_impl<float>>",
    "aten::threshold_backward",
).given(BIG, BIG)


def cause_of(facts: Facts, atom: int) -> str:
    return CAUSES[int(facts.atoms.cause[atom])]


def test_a_norm_before_its_activation_is_part_of_the_chain() -> None:
    facts = chain("mwk")
    assert cause_of(facts, 1) == "unfused-pointwise"
    assert facts.spent_ms("memory-roof") == 0


def test_a_norm_between_matmuls_moves_only_what_it_must() -> None:
    facts = chain("mwm", w=KERNELS["w"].given([57344, 8192], [8192]))
    assert cause_of(facts, 1) == "memory-roof"


def test_no_chain_outlasts_a_step() -> None:
    facts = chain("w")
    assert facts.spent_ms("unfused-pointwise") == 0


def test_a_log_softmax_and_its_loss_are_one_chain() -> None:
    logits = Drawn("void at::native::cunn_SoftMaxForward<4, float, float, float>", "aten::_log_softmax")
    backward = Drawn("void at::native::cunn_SoftMaxBackward<4, float>", "aten::_log_softmax_backward_data")
    facts = chain("mpqm", p=logits.given(BIG), q=backward.given(BIG, BIG))
    assert facts.spent_ms("memory-roof") == 0
    assert (facts.recoverable_ms("unfused-pointwise") or 0) > 0


def test_a_batch_norm_reads_its_tensor_twice() -> None:
    """Before its activation: two reads, of the activation one write."""
    facts = chain("mak", a=BATCH_NORM)
    gain = facts.recoverable_ms("unfused-pointwise")
    assert gain is not None
    must = 3 * SIZE / float(facts.ceilings.bandwidth or np.nan) * 1e3
    arithmetic = facts.spent_ms("unfused-pointwise") - gain
    assert arithmetic == pytest.approx(must, rel=0.15)


def test_what_a_second_pass_needs_again_is_written() -> None:
    """A mask made from two tensors is cheaper to keep than to make twice."""
    assert saved("mpqm", p=MASKED, q=BATCH_NORM_BACKWARD) == [0, 0, 1, 0]
    assert saved("mkqm", q=BATCH_NORM_BACKWARD) == [0, 1, 1, 0]


@given(st.permutations(list("kwkwm")), st.permutations(list("mkkw")))
def test_whatever_the_order_a_chain_gives_back_no_more_than_it_takes(
    first: list[str], second: list[str]
) -> None:
    facts = chain("".join(one.upper() if at % 2 else one for at, one in enumerate(first + second)))
    spent, gain = facts.spent_ms("unfused-pointwise"), facts.recoverable_ms("unfused-pointwise")
    assert gain is not None and 0 <= gain <= spent + 1e-9


SOFTMAX = Drawn("void softmax_warp_forward<float>", "aten::_softmax")
PRODUCT = Drawn("nvjet_NNT", "aten::bmm")


def drawn(softmax: Drawn, product: Drawn) -> Timeline:
    return sketch(cpu="oo", gpu="pv", kernels={"p": softmax, "v": product})


def test_a_softmax_and_a_product_that_share_a_shape() -> None:
    timeline = drawn(SOFTMAX.given([8, 12, 64, 128]), PRODUCT.given([96, 64, 128], [96, 128, 32]))
    assert score_shapes(timeline) == {(96, 64, 128)}


@pytest.mark.parametrize(
    ("softmax", "product"),
    [
        (SOFTMAX.given([8, 12, 64, 64]), PRODUCT.given([96, 64, 32], [96, 32, 16])),  # other shapes
        (
            SOFTMAX.given([8192, 50257]),
            PRODUCT.given([8192, 50257], [50257, 768]),
        ),  # a loss over a vocabulary
        (SOFTMAX, PRODUCT),  # nothing recorded
    ],
)
def test_anything_else_is_no_attention(softmax: Drawn, product: Drawn) -> None:
    assert score_shapes(drawn(softmax, product)) == set()
