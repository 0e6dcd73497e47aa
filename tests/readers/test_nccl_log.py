"""A log of NCCL beside the traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.api import read
from findwall.errors import InputError
from findwall.facts.message_traffic import doubts_of
from findwall.readers import nccl_log
from findwall.readers.nccl_log import is_log, read_logs
from speaking import spoken

FIXTURE = Path(__file__).parents[1] / "fixtures" / "eager_training.json.gz"
LINES = """step 1 loss 3.0
one:10:20 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
one:10:20 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.
one:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
one:10:20 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct
[rank1]: one:11:21 [1] NCCL INFO Channel 00 : 1[1b000] -> 2[1c000] [send] via NET/Socket/0
two:12:22 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/Socket/0
two:12:22 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[1] via P2P/CUMEM/read
two:13:22 [1] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [send] via NET/IB/0/GDRDMA
two:13:22 [1] NCCL INFO Channel 00/0 : 3[1] -> 9[1] [send] via NET/IB/0
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.out"
    path.write_text(LINES)
    return path


def test_transports_and_where_they_lead(log: Path) -> None:
    found = read_logs([log])
    seen = {one.via: (one.across_nodes, one.gpu_direct, one.count) for one in found.connections}
    assert seen["SHM"] == (False, None, 1)  # two channels, one pair
    assert seen["NET/Socket"] == (True, False, 1)
    assert seen["P2P/CUMEM"] == (False, None, 1)
    assert found.version == "2.21.5" and found.switched_off == ("NCCL_P2P_DISABLE",)
    unsure = [one for one in found.connections if one.across_nodes is None]
    assert [(one.via, one.gpu_direct) for one in unsure] == [("NET/IB", False)]  # nobody says where 9 runs


def test_what_is_slower_than_it_might_be_is_said(log: Path) -> None:
    said = [spoken(claim) for claim in doubts_of(read_logs([log]))]
    assert len(said) == 4
    assert "1 of 5 connections go over TCP sockets" in said[0]
    assert "the environment sets NCCL_P2P_DISABLE" in said[-1]
    assert doubts_of(None) == []


def test_it_is_read_beside_a_trace_and_not_alone(log: Path) -> None:
    found = read([FIXTURE, log])
    assert found.ranks is not None and {one.via for one in found.ranks.transports} >= {"SHM", "NET/Socket"}
    assert found.step.ms == read(FIXTURE).step.ms
    with pytest.raises(InputError, match="no times"):
        read(log)


def test_no_log_is_taken_for_one(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("NCCL is a library")
    assert not is_log(other) and not is_log(FIXTURE) and not is_log(tmp_path) and not is_log(tmp_path / "no")


def test_hostile_lines_end_the_reading_at_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(b"a:1:2 [0] NCCL INFO Channel " + b"9" * 100_000 + b"\n\xff\xfe NCCL\n" + LINES.encode())
    assert not read_logs([path]).is_cut and len(read_logs([path]).connections) == 5
    monkeypatch.setattr(nccl_log, "LARGEST_BYTES", 5000)
    assert read_logs([path]).is_cut and not read_logs([path]).connections
