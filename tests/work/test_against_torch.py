"""FLOPs of a real trace against torch's own counter: two programs, one number.

No grouped convolution here: torch counts the weight half of its backward without the groups.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from findwall.model.events import Kind
from findwall.readers.torch_trace import read_trace
from findwall.work.op_work import op_work

torch = pytest.importorskip("torch")
COUNTED = ("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution", "aten::convolution_backward")


def step() -> None:
    from torch import nn

    torch.manual_seed(0)
    convolutions = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3), nn.ConvTranspose2d(8, 4, 2, stride=2)
    )
    head = nn.Linear(4 * 12 * 12, 10)
    image = torch.randn(2, 3, 16, 16)
    flat = convolutions(image).flatten(1)
    scores = torch.randn(3, 5, 7) @ torch.randn(3, 7, 11)
    (head(flat).sum() + scores.sum()).backward()


def test_flops_agree_with_torch(tmp_path: Path) -> None:
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    timeline = read_trace(tmp_path / "trace.json")
    rows = [int(row) for row in np.flatnonzero(timeline.events.is_kind(Kind.OP))]
    found = [
        op_work(timeline.name_of(row), timeline.inputs_of(row))
        for row in rows
        if timeline.name_of(row) in COUNTED
    ]
    assert len(found) >= 8 and all(work is not None for work in found)
    assert sum(work.flops for work in found if work is not None) == counter.get_total_flops()
