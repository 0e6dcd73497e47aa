"""Attention that the library was asked for and computes on its math path, recorded on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.fixes import Use
from findwall.fixes.kernels import sdpa
from sketch import facts_of
from speaking import in_words
from traced_steps import traced_steps

torch = pytest.importorskip("torch")
LENGTH = 96


def recorded(path: Path, work: Callable[[], Any]) -> Facts:
    """Three steps of some work and its backward pass."""
    return facts_of(traced_steps(lambda _: work().sum().backward(), path), device_kind="cpu")


def tensor(*dims: int, dtype: Any = None) -> Any:
    return torch.randn(*dims, dtype=dtype, requires_grad=True)


def called(path: Path, q: Any, **options: Any) -> Facts:
    attention = torch.nn.functional.scaled_dot_product_attention
    return recorded(path, lambda: attention(q, q, q, **options))


def test_dropout_on_a_cpu(tmp_path: Path) -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 32, dropout=0.1, batch_first=True)
    batch = torch.randn(4, LENGTH, 32)
    advice = sdpa.FIX.advise(recorded(tmp_path, lambda: layer(batch)))
    assert isinstance(advice, Use) and len(in_words(advice)) <= 260
    assert "takes its math path" in in_words(advice) and "Replace" not in in_words(advice)
    assert "dropout_p=0.1" in in_words(advice) and "self_attn.dropout = 0.0" in in_words(advice)


def test_fp64_on_a_gpu(tmp_path: Path) -> None:
    facts = called(tmp_path, tensor(2, 4, LENGTH, 16, dtype=torch.float64), dropout_p=0.1)
    advice = sdpa.FIX.advise(replace(facts, rank=replace(facts.rank, device_kind="gpu")))
    assert "no fused kernel takes fp64" in in_words(advice) and "dropout" not in in_words(advice)


def test_layouts_that_no_fused_kernel_takes(tmp_path: Path) -> None:
    assert "4 dims" in in_words(sdpa.FIX.advise(called(tmp_path, tensor(4, LENGTH, 16))))
    aslant = tensor(2, 4, 16, LENGTH).transpose(2, 3).detach().requires_grad_()
    assert "contiguous" in in_words(sdpa.FIX.advise(called(tmp_path, aslant)))


def test_masks_that_no_fused_kernel_takes(tmp_path: Path) -> None:
    q = tensor(2, 4, LENGTH, 16)
    advice = sdpa.FIX.advise(called(tmp_path, q, attn_mask=torch.zeros(4, LENGTH, LENGTH)))
    assert "not of 3" in in_words(advice)
    advice = sdpa.FIX.advise(called(tmp_path, q, attn_mask=tensor(LENGTH, LENGTH)))
    assert "if it needs a gradient" in in_words(advice) and len(in_words(advice)) <= 260


def test_where_the_arguments_do_not_tell_torch_is_asked(tmp_path: Path) -> None:
    backend = torch.nn.attention
    with backend.sdpa_kernel(backend.SDPBackend.MATH):
        facts = called(tmp_path, tensor(2, 4, LENGTH, 16))
    advice = sdpa.FIX.advise(facts)
    assert "SDPBackend.FLASH_ATTENTION" in in_words(advice) and len(in_words(advice)) <= 260


def test_a_call_that_is_fused_needs_nothing(tmp_path: Path) -> None:
    advice = sdpa.FIX.advise(called(tmp_path, tensor(2, 4, LENGTH, 16)))
    assert in_words(advice) == "attention already runs in fused kernels"


def test_weights_that_are_asked_for_keep_it_written_out(tmp_path: Path) -> None:
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    batch = torch.randn(4, LENGTH, 32)
    advice = sdpa.FIX.advise(recorded(tmp_path, lambda: layer(batch, batch, batch)[0]))
    assert in_words(advice).startswith("Replace softmax") and "need_weights=False" in in_words(advice)
