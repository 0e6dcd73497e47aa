"""Text to nanoseconds, held against exact decimals."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.readers.torch_trace.timestamps import LIMIT_NS, to_nanoseconds

plain = st.builds(
    lambda whole, fraction: f"{whole}.{fraction}" if fraction else str(whole),
    st.integers(0, 4 * 10**15 - 1),
    st.text("0123456789", max_size=6),
)
fixed = st.builds(lambda ns: f"{ns // 1000}.{ns % 1000:03d}", st.integers(0, LIMIT_NS - 1))


def nearest(text: str) -> int:
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_UP))


@given(st.lists(plain, min_size=1, max_size=20))
def test_any_number_of_digits(texts: list[str]) -> None:
    values, valid = to_nanoseconds([text.encode() for text in texts])
    assert valid.all()
    assert values.tolist() == [nearest(text) for text in texts]


@given(st.lists(fixed, min_size=1, max_size=20))
def test_the_usual_three_digits_are_exact(texts: list[str]) -> None:
    values, valid = to_nanoseconds([text.encode() for text in texts])
    assert valid.all()
    assert values.tolist() == [int(text.replace(".", "")) for text in texts]


@given(st.lists(st.one_of(plain, st.text('0123456789.eE+-naif"', max_size=12)), min_size=1, max_size=20))
def test_odd_ones_do_not_spoil_their_neighbours(texts: list[str]) -> None:
    values, valid = to_nanoseconds([text.encode() for text in texts])
    alone = [to_nanoseconds([text.encode()]) for text in texts]
    assert valid.tolist() == [bool(one[1][0]) for one in alone]
    assert values.tolist() == [int(one[0][0]) for one in alone]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "1..2",
        "nan",
        "null",
        "1e400",
        "1e99999999999999999",
        "5.",
        ".5",
        "4000000000000000",
        "9" * 30,
        "[1]",
    ],
)
def test_what_is_no_time(text: str) -> None:
    values, valid = to_nanoseconds([text.encode(), b"1.5"])
    assert valid.tolist() == [False, True]
    assert values.tolist() == [0, 1500]


@pytest.mark.parametrize(
    ("text", "nanoseconds"), [("-1.5", -1500), ("1e3", 10**6), ('"7"', 7000), ("2.5E-1", 250)]
)
def test_signs_and_exponents(text: str, nanoseconds: int) -> None:
    assert to_nanoseconds([text.encode()])[0].tolist() == [nanoseconds]


def test_nothing() -> None:
    values, valid = to_nanoseconds([])
    assert len(values) == len(valid) == 0
