"""fp32 matmuls where tensor cores could serve."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.walls import fast_path_off
from sketch import Drawn, facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|        |        |        "


def fires() -> Facts:
    return facts_of(sketch(cpu="o        o        o", gpu="tttttttt ttttttttt ttttttt", steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu="o        o        o", gpu="m        m        m", steps=STEPS))


def cannot_tell() -> Facts:
    """On a GPU nobody knows there is no ceiling to fall short of."""
    return facts_of(
        sketch(cpu="o        o        o", gpu="tttttttt ttttttttt ttttttt", steps=STEPS, device="")
    )


def test_names_the_setting() -> None:
    text = in_words(fast_path_off, fires())
    assert 'set_float32_matmul_precision("high")' in text
    assert "[8192×8192]·[8192×512] fp32" in evidence_of(fast_path_off, fires())[0]


def test_a_card_without_tf32_gets_fp16() -> None:
    old = facts_of(sketch(cpu="o  o  o", gpu="tt tt tt", steps="|  |  |  ", device="Tesla V100-SXM2-32GB"))
    assert "fp16 autocast with a GradScaler" in in_words(fast_path_off, old)


def test_fp64_goes_to_fp32_first_and_only_if_it_may() -> None:
    drawn = {"t": Drawn("volta_dgemm_128x64_nn", "aten::mm").given([8192, 8192], [8192, 512], dtype="double")}
    text = in_words(
        fast_path_off, facts_of(sketch(cpu="o  o  o", gpu="tt tt tt", steps="|  |  |  ", kernels=drawn))
    )
    assert "goes to fp64 matmuls" in text
    assert "Make the data fp32 (.float()) if fp64's digits are not needed, then set torch." in text
