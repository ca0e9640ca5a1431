"""Encodes a batch again for a server of an earlier release, which a channel has moved to.

Such a server takes batches whose messages have the same properties. A batch with others is split
where they change. Only a batch that is certainly not stored may be split: the server recognises a
repeat by the sequence number of its first message, and only with the same number of messages.
"""

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

from broker.client.append.outbox import PendingAppend
from broker.client.append.outgoing_batch import BatchTickets
from broker.model.batch import BatchKeys, OwnProperties
from schemas.batches import OWN, ScannedBatch, append_request, scan_append_request
from schemas.encoding.entries import write_entry
from schemas.packing import unpack


def split_by_properties(pending: PendingAppend[Any]) -> Sequence[PendingAppend[Any]]:
    """Batches that a server of the first revision takes, in the order of their messages."""
    assert not pending.unanswered, "it may be stored whole"
    whole = scan_append_request(pending.message)
    count = len(whole.sizes)
    runs = _runs(OwnProperties(whole.own_sizes, whole.own).split(count))
    assert isinstance(pending.waiter, BatchTickets), "only gathered messages differ in properties"
    waiters = pending.waiter.split([end - start for start, end in runs])
    parts: list[PendingAppend[Any]] = []
    for (start, end), waiter in zip(runs, waiters, strict=True):
        part = PendingAppend(
            _request(whole, start, end), pending.deadline_s, waiter, count=end - start
        )
        part.refusal = pending.refusal
        if pending.number is not None:
            name, sequence = pending.number
            part.number = name, sequence + start
        parts.append(part)
    return parts


def _runs(own: Sequence[bytes]) -> list[tuple[int, int]]:
    """The ranges [start, end) of messages with equal properties."""
    lengths = [len(list(equal)) for _, equal in groupby(own)]
    return list(pairwise(accumulate(lengths, initial=0)))


def _request(whole: ScannedBatch, start: int, end: int) -> bytes:
    body = whole.body
    if whole.codec:
        body = unpack(whole.codec, body, sum(whole.sizes))
    begin, stop = sum(whole.sizes[:start]), sum(whole.sizes[:end])
    keys = BatchKeys(whole.key_sizes, whole.keys).split(len(whole.sizes))[start:end]
    own = OwnProperties(whole.own_sizes, whole.own).split(len(whole.sizes))[start]
    part = whole._replace(
        sizes=whole.sizes[start:end],
        properties=whole.properties.replace(_MARK, b"", 1) + own,
        codec=0,
        key_sizes=whole.key_sizes[start:end],
        keys=b"".join([key for key in keys if key is not None]),
        own_sizes=(),
        own=b"",
    )
    return append_request(part, [body[begin:stop]])


_MARK = write_entry(b"\x1a", OWN, "")
