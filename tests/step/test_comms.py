"""Communication is known by what it does, not by a library's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from findwall.model.events import DEVICE_KINDS, Kind
from findwall.readers.torch_trace import read_trace
from findwall.step.comms import is_communication
from findwall.step.kernel_classes import classify
from findwall.step.links import link


def verdict(book: Any, row: int) -> bool:
    timeline = book.timeline()
    rows = timeline.rows(*DEVICE_KINDS)
    found = is_communication(timeline, link(timeline), rows)
    return bool(found[np.flatnonzero(rows == row)[0]])


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void deep_ep::internode_ll::combine<true, 9, 9, 3072>(void*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "nvshmemi_collective_kernel",
    ],
)
def test_known_by_its_kernel(book: Any, name: str) -> None:
    assert verdict(book, book.kernel(name))


@pytest.mark.parametrize(
    "op", ["symm_mem::multimem_all_reduce_", "c10d::allreduce_", "record_param_comms", "vllm::all_reduce"]
)
def test_known_by_the_op_that_launched_it(book: Any, op: str) -> None:
    assert verdict(book, book.op(op, [[8]], ["float"], "kernel_17"))


def test_known_by_the_annotation_around_the_launch(book: Any) -> None:
    outer = book.open("nccl:all_reduce", kind=Kind.ANNOTATION)
    row = book.kernel("kernel_17")
    book.close(outer)
    assert verdict(book, row)


def test_known_by_its_metadata(book: Any) -> None:
    assert verdict(book, book.kernel("kernel_17", collective="_allgather_base"))


def test_a_copy_inside_a_collective_is_a_copy(book: Any) -> None:
    outer = book.open("c10d::allgather_")
    row = book.op("aten::copy_", [[8], [8]], ["float", "float"], "copy_kernel")
    book.close(outer)
    assert not verdict(book, row)


DOWN, UP = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)"


def copied(book: Any, name: str, *around: tuple[str, Kind]) -> int:
    """A copy by an aten op inside these."""
    rows = [book.open(outer, kind=kind) for outer, kind in (*around, ("aten::copy_", Kind.OP))]
    copy: int = book.kernel(name, call="cudaMemcpyAsync", kind=Kind.MEMCPY, nbytes=1 << 20)
    for row in reversed(rows):
        book.close(row)
    return copy


@pytest.mark.parametrize(
    ("name", "around"),
    [
        (DOWN, ("c10d::allreduce_", Kind.OP)),
        (UP, ("gloo:all_reduce", Kind.ANNOTATION)),
        (UP, ("mpi:broadcast", Kind.ANNOTATION)),
        (DOWN, ("_c10d_functional::all_gather_into_tensor", Kind.OP)),
    ],
)
def test_a_copy_through_the_host_inside_a_collective_is_its_transport(
    book: Any, name: str, around: tuple[str, Kind]
) -> None:
    assert verdict(book, copied(book, name, around, ("aten::to", Kind.OP)))


@pytest.mark.parametrize(
    ("name", "around"),
    [
        ("Memcpy DtoD (Device -> Device)", ("c10d::allreduce_", Kind.OP)),  # into a bucket, on the device
        (UP, ("DistributedDataParallel.forward", Kind.ANNOTATION)),
        (UP, ("FSDP::all_gather_copy_in", Kind.ANNOTATION)),  # parameters that were offloaded
        (DOWN, ("all_reduce the metrics", Kind.ANNOTATION)),
        (DOWN, ("gloo:all_reduce", Kind.PYTHON)),
    ],
)
def test_other_copies_are_not(book: Any, name: str, around: tuple[str, Kind]) -> None:
    assert not verdict(book, copied(book, name, around))


def test_a_copy_while_a_collective_is_under_way_is_not(book: Any) -> None:
    """Its range was opened in a call that returned at once, and stays open on that thread."""
    call = book.open("c10d::allreduce_")
    talk = book.open("ucc:all_reduce", kind=Kind.ANNOTATION)
    book.close(call)
    batch = copied(book, UP)
    book.close(talk)
    assert not verdict(book, batch)


def test_compute_is_not(book: Any) -> None:
    row = book.op("aten::mm", [[8, 8], [8, 8]], ["float", "float"], "volta_sgemm_64x64_nt")
    assert not verdict(book, row)
    book.kernel("ncclDevKernel_SendRecv(x)", stream=20)
    assert not verdict(book, row)


def test_symmetric_memory_collectives_of_a_real_server(shared: Path) -> None:
    timeline = read_trace(shared / "traces" / "b200_vllm_tp8_rank0.json.gz")
    rows = timeline.rows(Kind.KERNEL)
    found = rows[is_communication(timeline, link(timeline), rows)]
    names = {timeline.name_of(int(row)) for row in found}
    assert any("multimem_all_reduce" in name for name in names)
    assert len(found) == 74


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
        "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
        "void uccl::internode::dispatch<false, 2, false, __nv_bfloat16>(void*)",
        "void my_moe::combine<__nv_bfloat16, 8>(__nv_bfloat16*)",
        "void ep::cached_notify_combine<8>(void**, int*)",
        "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs)",
        "nvshmemi_transfer_rma_p",
    ],
)
def test_a_name_that_is_a_collective_is_communication(book: Any, name: str) -> None:
    """One table decides both."""
    book.kernel(name, 100.0)
    timeline = book.timeline()
    links = link(timeline)
    assert is_communication(timeline, links, timeline.rows(Kind.KERNEL)).all()
    assert classify(name, None, Kind.KERNEL) == "collective"


@pytest.mark.parametrize(
    "name",
    [
        "void flash::flash_fwd_splitkv_combine_kernel<Traits>(Params)",
        "void at::native::vectorized_elementwise_kernel<4, my::combine<float>>(int)",
    ],
)
def test_what_combines_on_one_device_is_none(book: Any, name: str) -> None:
    assert not verdict(book, book.kernel(name))
