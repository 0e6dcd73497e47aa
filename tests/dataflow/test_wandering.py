"""Tensors that lie elsewhere in every step."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from dataflow_observed import flow_of
from findwall.dataflow.wandering import wandering_reads

MEMORIES = [torch.randn(4) for _ in range(64)]


def test_what_is_picked_from_a_list_wanders(tmp_path: Path) -> None:
    picked = iter(range(0, 64, 16))
    flow = flow_of(lambda: torch.stack(MEMORIES[(at := next(picked)) : at + 16]).sum(), tmp_path)
    assert wandering_reads(flow) == 16


def test_what_is_read_again_does_not(tmp_path: Path) -> None:
    assert wandering_reads(flow_of(lambda: torch.stack(MEMORIES[:16]).sum(), tmp_path)) == 0
