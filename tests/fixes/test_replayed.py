"""A decode step replayed from a CUDA graph: what is changed before the capture is replayed as well."""

from __future__ import annotations

from math import log

import findwall
from captures import FIXTURES
from findwall.examine import examine
from findwall.readers import open_run
from speaking import in_words

RUN = FIXTURES / "runs" / "decode_replay"
COMPILED_MS = 5.53  # on an H200, compiled before the capture; the plain job took 5.88
NEAR = 0.05


def test_compiling_before_the_capture_keeps_the_replay() -> None:
    found = examine(open_run([RUN]), what_if="torch-compile").what_if
    assert found is not None and found.step_ms.mid is not None and found.step_ms.low is not None
    assert abs(log(found.step_ms.mid / COMPILED_MS)) < NEAR
    assert found.step_ms.low < COMPILED_MS * 1.03


def test_nobody_is_told_that_compiling_it_is_slower() -> None:
    told = findwall.read(RUN)
    assert all("torch-compile" not in refused.fixes for refused in told.not_worth_it)
    compiled = next(one for one in told.prescriptions if "torch-compile" in one.fixes)
    assert "before the capture" in in_words(compiled)
