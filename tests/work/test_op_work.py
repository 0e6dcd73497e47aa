"""FLOPs and bytes of ops from their recorded inputs, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.model.events import Inputs
from findwall.work.op_arguments import Work
from findwall.work.op_families import models
from findwall.work.op_work import op_work

BF16, FP32 = "c10::BFloat16", "float"


def work(op: str, dims: list[Any], types: list[Any], concrete: list[str] | None = None, **more: Any) -> Work:
    found = op_work(op, Inputs(dims=dims, types=types, concrete=concrete or [], **more))
    assert found is not None
    return found


def test_a_product_reads_two_matrices_and_writes_one() -> None:
    found = work("aten::mm", [[128, 64], [64, 256]], [BF16, BF16])
    assert found.flops == 2 * 128 * 64 * 256
    assert found.read_bytes == 2 * (128 * 64 + 64 * 256)
    assert found.write_bytes == 2 * 128 * 256
    assert found.tensor_core_able and found.math == "bf16" and not found.misaligned


def test_addmm_linear_and_batches() -> None:
    added = work("aten::addmm", [[256], [128, 64], [64, 256], [], []], [FP32, FP32, FP32, "Scalar", "Scalar"])
    assert added.flops == 2 * 128 * 64 * 256
    linear = work("aten::linear", [[2, 64, 64], [256, 64], [256]], [FP32, FP32, FP32])
    assert linear.flops == added.flops and linear.nbytes == added.nbytes
    batched = work("aten::bmm", [[8, 128, 64], [8, 64, 256]], [FP32, FP32])
    assert batched.flops == 8 * added.flops
    assert work("aten::mv", [[128, 64], [64]], [FP32, FP32]).flops == 2 * 128 * 64
    fp8 = work("aten::_scaled_mm", [[128, 64], [64, 256]], ["c10::Float8_e4m3fn"] * 2)
    assert fp8.math == "fp8" and fp8.read_bytes == 128 * 64 + 64 * 256 and fp8.write_bytes == 2 * 128 * 256


def test_odd_widths_of_16_bit_operands_are_named() -> None:
    assert work("aten::mm", [[8192, 768], [768, 50257]], [BF16, BF16]).misaligned
    assert not work("aten::mm", [[8192, 768], [768, 50257]], [FP32, FP32]).misaligned
    # The odd dimension is the height of a row-major matrix: no row starts off its 16 bytes.
    odd_rows = work("aten::mm", [[8191, 768], [768, 3072]], [BF16, BF16], strides=[[768, 1], [3072, 1]])
    assert not odd_rows.misaligned
    # Given transposed, the same matrix has rows of 8191 elements.
    across = work("aten::mm", [[768, 8191], [8191, 3072]], [BF16, BF16], strides=[[1, 768], [3072, 1]])
    assert not across.misaligned
    along = work("aten::mm", [[768, 8191], [8191, 3072]], [BF16, BF16], strides=[[8191, 1], [3072, 1]])
    assert along.misaligned


def test_a_convolution_counts_taps_channels_and_groups() -> None:
    shape = [[8, 64, 56, 56], [128, 64, 3, 3], [], [], [], [], [], [], []]
    types = [BF16, BF16, "ScalarList", "ScalarList", "ScalarList", "Scalar", "Scalar", "Scalar", "Scalar"]
    found = work("aten::cudnn_convolution", shape, types, ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"])
    assert found.flops == 2 * 8 * 128 * 28 * 28 * 64 * 9
    assert found.write_bytes == 2 * 8 * 128 * 28 * 28
    grouped = [[8, 64, 56, 56], [64, 1, 3, 3], *shape[2:]]
    depthwise = work("aten::cudnn_convolution", grouped, types, ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "64"])
    assert depthwise.flops == 2 * 8 * 64 * 56 * 56 * 9


def test_a_wide_stride_skips_input() -> None:
    shape = [[8, 64, 56, 56], [128, 64, 1, 1], [], [], [], []]
    types = [BF16, BF16, "ScalarList", "ScalarList", "ScalarList", "Scalar"]
    found = work("aten::cudnn_convolution", shape, types, ["", "", "[0, 0]", "[2, 2]", "[1, 1]", "1"])
    assert found.read_bytes == 2 * (8 * 64 * 28 * 28 + 128 * 64)


def test_a_convolution_backward_is_two_halves() -> None:
    dims = [[8, 128, 56, 56], [8, 64, 56, 56], [128, 64, 3, 3], [], [], [], [], [], [], [], []]
    types = [BF16, BF16, BF16, *["ScalarList"] * 8]
    concrete = [
        "",
        "",
        "",
        "[0]",
        "[1, 1]",
        "[1, 1]",
        "[1, 1]",
        "False",
        "[0, 0]",
        "1",
        "[True, True, False]",
    ]
    both = work("aten::convolution_backward", dims, types, concrete)
    one = 2 * 8 * 128 * 56 * 56 * 64 * 9
    assert [part.flops for part in both.parts] == [one, one]
    concrete[-1] = "[False, True, False]"
    assert work("aten::convolution_backward", dims, types, concrete).flops == one


@pytest.mark.parametrize(
    ("op", "causal_at", "heads_first"),
    [
        ("aten::_scaled_dot_product_flash_attention", 4, True),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", 4, True),
        ("aten::_cudnn_attention_forward", 10, True),
        ("aten::_flash_attention_forward", 8, False),
        ("aten::_efficient_attention_forward", 9, False),
    ],
)
def test_attention_forward(op: str, causal_at: int, heads_first: bool) -> None:
    shape = [2, 4, 256, 64] if heads_first else [2, 256, 4, 64]
    dims, types = [shape, shape, shape, *[[]] * 12], [BF16, BF16, BF16, *["Scalar"] * 12]
    full = work(op, dims, types, ["False"] * 15 if "efficient" not in op else ["0"] * 15)
    assert full.flops == 4 * 2 * 4 * 256 * 256 * 64
    concrete = ["0"] * 15
    concrete[causal_at] = "1" if "efficient" in op else "True"
    assert work(op, dims, types, concrete).flops == pytest.approx(full.flops * 257 / 512)
    assert full.read_bytes == 3 * 2 * 2 * 4 * 256 * 64


def test_attention_backward_is_two_and_a_half_forwards() -> None:
    shape = [2, 4, 256, 64]
    dims = [shape] * 5 + [[2, 4, 256, 1]] + [[]] * 10
    found = work("aten::_cudnn_attention_backward", dims, [BF16] * 5 + [FP32] + ["Scalar"] * 10, [""] * 16)
    assert found.flops == 10 * 2 * 4 * 256 * 256 * 64
    assert found.parts[0].flops == 0 and found.parts[-1].flops == found.flops


def test_broadcasting_reads_each_operand_once() -> None:
    found = work("aten::mul", [[8, 1024, 768], [768]], [FP32, FP32])
    assert found.read_bytes == 4 * (8 * 1024 * 768 + 768)
    assert found.write_bytes == 4 * 8 * 1024 * 768


def test_numbers_promote_nothing() -> None:
    found = work("aten::mul", [[1024], []], [BF16, "double"])
    assert found.write_bytes == 2 * 1024
    assert work("aten::add", [[1024], [1024], []], [FP32, BF16, "Scalar"]).write_bytes == 4 * 1024
    assert work("aten::add", [[1024], [1024], []], ["c10::Half", BF16, "Scalar"]).write_bytes == 4 * 1024
    assert work("aten::div", [[1024], []], ["long int", "double"]).write_bytes == 4 * 1024
    assert work("aten::eq", [[1024], [1024]], [FP32, FP32]).write_bytes == 1024


def test_in_place_ops_write_their_first_argument() -> None:
    found = work("aten::add_", [[1024], [1024], []], [BF16, FP32, "Scalar"])
    assert found.read_bytes == (2 + 4) * 1024 and found.write_bytes == 2 * 1024


def test_an_expanded_tensor_is_read_once() -> None:
    found = work("aten::mul", [[1024, 768], [1024, 768]], [FP32, FP32], strides=[[768, 1], [1, 0]])
    assert found.read_bytes == 4 * (1024 * 768 + 1024)


def test_transcendentals_cost_arithmetic() -> None:
    cheap, dear = (work(op, [[1 << 20]], [FP32]).flops for op in ("aten::neg", "aten::tanh"))
    assert dear >= 10 * cheap


def test_a_square_is_not_two_tensors() -> None:
    shape = [[1024], [1024], [1024], []]
    found = work("aten::addcmul_", shape, [FP32, FP32, FP32, "Scalar"])
    assert found.read_bytes == 2 * 4 * 1024 and found.write_bytes == 4 * 1024


def test_copies_casts_and_joins() -> None:
    cast = work("aten::copy_", [[1024], [1024], []], [FP32, BF16, "Scalar"])
    assert cast.cast and cast.read_bytes == 2 * 1024 and cast.write_bytes == 4 * 1024
    assert not work("aten::copy_", [[1024], [1024], []], [FP32, FP32, "Scalar"]).cast
    joined = work("aten::cat", [[[4, 8], [4, 8]], []], ["TensorList", "Scalar"])
    assert joined.nbytes == 2 * 4 * 64 and joined.type_from_kernel


def test_reductions_keep_the_axes_they_are_not_told() -> None:
    rows = work(
        "aten::sum", [[64, 128], [], [], []], [FP32, "ScalarList", "Scalar", ""], ["", "[0]", "True", ""]
    )
    assert rows.write_bytes == 4 * 128
    whole = work("aten::mean", [[64, 128], []], [FP32, ""], ["", ""])
    assert whole.write_bytes == 4 and whole.read_bytes == 4 * 64 * 128


def test_softmax_and_norms() -> None:
    softmax = work("aten::_softmax", [[64, 128], [], []], [BF16, "Scalar", "Scalar"], ["", "-1", "True"])
    assert softmax.write_bytes == 4 * 64 * 128
    norm = work(
        "aten::native_layer_norm", [[64, 128], [], [128], [128], []], [FP32, "", FP32, FP32, "Scalar"]
    )
    assert norm.nbytes == 2 * 4 * 64 * 128
    dims = [[8, 64, 7, 7], [8, 64, 7, 7], [64]]
    back = work("aten::native_batch_norm_backward", dims, [BF16, BF16, FP32])
    reduce, apply = back.parts[1], back.parts[2]
    assert (reduce.nbytes, apply.nbytes) == (2 * 2 * 8 * 64 * 49, 3 * 2 * 8 * 64 * 49)


def test_images_taken_apart_into_columns_and_put_together() -> None:
    pairs = ["[5, 3]", "[1, 1]", "[2, 1]", "[1, 2]"]
    images = work("aten::im2col", [[8, 16, 48, 40], *[[]] * 4], [FP32, *["ScalarList"] * 4], ["", *pairs])
    columns = 4 * 8 * 16 * 15 * 48 * 20
    assert images.read_bytes == 4 * 8 * 16 * 48 * 40 and images.write_bytes == columns
    dims = [[8, 240, 960], *[[]] * 5]
    back = work("aten::col2im", dims, [FP32, *["ScalarList"] * 5], ["", "[48, 40]", *pairs])
    assert back.read_bytes == columns and back.write_bytes == images.read_bytes


def test_rows_fetched_by_number() -> None:
    found = work("aten::embedding", [[50257, 768], [8, 1024]], [FP32, "long int"])
    assert found.write_bytes == 4 * 8 * 1024 * 768
    assert found.read_bytes == 8 * 8192 + 4 * 8192 * 768
    small = work("aten::embedding", [[10, 768], [8, 1024]], [FP32, "long int"])
    assert small.read_bytes == 8 * 8192 + 4 * 10 * 768


def test_a_bag_of_rows_is_written_as_one() -> None:
    """As torch 2 hands its arguments on: table, indices, offsets; back: gradient, indices, bags, sizes, the
    largest, rows of the table."""
    fetched, bags, width = 65536, 2048, 64
    found = work("aten::_embedding_bag", [[10**6, width], [fetched], [bags]], [FP32, "long int", "long int"])
    assert found.write_bytes == 4 * bags * width + 8 * fetched
    assert found.read_bytes == 8 * (fetched + bags) + 4 * fetched * width
    assert found.flops == fetched * width
    dims = [[bags, width], [fetched], [fetched], [bags], [0], []]
    kinds = [FP32, "long int", "long int", "long int", "long int", "Scalar"]
    back = work("aten::_embedding_bag_dense_backward", dims, kinds)
    assert back.parts[1].nbytes == 4 * bags * width + 3 * 8 * fetched + 4 * fetched * width


def test_optimizers_from_their_lists() -> None:
    lists = [[[1024, 1024], [1024]]] * 2
    found = work("aten::_foreach_add_", [*lists, []], ["TensorList", "TensorList", "Scalar"])
    count = 1024 * 1024 + 1024
    assert found.read_bytes == 8 * count and found.write_bytes == 4 * count and not found.per_parameter
    adam = work("aten::_fused_adamw_", [[]] * 6, ["TensorList"] * 6)
    assert adam.per_parameter and (adam.read_bytes, adam.write_bytes) == (16, 12)


def test_compiled_kernels_touch_each_tensor_once() -> None:
    dims = [[8, 2048], [2048], [8, 2048], [], []]
    found = work("triton_red_fused_mul_tanh_0", dims, [BF16, BF16, BF16, "Scalar", "Scalar"])
    assert found.nbytes == 2 * (2 * 8 * 2048 + 2048)
    assert work("triton_poi_fused_relu_0", [[1024], []], [FP32, "Scalar"]).nbytes == 2 * 4 * 1024


def test_servers_own_ops() -> None:
    shape = [[888, 2880], [888, 2880], [2880], []]
    found = work("_C::fused_add_rms_norm", shape, [BF16, BF16, BF16, "Scalar"])
    assert found.nbytes == 2 * (4 * 888 * 2880 + 2880)


def test_what_is_not_known_has_no_work() -> None:
    assert op_work("aten::mm", None) is None
    assert op_work("aten::mm", Inputs(dims=[[8, 8], [9, 8]], types=[FP32, FP32])) is None
    assert op_work("mylib::secret", Inputs(dims=[[8, 8]], types=[FP32])) is None
    assert (
        op_work("aten::cudnn_convolution", Inputs(dims=[[8, 3, 9, 9], [4, 3, 3, 3]], types=[FP32] * 2))
        is None
    )


SHAPES = st.lists(st.one_of(st.integers(-3, 1 << 40), st.lists(st.integers(-1, 99), max_size=3)), max_size=5)
TYPES = st.sampled_from([FP32, BF16, "double", "long int", "bool", "Scalar", "", "TensorList", "nonsense"])
TEXTS = st.sampled_from(["", "1", "-1", "[1, 1]", "[0]", "True", "[True, False]", "nan", "[x", "1e999"])


@drawn(100)
@given(
    st.sampled_from(sorted(models())),
    st.lists(SHAPES, max_size=6),
    st.lists(TYPES, max_size=6),
    st.lists(TEXTS, max_size=16),
    st.lists(SHAPES, max_size=6),
)
def test_no_recorded_shape_breaks_it(
    op: str, dims: list[Any], types: list[Any], concrete: list[str], strides: list[Any]
) -> None:
    found = op_work(f"aten::{op}", Inputs(dims=dims, types=types, concrete=concrete, strides=strides))
    assert found is None or (found.flops >= 0 and found.nbytes >= 0)


def lstm_inputs(batch: int, steps: int, width: int, hidden: int, backward: bool = False) -> Inputs:
    """One layer, one direction, as torch records `_cudnn_rnn`."""
    weights = [[4 * hidden, width], [4 * hidden, hidden], [4 * hidden], [4 * hidden]]
    dims: list[Any] = [[steps, batch, width], weights, [], [1], [1, batch, hidden], [1, batch, hidden]]
    types: list[Any] = [FP32, "TensorList", "Scalar", FP32, FP32, FP32]
    if backward:
        dims += [[steps, batch, hidden], [steps, batch, hidden]]
        types += [FP32, FP32]
    return Inputs(dims=dims, types=types, concrete=["", "", "4", "", "", "", "2", str(hidden)])


def test_a_recurrent_network_takes_every_token_through_every_weight() -> None:
    forward = op_work("aten::_cudnn_rnn", lstm_inputs(16, 100, 64, 128))
    assert forward is not None and forward.tensor_core_able and forward.math == "fp32"
    assert forward.flops == 2 * 16 * 100 * 4 * 128 * (64 + 128)
    assert [part.flops for part in forward.parts] == [
        2 * 1600 * 512 * 64,
        2 * 1600 * 512 * 128,
        0,
    ]
    backward = op_work("aten::_cudnn_rnn_backward", lstm_inputs(16, 100, 64, 128, backward=True))
    assert backward is not None and backward.flops == 2 * forward.flops


def test_a_recurrent_network_whose_weights_were_not_recorded_has_no_model() -> None:
    inputs = Inputs(dims=[[100, 16, 64], []], types=[FP32, "TensorList"], concrete=["", "", "4"])
    assert op_work("aten::_cudnn_rnn", inputs) is None


def test_a_recurrent_layer_on_cores_does_the_same() -> None:
    dims = [[100, 16, 64], [512, 64], [512, 128], [512], [512], [16, 128], [16, 128]]
    forward = work("aten::mkldnn_rnn_layer", dims, [BF16] * 7)
    assert forward.flops == 2 * 16 * 100 * 512 * (64 + 128) and forward.math == "bf16"
    backward = work("aten::mkldnn_rnn_layer_backward", dims, [BF16] * 7)
    assert backward.flops == 2 * forward.flops


def test_ops_of_servers_move_what_they_are_given() -> None:
    norm = work("aiter::rmsnorm", [[32, 4096], [32, 4096], [4096], []], [BF16, BF16, BF16, "Scalar"])
    assert norm.nbytes == 2 * (2 * 32 * 4096 + 4096)
    added = work("aiter::add_rmsnorm", [[32, 4096]] * 4 + [[4096], []], [BF16] * 5 + ["Scalar"])
    assert added.nbytes == 2 * (4 * 32 * 4096 + 4096)
    cache = work(
        "sglang::store_cache",
        [[32, 1024], [32, 1024], [800_000, 1024], [800_000, 1024], [32]],
        [BF16] * 4 + ["long int"],
    )
    assert cache.nbytes == 2 * 2 * 2 * 32 * 1024  # the rows that change, not the cache


def test_experts_read_the_weights_of_those_that_got_a_token() -> None:
    def experts(tokens: int) -> Work:
        dims = [[tokens, 2048], [64, 2 * 768, 2048], [64, 2048, 768], [tokens, 8], [tokens, 8]]
        return work("vllm::inplace_fused_experts", dims, [BF16, BF16, BF16, FP32, "int"])

    one, many = experts(1), experts(4096)
    weights = 64 * (2 * 768 * 2048 + 2048 * 768)
    assert one.flops == 2 * 8 * weights / 64
    assert one.read_bytes == pytest.approx(2 * (2048 + 8 / 64 * weights))
    assert many.read_bytes == pytest.approx(2 * (4096 * 2048 + weights))


@pytest.mark.parametrize(("axis", "once"), [("0", True), ("1", False), ("", False)])
def test_short_rows_are_sorted_in_one_pass(axis: str, once: bool) -> None:
    sorted_rows = work("aten::sort", [[16, 8192], []], [FP32, "Scalar"], ["", axis])
    assert (sorted_rows.nbytes == 16 * 8192 * (4 + 4 + 8)) == once


def test_factorisations_and_solves_have_lapacks_counts() -> None:
    cholesky = work("aten::linalg_cholesky_ex", [[8, 384, 384], [], []], [FP32, "Scalar", "Scalar"])
    assert cholesky.flops == pytest.approx(8 * 384**3 / 3)
    assert cholesky.nbytes == 2 * 8 * 384 * 384 * 4
    inverse = work("aten::cholesky_inverse", [[384, 384], []], [FP32, "Scalar"])  # the factor is there
    assert inverse.flops == pytest.approx(2 / 3 * 384**3)
    solve = work("aten::linalg_solve_triangular", [[384, 384], [384, 65536], [], []], [FP32, FP32, "", ""])
    assert solve.flops == 384**2 * 65536
    tall = work("aten::linalg_qr", [[1000, 100], []], ["double", ""])
    assert tall.flops == pytest.approx(2 * 1000 * 100**2 - 2 / 3 * 100**3) and tall.math == "fp64"
    wide = work("aten::_linalg_svd", [[100, 1000], [], [], []], [FP32, "", "", ""])
    assert wide.flops == pytest.approx(4 * 1000 * 100**2 - 4 / 3 * 100**3)
    assert work("aten::_linalg_eigh", [[64, 64]], ["c10::complex<float>"]).flops > 4 * 64**3
