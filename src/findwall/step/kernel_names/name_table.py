"""A table that reads something off a name: a row per pattern, with an example and where it was seen.

The rows are in order of rank: the first that matches decides. Order matters between rows that tell
different things; rows that follow each other and tell the same are searched for at once.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class NameRow(msgspec.Struct, Generic[T], frozen=True):
    pattern: str  # searched for in the lower-case name
    tells: T
    example: str  # a name this row decides, as the library writes it
    source: str  # library and version, or the trace the example is from


class NameTable(Generic[T]):
    def __init__(self, *rows: NameRow[T]) -> None:
        self.rows = rows
        self._searches: list[tuple[T, str]] = [
            (told, "|".join(f"(?:{row.pattern})" for row in group))
            for told, group in itertools.groupby(rows, key=lambda row: row.tells)
        ]

    def read(self, lower_case_name: str) -> T | None:
        """What the highest-ranked row that matches tells; None where none does."""
        for told, pattern in self._searches:
            if _compiled(pattern).search(lower_case_name):
                return told
        return None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern when it is first needed: most traces never get to most of them."""
    return re.compile(pattern)


# -- where the names were seen ----------------------------------------------------------------------------


# The traces are those of the README beside them, by file name.
H200 = "torch 2.11, CUDA 13.0 on an H200 (tests/fixtures and the zoo)"
V100_RESNET = "torch 1.8 on a V100 (trace v100_resnet50_workers0)"
V100_CNN = "cuDNN 8 on a V100 (trace v100_cnn_ns_timestamps)"
V100_DLRM = "DLRM with FBGEMM on a V100 (traces v100_dlrm_8_ranks)"
A100_ALEXNET = "AlexNet on an A100 (trace a100_alexnet_cuda_sync)"
A100_DDP = "DDP on an A100 (trace a100_cnn_ddp_rank0_of_2)"
RECSYS = "FBGEMM and torch on 128 GPUs (trace recsys_rank0_of_128)"
H100_QWEN = "torch on an H100 (trace h100_qwen_forward)"
B200_VLLM = "vLLM on a B200 (trace b200_vllm_tp8_rank0)"
MI210 = "MIOpen and hipBLASLt on an MI210 (trace mi210_no_cpu_events)"
MI300X = "torch on an MI300X (trace mi300x_qwen_forward)"
MI300X_NORMS = "MIOpen on an MI300X (trace mi300x_norm_layers_first_calls)"
MI300X_SGLANG = "SGLang on an MI300X (trace mi300x_sglang_decode)"
# Rows that no trace we have exercises say which library writes such names, or that nobody wrote it down.
UNSEEN = "; in no trace we have"
BY_HAND = "plain words for the thing, chosen by hand; the example is made up"
