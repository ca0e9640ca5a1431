"""Records for tests of the log, and the naive model they are compared with: a list."""

import random
from collections.abc import Sequence
from dataclasses import replace

from broker.model.batch import BatchKeys, BatchPart, Codec, OwnProperties
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
from broker.model.txn import TxnPart

MEBI = 1 << 20


def record(
    base_id: int,
    *,
    term: int = 1,
    messages: int = 1,
    size: int = 20,
    tick: int | None = None,
    vchannel: str = "by-dev-rootcoord-dml_0_1v0",
) -> Record:
    """Message i has tick 10 * base_id + i unless told otherwise; the bytes tell ids apart."""
    body = b"".join(
        random.Random(base_id + i).randbytes(size) if size else b"" for i in range(messages)
    )
    return Record(
        term=Term(term),
        base_id=MessageId(base_id),
        base_tick=TimeTick(10 * base_id if tick is None else tick),
        last_confirmed_id=MessageId(base_id),
        kind=2,
        vchannel=vchannel,
        sizes=(size,) * messages,
        body=body,
    )


def in_txn(plain: Record) -> Record:
    """The same as part of a transaction, which is stored in another version of the format."""
    return replace(plain, txn=TxnPart(TxnId(7), -1000, MessageId(3), plain.base_id))


def batched(plain: Record) -> Record:
    """The same as a batch of payloads, with everything that one can have."""
    count = len(plain.sizes)
    keys = BatchKeys((0, *[3] * (count - 1)), b"ab" * (count - 1))
    producer = ProducerPart("p", plain.base_id)
    return replace(plain, batch=BatchPart(b"shared", Codec.NONE, keys, producer))


def with_own(plain: Record) -> Record:
    """The same as a batch whose messages have properties of their own."""
    count = len(plain.sizes)
    return replace(
        plain, batch=BatchPart(b"shared", own=OwnProperties((3,) * count, b"own" * count))
    )


def group(
    first_id: int,
    records: int,
    *,
    term: int = 1,
    messages: int = 3,
    size: int = 20,
    txn_every: int = 0,
) -> list[Record]:
    """Contiguous records; every so many of them belong to a transaction (0: none)."""
    ids = range(first_id, first_id + records * messages, messages)
    plain = [record(i, term=term, messages=messages, size=size) for i in ids]
    return [in_txn(it) if txn_every and it.base_id % txn_every else it for it in plain]


def seek_in(records: Sequence[Record], tick: int, next_id: int) -> int:
    """What `seek_tick` must answer."""
    for r in records:
        for i in range(len(r.sizes)):
            if r.base_tick + i >= tick:
                return r.base_id + i
    return next_id
