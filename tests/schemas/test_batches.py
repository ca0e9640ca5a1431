"""The messages of batches against the generated code, and against damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.batches import (
    NUMBERS_MAX,
    OWN,
    Landed,
    NotLanded,
    Position,
    ReadBatch,
    ScannedBatch,
    append_landed,
    append_refused,
    append_request,
    read_batch,
    read_response,
    scan_append_request,
    scan_append_response,
    scan_read_response,
    shared_properties,
    stamp,
)
from schemas.encoding.fields import field
from schemas.encoding.varint import Malformed
from schemas.generated.tidemark import v1
from schemas.handshake import append_greeting, scan_append_greeting

TEXT = st.text(max_size=20)
WORDS = st.lists(st.integers(0, 2**32 - 1), max_size=20)
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=4)

REQUESTS = st.builds(
    v1.AppendRequest,
    vchannel=TEXT,
    sizes=WORDS,
    properties=PROPERTIES,
    type=st.integers(-5, 1000),
    producer=TEXT,
    sequence=st.integers(-(2**63), 2**63 - 1),
    durability=st.integers(0, 5),
    codec=st.integers(0, 5),
    key_sizes=WORDS,
    keys=st.binary(max_size=50),
    own_sizes=WORDS,
    own=st.binary(max_size=50),
    body=st.binary(max_size=300),
)


@given(REQUESTS)
def test_a_request_of_the_generated_code_is_read_as_it_was_meant(request: v1.AppendRequest) -> None:
    found = scan_append_request(bytes(request))
    assert found._replace(properties=b"") == ScannedBatch(
        request.vchannel,
        tuple(request.sizes),
        b"",
        request.type,
        request.producer,
        request.sequence,
        int(request.durability),
        int(request.codec),
        tuple(request.key_sizes),
        request.keys,
        request.body,
        own_sizes=tuple(request.own_sizes),
        own=request.own,
    )
    stored = v1.AppendRequest.parse(found.properties)
    assert stored.properties == request.properties


@given(REQUESTS)
def test_a_request_is_read_by_the_generated_code_as_it_was_meant(request: v1.AppendRequest) -> None:
    plain = ScannedBatch(
        vchannel=request.vchannel,
        sizes=tuple(request.sizes),
        properties=shared_properties(request.properties.items()),
        type=abs(request.type),
        durability=int(request.durability),
        codec=int(request.codec),
        key_sizes=tuple(request.key_sizes),
        keys=request.keys,
        own_sizes=tuple(request.own_sizes),
        own=request.own,
    )
    half = len(request.body) // 2
    encoded = append_request(plain, [request.body[:half], request.body[half:]])
    front = stamp(request.producer, request.sequence)
    request.type = abs(request.type)
    assert v1.AppendRequest.parse(front + encoded) == request


def test_a_request_with_own_properties_has_the_golden_bytes() -> None:
    entries = [shared_properties([("n", at)]) for at in ("0", "1")]
    batch = ScannedBatch(
        "v",
        (1, 2),
        shared_properties([(OWN, "")]),
        own_sizes=tuple(map(len, entries)),
        own=b"".join(entries),
    )
    assert append_request(batch, [b"a", b"bc"]).hex(" ", 4) == (
        "0a017612 08010000 00020000 001a080a 045f6f77 6e12006a 08080000 00080000"
        " 0072101a 060a016e 1201301a 060a016e 1201317a 03616263"
    )


@pytest.mark.parametrize("revision", v1.AppendRevision)
def test_a_greeting_says_the_revision_and_nothing_else_is_one(revision: v1.AppendRevision) -> None:
    assert v1.AppendResponse.parse(append_greeting(revision)).revision == revision
    assert scan_append_greeting(append_greeting(revision)) == revision
    assert scan_append_greeting(b"") == 0
    assert scan_append_greeting(append_landed(1, 2, 3)) is None
    assert scan_append_greeting(append_refused(8, "no")) is None


@given(
    st.integers(1, 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(1, 2**63 - 1),
    st.sampled_from(v1.Durability),
)
def test_where_a_batch_landed_is_told_and_read_back(
    id: int, tick: int, confirmed: int, durability: v1.Durability
) -> None:
    encoded = append_landed(id, tick, confirmed, durability)
    told = v1.AppendResponse.parse(encoded)
    assert (told.message_id, told.time_tick, told.last_confirmed_id) == (id, tick, confirmed)
    assert told.durability == durability
    assert scan_append_response(encoded) == Landed(id, tick, confirmed, durability)


@given(st.integers(1, 999), TEXT, st.integers(0, 2**62))
def test_why_a_batch_was_refused_is_told_and_read_back(code: int, cause: str, next: int) -> None:
    encoded = append_refused(code, cause, next)
    told = v1.AppendResponse.parse(encoded)
    assert told.error is not None
    assert (int(told.error.code), told.error.cause, told.expected_sequence) == (code, cause, next)
    assert scan_append_response(encoded) == NotLanded(code, cause, next)


def test_the_first_answer_says_nothing_and_one_without_an_id_is_none() -> None:
    assert scan_append_response(b"") is None
    with pytest.raises(Malformed):
        scan_append_response(b"\x10\x05")


@given(
    st.builds(
        ReadBatch,
        vchannel=TEXT,
        sizes=WORDS.map(tuple),
        properties=PROPERTIES.map(lambda it: shared_properties(it.items())),
        message_id=st.integers(0, 2**60),
        tick=st.integers(0, 2**64 - 1),
        last_confirmed_id=st.integers(0, 2**60),
        type=st.integers(0, 999),
        form=st.integers(0, 1),
        codec=st.integers(0, 2),
        key_sizes=WORDS.map(tuple),
        keys=st.binary(max_size=50),
        first=st.integers(0, 2**31 - 1),
        end=st.integers(0, 2**31 - 1),
        ids=st.lists(st.integers(0, 2**63 - 1), max_size=9).map(tuple),
        body=st.binary(max_size=300),
    ),
    st.integers(0, 2**64 - 1),
    st.one_of(st.none(), st.builds(Position, *[st.integers(0, 2**60)] * 5)),
    st.booleans(),
)
def test_a_batch_on_its_way_to_a_reader_is_read_back_by_both(
    batch: ReadBatch, closed_tick: int, position: Position | None, end: bool
) -> None:
    parts = read_response(read_batch(batch), closed_tick, position, end=end)
    encoded = b"".join(parts)
    answer = scan_read_response(encoded)
    assert answer.batch == batch
    assert (answer.closed_tick, answer.position, answer.end) == (closed_tick, position, end)
    told = v1.ReadResponse.parse(encoded)
    assert told.batch is not None
    assert (tuple(told.batch.sizes), told.batch.body) == (batch.sizes, batch.body)
    assert (tuple(told.batch.ids), told.batch.end) == (batch.ids, batch.end)
    assert shared_properties(told.batch.properties.items()) == batch.properties


@given(REQUESTS, st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_bytes_are_malformed_and_nothing_else(
    request: v1.AppendRequest, at: int, byte: int
) -> None:
    encoded = bytearray(bytes(request))
    if encoded:
        encoded[at % len(encoded)] = byte
    for scan in (scan_append_request, scan_append_response, scan_read_response):
        try:
            scan(bytes(encoded))
        except Malformed:
            continue


def test_packed_numbers_that_are_cut_are_malformed() -> None:
    with pytest.raises(Malformed):
        scan_append_request(b"\x12\x03abc")


def test_ids_of_a_read_batch_that_are_cut_are_malformed() -> None:
    batch = field(0x72, b"short")
    with pytest.raises(Malformed, match="ids of 5 bytes"):
        scan_read_response(field(0x0A, batch))


def test_numbers_that_are_not_packed_are_read_too() -> None:
    encoded = b"\x15\x01\x00\x00\x00\x15\x02\x00\x00\x00"
    assert scan_append_request(encoded).sizes == (1, 2)


@pytest.mark.parametrize(
    "data", [b"\x78\x01" * 40_000, b"\x1a\x00" * 40_000, b"\x15\0\0\0\0" * 40_000]
)
def test_a_request_of_very_many_fields_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="more than 32768 fields"):
        scan_append_request(data)


def test_a_list_of_very_many_numbers_is_malformed_and_one_too_many_is_not() -> None:
    few = scan_append_request(field(0x12, b"\1\0\0\0" * 65_537))
    assert len(few.sizes) == 65_537
    with pytest.raises(Malformed, match=f"at most {NUMBERS_MAX}"):
        scan_append_request(field(0x12, b"\1\0\0\0" * (NUMBERS_MAX + 1)))
