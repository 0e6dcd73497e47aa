"""What probes are known by, and files of them that cannot be trusted."""

from __future__ import annotations

import msgspec
import pytest

from findwall.errors import InputError
from findwall.model.events import Inputs
from findwall.model.probes import Probes, probe_key, read_probes


def test_what_is_written_is_read() -> None:
    probes = Probes("NVIDIA H200", "580", "2.11", "today", {probe_key("aten::mm", Inputs(), "bf16"): 12.5})
    assert read_probes(msgspec.json.encode(probes)) == probes


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no probes"),
        (b"[]", "holds no probes"),
        (b"\xff\xfe", "holds no probes"),
        (b"[" * 100_000, "holds no probes"),
        (b'{"gpu": "a", "driver": "", "torch": "", "date": "", "ns": {"a": "long"}}', "holds no probes"),
        (b'{"gpu": "a", "driver": "", "torch": "", "date": "", "ns": {"a": -1}}', "times that no op takes"),
        (b'{"gpu": "a", "driver": "", "torch": "", "date": "", "ns": {"a": 0}}', "times that no op takes"),
        (
            b'{"gpu": "a", "driver": "", "torch": "", "date": "", "ns": {"a": 1e300}}',
            "times that no op takes",
        ),
        (b'{"gpu": "a", "driver": "", "torch": "", "date": "", "schema": "other/9"}', "written as other/9"),
    ],
)
def test_what_cannot_be_trusted_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_probes(content)


def test_more_probes_than_a_step_has_ops_are_refused() -> None:
    content = msgspec.json.encode(Probes("a", "", "", "", {str(at): 1.0 for at in range(20_001)}))
    with pytest.raises(InputError, match="more than any step has"):
        read_probes(content)
