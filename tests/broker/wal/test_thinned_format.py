"""The stored form of thinned records."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.core.space.record_runs import kept_runs
from broker.model.batch import Codec
from broker.model.ids import MessageId
from broker.model.record import Record
from broker.ports.wal import UnknownFormat
from broker.wal.segmented.formats.thinned_format import (
    ThinnedMet,
    decode_thinned,
    encode_thinned,
    is_thinned,
    span_of,
)
from broker.wal.segmented.record_format import BadRecord, frame_at, record_at, salt_of
from tests.broker.wal.some_records import batched, in_txn, record, with_own
from tests.broker.wal.test_gap_format import window_of

SALT = 77
KEPT = [False, True, True, False, False, True, False]
Form = Callable[[Record], Record]
FORMS: list[Form] = [
    lambda it: it,
    in_txn,
    batched,
    with_own,
    lambda it: in_txn(batched(it)),
    lambda it: in_txn(with_own(it)),
    lambda it: replace(it, last_confirmed_id=MessageId(4)),
]


def made(form: Form = batched) -> tuple[Record, tuple[Record, ...], bytes]:
    whole = form(record(11, messages=len(KEPT)))
    runs = kept_runs(whole, KEPT)
    return whole, runs, encode_thinned(runs, span_of(whole), 9, SALT)


@pytest.mark.parametrize("form", FORMS)
def test_the_runs_come_back_as_they_were_stored(form: Form) -> None:
    whole, runs, stored = made(form)
    assert is_thinned(stored, 0)
    with pytest.raises(ThinnedMet, match="of ids 11 to 17 some were removed") as met:
        record_at(window_of(stored), 0, SALT)
    thinned = met.value.thinned
    assert thinned.records == runs
    assert (thinned.base_id, thinned.next_id, thinned.group_id) == (11, 18, 9)
    assert (thinned.base_tick, thinned.last_tick) == (whole.base_tick, whole.last_tick)
    assert (thinned.term, thinned.offset, thinned.end) == (whole.term, 0, len(stored))
    frame = frame_at(window_of(stored), 0)
    assert (frame.base_id, frame.next_id, frame.is_gap) == (11, 18, False)
    assert frame.name_bytes == len(whole.vchannel)
    assert salt_of(window_of(stored), 0) == SALT


def test_removing_more_of_it_keeps_the_span() -> None:
    whole, runs, _ = made()
    again = encode_thinned(runs[1:], span_of(whole), 9, SALT)
    found = decode_thinned(again, 0, 0, SALT)
    assert found is not None
    assert (found.records, found.base_id, found.next_id) == (runs[1:], 11, 18)


@pytest.mark.parametrize("form", [in_txn, with_own])
def test_no_changed_byte_goes_unnoticed(form: Form) -> None:
    _, _, stored = made(form)
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 0x11
        with pytest.raises((BadRecord, UnknownFormat)):
            record_at(window_of(bytes(damaged)), 0, SALT)
    for size in range(len(stored)):
        with pytest.raises(BadRecord):
            record_at(window_of(stored[:size]), 0, SALT)
    with pytest.raises(BadRecord):
        record_at(window_of(stored), 0, SALT + 1)


def test_what_no_writer_has_made_is_no_record() -> None:
    whole, runs, _ = made()
    turned = encode_thinned(runs[::-1], span_of(whole), 9, SALT)
    assert decode_thinned(turned, 0, 0, SALT) is None, "runs that are not in order"
    short = encode_thinned(runs, span_of(whole)._replace(messages=3), 9, SALT)
    assert decode_thinned(short, 0, 0, SALT) is None, "a run beyond the span"
    assert whole.batch is not None
    packed = [replace(it, batch=replace(whole.batch, codec=Codec.LZ4)) for it in runs]
    stored = encode_thinned(packed, span_of(whole), 9, SALT)
    assert decode_thinned(stored, 0, 0, SALT) is None, "a compressed body has no slices"


def test_a_release_that_does_not_know_it_would_refuse_the_log_and_not_cut_it() -> None:
    """Its checksum has the mark 0 and covers the version: what `_refuse_newer` looks for."""
    _, _, stored = made()
    newer = stored[:4] + (9).to_bytes(4, "little") + stored[8:]
    with pytest.raises(UnknownFormat):
        record_at(window_of(newer), 0, SALT)
