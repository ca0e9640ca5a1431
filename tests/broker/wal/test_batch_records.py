"""Stored records of batches: read back whole, refused when inconsistent."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.batch import BatchKeys, BatchPart, Codec
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
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


@given(PARTS, st.integers(1, 5), st.booleans())
def test_a_batch_is_read_back_as_it_was_written(
    part: BatchPart, messages: int, of_txn: bool
) -> None:
    good = replace(record(3, messages=messages), batch=part)
    good = in_txn(good) if of_txn else good
    assert record_at(stored(good), 0, SALT).record == good


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


def test_a_codec_that_this_version_does_not_have_is_damage() -> None:
    good = batched(record(3))
    assert good.batch is not None
    strange = replace(good, batch=replace(good.batch, codec=9))  # type: ignore[arg-type]
    with pytest.raises(BadRecord, match="codec 9"):
        record_at(stored(strange), 0, SALT)
