"""What an append puts on the wire."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.message import KEY_PROPERTY, Message, encode, key_bytes
from broker.client.refusal_kinds import refusal
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from schemas.wire import scan_message

VCHANNEL = "by-dev-rootcoord-dml_0_1v0"
NAMES = st.text(min_size=1).filter(lambda it: it[0] != "_" and it != KEY_PROPERTY)


@given(st.binary(), st.dictionaries(NAMES, st.text(), max_size=4), st.none() | st.binary())
def test_a_message_is_what_protobuf_makes_of_its_parts(
    payload: bytes, properties: dict[str, str], key: bytes | None
) -> None:
    encoded = encode(Message(payload, key, properties), VCHANNEL)
    parsed = messages.Message.parse(encoded)
    expected = properties | {"_t": "2", "_v": "1", "_h": "", "_vc": VCHANNEL}
    if key is not None:
        expected[KEY_PROPERTY] = b64encode(key).decode()
    assert (parsed.payload, parsed.properties) == (payload, expected)


def test_type_version_and_header_are_as_told() -> None:
    encoded = encode(Message(b"x", type=MessageType.DELETE, version=2, header=b"\x08\x01"), "v")
    scanned = scan_message(encoded, 0, len(encoded))
    assert (scanned.type, scanned.version, scanned.vchannel) == (3, 2, "v")


@pytest.mark.parametrize("name", ["_t", "_mine", KEY_PROPERTY])
def test_a_reserved_property_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        encode(Message(b"", properties={name: ""}), VCHANNEL)


def test_a_payload_that_is_not_bytes_is_named_at_once() -> None:
    with pytest.raises(TypeError, match="payload must be bytes, not str; encode it first"):
        Message("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not NoneType$"):
        Message(None)  # type: ignore[arg-type]


def test_a_property_that_is_not_text_is_named() -> None:
    with pytest.raises(TypeError, match="properties must be str to str, not 'n' to 1"):
        encode(Message(b"", properties={"n": 1}), VCHANNEL)  # type: ignore[dict-item]


def test_a_key_is_given_back_as_the_bytes_that_are_hashed() -> None:
    assert key_bytes("ü") == "ü".encode()
    assert key_bytes(b"\xff") == b"\xff"
    assert key_bytes(-1) == b"\xff" * 8
    assert key_bytes(1) == b"\x01" + bytes(7)


def test_refusals_survive_pickling_for_other_processes() -> None:
    import pickle  # noqa: PLC0415 - only here

    error = pickle.loads(pickle.dumps(refusal(11, "too large")))
    assert (type(error), error.cause, error.code) == (type(refusal(11, "")), "too large", 11)
