"""Base-36 numbers, beside Python's own `int(text, 36)` and Go's stricter parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.base36 import base36, read_base36, rocksmq_id, rocksmq_id_text
from schemas.encoding.varint import Malformed
from tests.schemas import messages


@given(messages.ticks | st.integers(0, 2000) | st.integers(36**4 - 40, 36**4 + 40))
def test_numbers_come_back(number: int) -> None:
    text = base36(number).decode()
    assert read_base36(text) == int(text, 36) == number
    assert text == text.lower()
    assert text == "0" or not text.startswith("0")


def test_upper_case_and_leading_zeros_are_read() -> None:
    assert read_base36("00Kf12OI") == 1234567890


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_0", "+1", "-1", "٣", "é", "\n1", "3w5e11264sgsg", "z" * 100_000]
)
def test_what_gos_parser_refuses_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        read_base36(text)


def test_an_error_shows_only_the_head_of_a_long_text() -> None:
    with pytest.raises(Malformed) as caught:
        read_base36("!" * 10_000)
    assert len(str(caught.value)) < 150


@given(messages.int64s)
def test_ids_are_signed(number: int) -> None:
    assert rocksmq_id(rocksmq_id_text(number)) == number


@pytest.mark.parametrize("text", ["", "-", "--1", "+1", "1y2p0ij32e8e8", "-1y2p0ij32e8e9"])
def test_what_is_no_signed_number_is_no_id(text: str) -> None:
    with pytest.raises(Malformed):
        rocksmq_id(text)
