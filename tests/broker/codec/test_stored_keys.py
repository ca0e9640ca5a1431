"""Keys are found in every form in which messages are stored."""

from dataclasses import replace

import pytest

from broker.codec.stored_headers import StoredHeaders
from broker.codec.stored_keys import keys_of, plain_key, unpacked
from broker.codec.stored_messages import stored_of
from broker.model.batch import BatchKeys, BatchPart, Codec
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import Delivered
from broker.model.record import Record, RecordSlice
from schemas.encoding.entries import write_entry
from schemas.encoding.varint import varint
from schemas.generated.milvus.proto import common
from schemas.packing import pack
from schemas.properties.keys import ROW_KEY
from schemas.scan import STORED_PAYLOAD, STORED_PROPERTY
from tests.broker.wal.some_records import batched, record

V = "by-dev-rootcoord-dml_0_7v0"


def stored_record(bodies: list[bytes], batch: BatchPart | None = None) -> Record:
    return Record(
        *(Term(1), MessageId(9), TimeTick(90), MessageId(9), 2, V),
        tuple(map(len, bodies)),
        b"".join(bodies),
        batch=batch,
    )


def single(payload: bytes, key: bytes | None) -> bytes:
    own = b"" if key is None else write_entry(STORED_PROPERTY, ROW_KEY.key, ROW_KEY.encode(key))
    return STORED_PAYLOAD + varint(len(payload)) + payload + own


def test_keys_of_a_batch_are_those_of_its_part() -> None:
    part = BatchPart(b"", keys=BatchKeys((2, 0, 1), b"a"))
    whole = stored_record([b"x", b"y", b"z"], part)
    assert keys_of(RecordSlice(whole, 0, 3)) == [b"a", None, b""]
    assert keys_of(RecordSlice(whole, 1, 2)) == [None]
    stored = stored_of(RecordSlice(whole, 0, 3))
    assert keys_of(RecordSlice(stored_record(stored), 0, 3)) == [b"a", None, b""]
    assert StoredHeaders().stored(RecordSlice(whole, 0, 3)) == stored


def test_keys_of_single_messages_are_properties() -> None:
    bodies = [single(b"x", b"a"), single(b"tidemark.key", None), b"tidemark.key damaged"]
    whole = stored_record(bodies)
    assert StoredHeaders().keys(RecordSlice(whole, 0, 3)) == [b"a", None, None]
    one = Delivered(MessageId(9), TimeTick(90), MessageId(9), Term(1), bodies[0])
    assert keys_of(one) == [b"a"]


def message(payload: bytes, properties: dict[str, str]) -> bytes:
    return bytes(common.ImmutableMessage(payload=payload, properties=properties))


def test_a_stored_message_has_the_key_that_its_producer_gave() -> None:
    with_key = message(b"x", {"_t": "2", **ROW_KEY.entry(b"IC 5")})
    assert plain_key(with_key) == (b"IC 5", False)
    assert plain_key(message(b"", ROW_KEY.entry(b"IC 5"))) == (b"IC 5", True)
    assert plain_key(message(b"x", {"_t": "2"})) == (None, False)
    assert plain_key(message(b"x", {"tidemark.key": "*"})) == (None, False)
    assert plain_key(b"\xff\xff") == (None, False)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_packed_batch_is_unpacked_and_damage_is_not(codec: Codec) -> None:
    plain = batched(record(1, messages=3, size=50))
    assert plain.batch is not None
    assert unpacked(plain) == plain
    packed_part = replace(plain.batch, codec=codec)
    packed = replace(plain, body=pack(codec, plain.body), batch=packed_part)
    assert unpacked(packed) == plain
    assert unpacked(replace(packed, body=b"?")) is None
    rows = replace(plain, batch=BatchPart(b"", Codec.ARROW))
    assert unpacked(rows) is None
    single = record(1)
    assert unpacked(single) == single
