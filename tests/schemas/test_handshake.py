"""The create headers of streams, against betterproto2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.base64_text import base64_text, read_base64
from schemas.encoding.fields import field
from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto.streaming import CreateProducerRequest
from schemas.handshake import CreateHeader, read_create_header
from tests.create_headers import create_header
from tests.schemas import messages


@given(st.text(), messages.int64s, st.integers(0, 1))
def test_a_create_header_comes_back_and_is_what_betterproto_reads(
    pchannel: str, term: int, access_mode: int
) -> None:
    header = CreateHeader(pchannel, term, access_mode)
    text = create_header(header)
    assert read_create_header(text) == header
    info = CreateProducerRequest.parse(read_base64(text)).pchannel
    assert info is not None
    assert (info.name, info.term, int(info.access_mode)) == (pchannel, term, access_mode)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("*", "base64"),
        ("", "without pchannel"),
        (base64_text(b"\x0a\x05abc"), "length of 5"),
        (base64_text(b"\x10\x01"), "without pchannel"),
        (base64_text(field(0x0A, field(0x0A, b"\xff"))), "UTF-8"),
    ],
)
def test_what_is_no_create_request_is_malformed(text: str, what: str) -> None:
    with pytest.raises(Malformed, match=what):
        read_create_header(text)
