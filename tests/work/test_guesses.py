"""Kernels without an op: what the chain on their stream tells, however many streams somebody made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from book import Book
from findwall.machine.hardware import table_ceilings
from findwall.step.links import link
from findwall.work.kernel_table import kernel_table
from findwall.work.work_facts import KernelTable

H200 = table_ceilings("NVIDIA H200")
ADD = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16>, array<char*, 3> >()"
NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)"
NVJET = "nvjet_sm90_tst_64x32_64x4_1x2_h_bz_NNT"
CHAINS = 600  # of four kernels each


def chains(streams: int) -> Book:
    """An addition, a norm, a product and another addition, again and again; nobody launched them."""
    book = Book()
    for chain in range(CHAINS):
        for name, blocks in ((ADD, 64), (NORM, 32), (NVJET, 16), (ADD, 256)):
            book.kernel(name, 20.0, (blocks, 1, 1), launched=False, stream=chain % streams)
    return book


def table(book: Book) -> KernelTable:
    timeline = book.timeline()
    return kernel_table(timeline, link(timeline), H200)


def calls_of(run: Callable[[], object]) -> int:
    """How many calls something makes, into C as well."""
    made = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return made


def test_a_product_has_its_sizes_from_its_neighbours() -> None:
    """32 rows of 1024: the norm has a block a row, the addition before it four elements a thread."""
    found = table(chains(1))
    product = found.flops[2::4]
    assert (product == 2 * 32 * 1024 * 4096).all()


def test_streams_do_not_mix() -> None:
    """The same chains tell the same, whichever stream each of them runs on."""
    one, many = table(chains(1)), table(chains(CHAINS))
    assert np.array_equal(one.flops, many.flops, equal_nan=True)
    assert np.array_equal(one.bytes, many.bytes, equal_nan=True)


def test_many_streams_are_no_more_work_than_one() -> None:
    """A trace may have a stream for every few kernels: 30,000 of them were searched one by one once."""
    few, many = chains(2).timeline(), chains(CHAINS).timeline()
    few_links, many_links = link(few), link(many)
    kernel_table(few, few_links, H200)  # what is remembered of names is remembered now
    usual = calls_of(lambda: kernel_table(few, few_links, H200))
    assert calls_of(lambda: kernel_table(many, many_links, H200)) <= 1.1 * usual
