"""Kernels of inference servers are fused by hand: they are no chain that a compiler could join."""

from __future__ import annotations

from book import Book
from findwall.model.events import Kind
from sketch import facts_of

BF16 = "c10::BFloat16"


def test_a_servers_activation_is_no_unfused_chain_and_its_cache_no_layout_copy() -> None:
    book = Book()
    for step in range(3):
        mark = book.open(f"ProfilerStep#{step}", kind=Kind.ANNOTATION)
        for _ in range(4):
            book.op(
                "sgl_kernel::silu_and_mul",
                [[8192, 12288], [8192, 24576]],
                [BF16, BF16],
                "void act_and_mul_kernel<__nv_bfloat16, &silu>()",
                150.0,
            )
            book.op(
                "sglang::store_cache",
                [[8192, 1024], [8192, 1024], [90_000, 1024], [90_000, 1024]],
                [BF16] * 4,
                "void store_kvcache<2048l, 4, false, long>()",
                25.0,
            )
        book.close(mark)
    facts = facts_of(book.timeline())
    assert facts.share("unfused-pointwise") == 0 and facts.share("layout-copies") == 0
    assert facts.share("memory-roof") > 0.5
