"""Base64 as Go writes and accepts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.base64_text import base64_text, read_base64
from schemas.encoding.varint import Malformed


@given(st.binary())
def test_bytes_come_back(data: bytes) -> None:
    assert read_base64(base64_text(data)) == data


def test_line_breaks_are_passed_over() -> None:
    assert read_base64("YW\r\nJj\n") == b"abc"


@pytest.mark.parametrize("text", ["YQ", "YQ=", "YQ==YQ==", "YQ== ", "Y Q==", "_-8=", "=", "é"])
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="base64"):
        read_base64(text)
