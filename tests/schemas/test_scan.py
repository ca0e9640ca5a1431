"""What a producer sends is scanned as betterproto2 reads it, in every form protobuf allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import scan
from schemas.encoding import entries
from schemas.encoding.fields import field
from schemas.encoding.varint import varint
from schemas.generated.milvus.proto.common import ImmutableMessage
from schemas.generated.milvus.proto.messages import Message
from schemas.generated.milvus.proto.streaming import (
    CloseProducerRequest,
    ProduceMessageRequest,
    ProduceRequest,
)
from schemas.scan import PROPERTIES_MAX
from schemas.wire import (
    SERVER_KEYS,
    Close,
    Malformed,
    ScannedMessage,
    ScannedProduce,
    TooManyProperties,
    message,
    produce_request,
    request_id_at,
    scan_message,
    scan_produce_request,
)
from tests.schemas import messages

USUAL = {"_t": "2", "_v": "1", "_h": "CGQSBAgBEAE=", "_vc": "by-dev-rootcoord-dml_0_1v0"}


def scanned(payload: bytes, properties: dict[str, str]) -> ScannedMessage:
    request = scan_produce_request(produce_request(1, message(payload, properties)))
    assert isinstance(request, ScannedProduce)
    return request.message


def size_of(payload: bytes, properties: dict[str, str]) -> int:
    return len(payload) + sum(len(k.encode()) + len(v.encode()) for k, v in properties.items())


@given(messages.int64s, messages.payloads, messages.properties)
def test_what_betterproto_encodes_is_scanned_and_stored_whole(
    request_id: int, payload: bytes, properties: dict[str, str]
) -> None:
    inner = ProduceMessageRequest(
        request_id=request_id, message=Message(payload=payload, properties=properties)
    )
    for _ in range(2):  # the second time from memory
        request = scan_produce_request(bytes(ProduceRequest(produce=inner)))
        assert isinstance(request, ScannedProduce)
        assert request.request_id == request_id
        stored = ImmutableMessage.parse(request.message.stored)
        assert (stored.payload, stored.properties) == (payload, properties)
        assert request.message.size == size_of(payload, properties)
        assert request.message.stripped == ()


@given(messages.odd_messages())
def test_whatever_protobuf_allows_means_the_same_as_to_betterproto(
    odd: tuple[bytes, dict[str, str], bytes],
) -> None:
    payload, properties, encoded = odd
    decoded = Message.parse(encoded)
    assert (decoded.payload, decoded.properties) == (payload, properties)
    found = scan_message(encoded, 0, len(encoded))
    kept = {key: value for key, value in properties.items() if key not in SERVER_KEYS}
    stored = ImmutableMessage.parse(found.stored)
    assert (stored.payload, stored.properties, stored.id) == (payload, kept, None)
    assert found.size == size_of(payload, kept)
    assert found.stripped == tuple(key for key in SERVER_KEYS if key in properties)
    assert found.vchannel == properties.get("_vc", "")


@given(messages.odd_messages(), messages.int64s, st.data())
def test_parts_of_one_request_are_merged(
    odd: tuple[bytes, dict[str, str], bytes], request_id: int, data: st.DataObject
) -> None:
    payload, properties, encoded = odd
    parts = [
        data.draw(messages.odd_lengths(0x12, encoded)),
        b"\x08" + varint(request_id),
        data.draw(messages.unknown_fields()),
    ]
    body = b"".join(data.draw(st.permutations(parts)))
    frame = data.draw(messages.odd_lengths(0x0A, b"\x08\x07")) + field(0x0A, body)
    request = scan_produce_request(frame)
    assert isinstance(request, ScannedProduce)
    assert request.request_id == request_id
    stored = ImmutableMessage.parse(request.message.stored)
    kept = {key: value for key, value in properties.items() if key not in SERVER_KEYS}
    assert (stored.payload, stored.properties) == (payload, kept)


@given(st.binary(max_size=60) | messages.odd_messages().map(lambda odd: odd[2]), st.data())
def test_damaged_bytes_are_malformed_and_nothing_worse(good: bytes, data: st.DataObject) -> None:
    frame = bytearray(produce_request(5, good))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    assert 0 <= messages.offset_of_fault(scan_produce_request, cut) <= len(cut)


def test_the_facts_of_a_message_are_found() -> None:
    everything = USUAL | {"_btt": "z", "_tx": "CAEQkE4=", "_bh": "x", "_rh": "", "user": "ü"}
    found = scanned(b"abc", everything)
    assert (found.type, found.version, found.vchannel) == (2, 1, "by-dev-rootcoord-dml_0_1v0")
    assert (found.barrier_tick, found.txn) == (35, "CAEQkE4=")
    assert (found.broadcast, found.replicate, found.has_header) == (True, True, True)
    assert found.size == size_of(b"abc", everything)


def test_absent_properties_have_their_defaults() -> None:
    assert scanned(b"", {}) == ScannedMessage(0, 0, "", b"", 0, 0, None, False, False, False, ())


@pytest.mark.parametrize("text", ["", "x", "-1", "+1", " 1", "1_0", "²", "99999999999"])
def test_a_type_or_version_that_is_no_number_is_told_not_raised(text: str) -> None:
    found = scanned(b"p", {"_t": text, "_v": text})
    assert (found.type, found.version) == (-1, -1)


@pytest.mark.parametrize("text", ["", "-1", "1 ", "_", "3w5e11264sgsg"])
def test_a_barrier_that_is_no_tick_is_told_not_raised(text: str) -> None:
    assert scanned(b"p", {"_btt": text}).barrier_tick == -1


def test_the_servers_own_keys_are_named_and_not_stored() -> None:
    found = scanned(b"p", USUAL | {"_lcs": "", "_tt": "1", "_np": "", "_wt": "9", "_lc": "x"})
    assert found.stripped == ("_tt", "_lc", "_lcs", "_wt", "_np")
    assert ImmutableMessage.parse(found.stored).properties == USUAL


def test_only_the_tags_of_a_usual_message_are_changed_in_the_stored_form() -> None:
    encoded = message(b"p" * 200, USUAL)
    stored = scan_message(encoded, 0, len(encoded)).stored
    assert len(stored) == len(encoded)
    assert sum(a != b for a, b in zip(stored, encoded, strict=True)) == 1 + len(USUAL)


def test_a_field_unknown_to_a_message_cannot_become_a_property() -> None:
    forged = message(b"p", USUAL) + field(0x1A, b"\x0a\x03_tt\x12\x011")
    found = scan_message(forged, 0, len(forged))
    assert ImmutableMessage.parse(found.stored).properties == USUAL


def test_a_close_is_told() -> None:
    assert scan_produce_request(bytes(ProduceRequest(close=CloseProducerRequest()))) == Close()


def test_the_last_member_of_a_oneof_counts() -> None:
    produce = produce_request(3, message(b"p", USUAL))
    assert scan_produce_request(produce + b"\x12\x00") == Close()
    request = scan_produce_request(b"\x12\x00" + produce)
    assert isinstance(request, ScannedProduce)
    assert request.request_id == 3


@pytest.mark.parametrize("frame", [b"", b"\x1a\x00", b"\x98\x06\x01"])
def test_a_request_of_an_unknown_kind_is_none(frame: bytes) -> None:
    assert scan_produce_request(frame) is None


def test_a_request_without_message_has_an_empty_one() -> None:
    request = scan_produce_request(b"\x0a\x02\x08\x07")
    assert isinstance(request, ScannedProduce)
    assert (request.request_id, request.message.type, request.message.stored) == (7, 0, b"")


@pytest.mark.parametrize(
    "entry",
    [b"\x0a\x01\xff\x12\x01a", b"\x0a\x01a\x12\x01\xff", b"\x12\x01\xff", b"\x0a\xff\x12\x01a"],
)
def test_a_property_that_is_not_utf_8_is_malformed(entry: bytes) -> None:
    with pytest.raises(Malformed):
        scan_produce_request(produce_request(1, field(0x12, entry)))


def test_memory_of_repeated_properties_is_bounded() -> None:
    for index in range(5000):
        scanned(b"p", USUAL | {"_vc": f"v{index}"})
    assert len(scan._remembered) <= scan._REMEMBERED_MAX
    assert len(entries._remembered) <= entries._REMEMBERED_MAX


def test_a_request_id_is_read_from_the_beginning_of_a_request() -> None:
    for request_id in (1, 300, -1, 2**63 - 1):
        whole = produce_request(request_id, message(bytes(1000), {}))
        assert request_id_at(whole[:32]) == request_id
        assert request_id_at(whole[:3]) in (request_id, None)


@pytest.mark.parametrize("beginning", [b"", b"\x0a", b"\x0a\x05\x12\x00", b"\x12\x00", bytes(32)])
def test_a_request_without_its_id_in_front_has_none_to_read(beginning: bytes) -> None:
    assert request_id_at(beginning) is None


@pytest.mark.parametrize("tail", [b"", b"\x7a\x00"], ids=["plain", "with an unknown field"])
def test_a_message_of_very_many_properties_is_malformed(tail: bytes) -> None:
    def request(count: int) -> bytes:
        named = {f"k{number}": "" for number in range(count)}
        return produce_request(7, message(b"x", named) + tail)

    assert isinstance(scan_produce_request(request(PROPERTIES_MAX)), ScannedProduce)
    with pytest.raises(TooManyProperties, match=f"more than {PROPERTIES_MAX} properties"):
        scan_produce_request(request(PROPERTIES_MAX + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"\x78\x01" * 40_000,
        field(0x0A, b"\x78\x01" * 40_000),
        produce_request(1, b"\x78\x01" * 40_000),
        produce_request(1, field(0x12, b"\x78\x01" * 40_000)),
    ],
    ids=["request", "produce", "message", "property"],
)
def test_very_many_fields_are_malformed_wherever_they_are(data: bytes) -> None:
    with pytest.raises(Malformed, match="more than 32768 fields"):
        scan_produce_request(data)
