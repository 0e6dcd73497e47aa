"""What probes are known by, and files of them that cannot be trusted."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.errors import InputError
from findwall.model.events import Inputs
from findwall.model.probes import Probe, Probes, of_key, probe_key, read_probes

extents = st.lists(st.integers(0, 10**6), max_size=4)
inputs = st.builds(
    Inputs,
    dims=st.lists(extents | st.lists(extents, max_size=3), max_size=3),
    types=st.lists(st.sampled_from(["float", "c10::Half", "TensorList"]) | st.just(["float"]), max_size=3),
    strides=st.lists(extents, max_size=3),
    concrete=st.lists(st.text(max_size=5), max_size=3),
)


@given(st.text(max_size=12), inputs, st.sampled_from(["as-is", "bf16+nhwc", "padded"]))
def test_a_key_says_what_was_probed(op: str, given_inputs: Inputs, variant: str) -> None:
    assert of_key(probe_key(op, given_inputs, variant)) == Probe(op, given_inputs, variant)


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
