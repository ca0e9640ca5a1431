"""The stored form: its header read and replaced, and messages of the log's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.base64_text import base64_text
from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto import common
from schemas.stored import header_of, payload_of, stored_form, taken_apart, with_header
from tests.schemas import messages


def _stored(payload: bytes, properties: dict[str, str]) -> bytes:
    return bytes(common.ImmutableMessage(payload=payload, properties=properties))


@given(messages.payloads, messages.properties, st.binary(max_size=40), st.binary(max_size=40))
def test_a_header_is_replaced_and_all_else_is_kept(
    payload: bytes, properties: dict[str, str], before: bytes, after: bytes
) -> None:
    properties["_h"] = base64_text(before)
    stored = _stored(payload, properties)
    assert (payload_of(stored), header_of(stored)) == (payload, before)
    assert taken_apart(stored) == (properties, payload)
    parsed = common.ImmutableMessage.parse(with_header(stored, after))
    assert parsed.payload == payload
    assert parsed.properties == properties | {"_h": base64_text(after)}


def test_a_message_without_a_header_has_an_empty_one() -> None:
    assert header_of(_stored(b"x", {"_t": "2"})) == b""
    assert payload_of(_stored(b"", {})) == b""


def test_a_message_of_the_logs_own_has_all_that_a_consumer_needs() -> None:
    parsed = common.ImmutableMessage.parse(stored_form(10, 2, "p_0_1v0", b"\x08\x01"))
    assert parsed.payload == b""
    assert parsed.properties == {"_t": "10", "_v": "2", "_h": "CAE=", "_vc": "p_0_1v0"}


def test_what_is_no_stored_form_is_malformed() -> None:
    for damaged in (b"\x12\x05", b"\x1a\x01"):
        with pytest.raises(Malformed):
            header_of(damaged)
    with pytest.raises(Malformed):
        header_of(_stored(b"", {"_h": "no base64!"}))
