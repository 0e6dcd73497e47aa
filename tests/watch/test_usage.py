"""What processes take of the machine, counted in a /proc that is made up."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from findwall.watch.usage import between, mean, totals

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024**2


def write(folder: Path, pid: int, cpu_s: float, waited_s: float, read: int | None) -> None:
    own = folder / str(pid)
    task = own / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    fields = ["S", "1", *["0"] * 9, str(round(cpu_s * TICKS)), "0", *["0"] * 20]
    for path in (own / "stat", task / "stat"):
        path.write_text(f"{pid} (python) {' '.join(fields)}")
    (task / "schedstat").write_text(f"1 {round(waited_s * 1e9)} 3\n")
    if read is not None:
        (own / "io").write_text(f"rchar: 1\nread_bytes: {read}\nwrite_bytes: 0\n")


def test_rates_are_of_the_process_and_its_helpers(tmp_path: Path) -> None:
    write(tmp_path, 1, 10.0, 1.0, 0)
    write(tmp_path, 2, 5.0, 0.0, 0)
    first = totals(1, [2], tmp_path)
    write(tmp_path, 1, 11.0, 1.5, 4 * MIB)
    write(tmp_path, 2, 7.0, 0.0, 2 * MIB)
    write(tmp_path, 3, 99.0, 0.0, 99 * MIB)  # it came meanwhile: what it took before is not of this stretch
    last = msgspec.structs.replace(totals(1, [2, 3], tmp_path), at=first.at + 2.0)
    use = between(first, last)
    assert use is not None
    assert use.cores == pytest.approx(1.5)
    assert use.in_line_share == pytest.approx(0.25) and use.read_mib_s == pytest.approx(3.0)
    assert use.threads == 1


def test_what_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0, 0.0, None)
    first = totals(1, [], tmp_path)
    use = between(first, msgspec.structs.replace(first, at=first.at + 1.0))
    assert use is not None and use.read_mib_s is None and use.cores == 0.0


def test_moments_too_close_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0, 0.0, None)
    first = totals(1, [], tmp_path)
    assert between(first, msgspec.structs.replace(first, at=first.at + 0.1)) is None
    assert mean([]).cores is None


def test_a_mean_weighs_by_length(tmp_path: Path) -> None:
    write(tmp_path, 1, 0.0, 0.0, None)
    first = totals(1, [], tmp_path)
    write(tmp_path, 1, 1.0, 0.0, None)
    busy = between(first, msgspec.structs.replace(totals(1, [], tmp_path), at=first.at + 1.0))
    idle = between(first, msgspec.structs.replace(first, at=first.at + 3.0))
    assert busy is not None and idle is not None
    assert mean([busy, idle]).cores == pytest.approx(0.25)
