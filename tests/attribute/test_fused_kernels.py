"""The matrix of scores is known by its shape: a softmax's and a batched matmul's."""

from __future__ import annotations

import pytest

from findwall.attribute.fused_kernels import score_shapes
from findwall.model.events import Timeline
from sketch import Drawn, sketch

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
