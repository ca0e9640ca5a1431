"""Parts of records: the same messages, ids and ticks, however they are cut and joined."""

import time
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.core.space.record_runs import is_divisible, joined, kept_runs, runs_of
from broker.model.batch import BatchKeys, BatchPart, Codec, OwnProperties
from broker.model.ids import MessageId
from broker.model.record import Record
from tests.broker.wal.some_records import batched, in_txn, record, with_own

FORMS = st.sampled_from(
    [
        lambda it: it,
        batched,
        with_own,
        in_txn,
        lambda it: in_txn(batched(it)),
        lambda it: replace(it, last_confirmed_id=MessageId(3)),
    ]
)


def singles(it: Record) -> list[Record]:
    return list(runs_of(it, [(at, at + 1) for at in range(len(it.sizes))]))


@given(FORMS, st.lists(st.booleans(), min_size=1, max_size=9))
def test_runs_have_what_is_kept_and_nothing_else(form, kept) -> None:  # type: ignore[no-untyped-def]
    whole: Record = form(record(7, messages=len(kept)))
    runs = kept_runs(whole, kept)
    expected = [it for it, stays in zip(singles(whole), kept, strict=True) if stays]
    assert [it for run in runs for it in singles(run)] == expected
    assert all(a.next_id < b.base_id for a, b in pairwise(runs)), "apart"
    assert (runs == (whole,)) == all(kept)
    assert all(it.adds_up for it in runs)
    if all(kept):
        assert joined(singles(whole)) == whole


def test_numbers_go_on_where_the_part_begins() -> None:
    whole = in_txn(batched(record(7, messages=4)))
    (run,) = runs_of(whole, [(2, 4)])
    assert run.txn is not None
    assert whole.txn is not None
    assert run.txn.bodies == whole.txn.bodies + 2
    assert run.batch is not None
    assert run.batch.producer is not None
    assert (run.batch.producer.sequence, run.base_id, run.base_tick) == (9, 9, 72)


def test_the_time_to_cut_grows_as_the_record_does_not_as_its_square() -> None:
    count, sizes = 16_384, (2,) * 16_384
    plain = replace(record(7, messages=1), sizes=sizes, body=b"ab" * count)
    keys, own = BatchKeys((3,) * count, b"kk" * count), OwnProperties(sizes, b"oo" * count)
    whole = replace(plain, batch=BatchPart(b"", keys=keys, own=own))
    began_s = time.process_time()
    runs = kept_runs(whole, [at % 2 == 0 for at in range(count)])
    # Added up anew for each run it takes more than ten seconds.
    assert time.process_time() - began_s < 2
    assert len(runs) == count // 2


def test_only_a_plain_body_can_be_divided() -> None:
    plain = record(1, messages=2)
    assert is_divisible(plain)
    for codec in Codec:
        packed = replace(plain, batch=BatchPart(b"", codec))
        assert is_divisible(packed) == (codec is Codec.NONE)
