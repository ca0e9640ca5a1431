"""Stored records of batches: read back whole, refused when inconsistent."""

import struct
from dataclasses import replace

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from broker.model.batch import NOTHING_OWN, BatchKeys, BatchPart, Codec, OwnProperties
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
from broker.wal.segmented.formats.record_parts import MARKS
from broker.wal.segmented.record_format import BadRecord, Window, encode, record_at
from tests.broker.wal.faulty_files import FaultyFiles
from tests.broker.wal.some_records import batched, in_txn, record

SALT = 77
PART_AT = 68
"""Behind the fixed part; the vchannel and the sizes of a record come before its batch part."""

TXN_BYTES = 32
"""Of the transaction, which a batch of bodies names before its own part."""


def stored(good: Record) -> Window:
    data = b"".join(encode(good, 3, SALT))
    file = FaultyFiles().open("r", create=True)
    file.write_durable(0, [data])
    return Window(file, "r", len(data), 1 << 16)


PARTS = st.builds(
    BatchPart,
    properties=st.binary(max_size=50),
    codec=st.sampled_from(Codec),
    keys=st.one_of(
        st.just(BatchKeys()),
        st.builds(
            BatchKeys, st.lists(st.integers(0, 9), min_size=1).map(tuple), st.binary(max_size=9)
        ),
    ),
    producer=st.one_of(
        st.none(),
        st.builds(ProducerPart, st.text(min_size=1, max_size=9), st.integers(0, 2**63 - 1)),
    ),
)


@given(PARTS, st.integers(1, 5), st.booleans(), st.data())
def test_a_batch_is_read_back_as_it_was_written(
    part: BatchPart, messages: int, of_txn: bool, data: st.DataObject
) -> None:
    sizes = st.lists(st.integers(0, 99), min_size=messages, max_size=messages).map(tuple)
    own = st.builds(OwnProperties, sizes, st.binary(max_size=50))
    part = replace(part, own=data.draw(st.one_of(st.just(NOTHING_OWN), own)))
    good = replace(record(3, messages=messages), batch=part)
    good = in_txn(good) if of_txn else good
    assert record_at(stored(good), 0, SALT).record == good


GOLDEN = {
    "of release 1": (
        BatchPart(b"P", Codec.NONE, BatchKeys((0, 2), b"k"), ProducerPart("p", 5)),
        (
            "d7546d520300000078000000ea602d97010000000000000003000000000000001e00000000000000"
            "03000000000000000200000000000000020000000200000001000000760200000002000000000000"
            "00010000000200000001000000010000000500000000000000507000000000020000006b61616262"
        ),
    ),
    "of own properties": (
        BatchPart(b"P", producer=ProducerPart("p", 5), own=OwnProperties((1, 2), b"xyz")),
        (
            "d7546d52050000007e000000b212fcef010000000000000003000000000000001e00000000000000"
            "03000000000000000200000000000000020000000200000001000005760200000002000000000000"
            "00010000000000000000000000010000000500000000000000030000005070010000000200000078"
            "797a61616262"
        ),
    ),
}
"""Whatever else changes, a log that holds these is read."""


@pytest.mark.parametrize("name", GOLDEN)
def test_a_batch_has_the_golden_bytes(name: str) -> None:
    part, golden = GOLDEN[name]
    plain = replace(record(3, messages=2), vchannel="v", sizes=(2, 2), body=b"aabb", batch=part)
    assert b"".join(encode(plain, 2, SALT)).hex() == golden
    assert record_at(stored(plain), 0, SALT).record == plain


@pytest.mark.parametrize("part_bytes", [0, TXN_BYTES])
def test_sizes_of_own_properties_that_lead_out_of_the_record_are_damage(part_bytes: int) -> None:
    good = batched(record(3))
    assert good.batch is not None
    good = replace(good, batch=replace(good.batch, own=OwnProperties((1,), b"x")))
    good = in_txn(good) if part_bytes else good
    data = bytearray(b"".join(encode(good, 3, SALT)))
    at = PART_AT + len(good.vchannel) + 4 + part_bytes + 28
    struct.pack_into("<I", data, at, 1 << 30)
    file = FaultyFiles().open("r", create=True)
    file.write_durable(0, [bytes(data)])
    with pytest.raises(BadRecord, match="lengths"):
        record_at(Window(file, "r", len(data), 1 << 16), 0, SALT)


@pytest.mark.parametrize("part_bytes", [0, TXN_BYTES])
@pytest.mark.parametrize("field", range(1, 5))
def test_a_length_inside_a_batch_that_leads_out_of_it_is_damage(
    field: int, part_bytes: int
) -> None:
    good = batched(record(3))
    good = in_txn(good) if part_bytes else good
    data = bytearray(b"".join(encode(good, 3, SALT)))
    at = PART_AT + len(good.vchannel) + 4 + part_bytes + 4 * field
    struct.pack_into("<I", data, at, 1 << 30)
    file = FaultyFiles().open("r", create=True)
    file.write_durable(0, [bytes(data)])
    with pytest.raises(BadRecord, match="lengths"):
        record_at(Window(file, "r", len(data), 1 << 16), 0, SALT)


@pytest.mark.parametrize("of_batch", [False, True])
def test_a_name_that_is_not_utf_8_is_damage_though_the_checksum_matches(of_batch: bool) -> None:
    good = record(3)
    data = bytearray(b"".join(encode(batched(good) if of_batch else good, 3, SALT)))
    data[PART_AT] = 0xFF
    # The checksum is the last field of the prefix; forged, as one who knows the salt could.
    _, version, _, _ = struct.unpack_from("<4sIII", data)
    struct.pack_into("<I", data, 12, crc32c(bytes(data[16:])) ^ SALT ^ MARKS[version])
    file = FaultyFiles().open("r", create=True)
    file.write_durable(0, [bytes(data)])
    with pytest.raises(BadRecord, match="utf-8"):
        record_at(Window(file, "r", len(data), 1 << 16), 0, SALT)


def test_a_codec_that_this_version_does_not_have_is_damage() -> None:
    good = batched(record(3))
    assert good.batch is not None
    strange = replace(good, batch=replace(good.batch, codec=9))  # type: ignore[arg-type]
    with pytest.raises(BadRecord, match="codec 9"):
        record_at(stored(strange), 0, SALT)
