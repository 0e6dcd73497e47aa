"""Jobs drawn for rewrites that move less, and the same jobs where those do not apply."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.model.events import Kind
from sketch import KERNELS, Drawn, facts_of, sketch


def transforming(length: int, channels_last_conv: bool = False) -> Facts:
    """A step transforms 384 images of so many pixels a side, for far longer than memory allows."""
    transform = Drawn(
        "void regular_bluestein_fft<1296u, EPT<6u>, 1u, 4u>",
        "aten::_fft_r2c",
        ([8, 48, length, length], [], [], []),
        ("float", "ScalarList", "Scalar", "Scalar"),
        concrete=("", "[2, 3]", "0", "True"),
    )
    convolution = Drawn("sm80_xmma_fprop_implicit_gemm_tf32f32", "aten::cudnn_convolution").given(
        [8, 48, length, length], [48, 48, 3, 3]
    )
    drawn = {"u": transform, "k": convolution if channels_last_conv else KERNELS["k"]}
    return facts_of(sketch("oosssssss " * 3, " uuuuuukkb" * 3, "|         " * 3, kernels=drawn))


def looking_up(
    lookups: int = 100_000,
    optimizer: str = "Adam",
    lists: bool = True,
    product: tuple[int, int] = (512, 512),
    by_frequency: str = "False",
) -> Facts:
    """A step looks up rows of a table of 8,000,000, zeroes a gradient of them all, and updates them all."""
    rows, width = 8_000_000, 64
    table, layer = [rows, width], list(product)
    backward = Drawn(
        "void at::native::compute_grad_weight<float, long>",
        "aten::embedding_dense_backward",
        ([lookups, width], [lookups], [], [], []),
        ("float", "long int", "Scalar", "Scalar", "Scalar"),
        concrete=("", "", str(rows), "-1", by_frequency),
    )
    zeroes = Drawn("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", "aten::fill_")
    update = Drawn(
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>>",
        "aten::_foreach_addcmul_",
        ([table, layer], [table, layer], [table, layer], []) if lists else ([], [], [], []),
        ("TensorList", "TensorList", "TensorList", "Scalar"),
    )
    drawn = {
        "t": KERNELS["t"].given([4096, product[0]], layer),
        "u": backward,
        "v": zeroes.given(table),
        "w": update,
    }
    return facts_of(
        sketch(
            steps="|           " * 3,
            cpu=" AAAzz      " * 3 + "\n" + "ooo oosssss " * 3,
            gpu=" tvuwwwwwWWb" * 3,
            kernels=drawn,
            host={
                "A": (Kind.OP, "autograd::engine::evaluate_function: EmbeddingBackward0"),
                "z": (Kind.ANNOTATION, f"Optimizer.step#{optimizer}.step"),
            },
        )
    )


def joining(*lengths: int, added: int = 1) -> Facts:
    """Every step joins keys of a token to those that it has so far, as many as it is told."""
    cat = Drawn(
        "void at::native::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>",
        "aten::cat",
        types=("TensorList", "Scalar"),
        concrete=("", "-2"),
    )
    drawn = {
        letter: replace(cat, dims=([[1024, 16, length, 64], [1024, 16, added, 64]], []))
        for letter, length in zip("uvwxyz", lengths, strict=False)
    }
    letters = list(drawn)
    host = "ooosssssss "
    return facts_of(
        sketch(
            steps="|          " * len(letters),
            cpu=host * len(letters),
            gpu="".join(f" m{one * 3}{one.upper() * 3}  b" for one in letters),
            kernels=drawn,
        )
    )
