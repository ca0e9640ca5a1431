"""Parts of a record: some of its messages, as records of their own with the same ids and ticks.

A run is a contiguous part. A record of which some messages were removed is given to readers as its
runs, so that nobody but the log has to know of missing ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from broker.model.batch import BatchKeys, BatchPart, Codec, OwnProperties
from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record


def is_divisible(record: Record) -> bool:
    """Whether the body has one slice for each message: it is not compressed, and not of Arrow."""
    return record.batch is None or record.batch.codec is Codec.NONE


def kept_runs(record: Record, kept: Sequence[bool]) -> tuple[Record, ...]:
    """The messages at which `kept` is true, as runs; the record itself if it is at all of them."""
    if all(kept):
        return (record,)
    places: list[tuple[int, int]] = []
    at = 0
    for keeps, group in groupby(kept):
        end = at + len(list(group))
        if keeps:
            places.append((at, end))
        at = end
    return runs_of(record, places)


def runs_of(record: Record, places: Sequence[tuple[int, int]]) -> tuple[Record, ...]:
    """Of each place, as (first, end), the messages of a divisible record."""
    ends, batch = _Ends.of(record.sizes), record.batch
    keys = own = _Ends()
    if batch is not None:
        # The size of a key is stored plus one; 0: no key.
        keys = _Ends.of([max(0, size - 1) for size in batch.keys.sizes])
        own = _Ends.of(batch.own.sizes)
    return tuple([_run_of(record, first, end, (ends, keys, own)) for first, end in places])


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where each of the slices of a body begins and ends, added up once for all runs."""

    at: Sequence[int] = ()

    @classmethod
    def of(cls, sizes: Sequence[int]) -> "_Ends":
        return cls(tuple(accumulate(sizes, initial=0)))

    def part(self, body: bytes, first: int, end: int) -> bytes:
        return body[self.at[first] : self.at[end]]


def _run_of(record: Record, first: int, end: int, ends: tuple[_Ends, _Ends, _Ends]) -> Record:
    base_id = MessageId(record.base_id + first)
    bodies, keys, own = ends
    confirms_itself = record.last_confirmed_id == record.base_id
    part, batch = record.txn, record.batch
    return Record(
        record.term,
        base_id,
        TimeTick(record.base_tick + first),
        base_id if confirms_itself else record.last_confirmed_id,
        record.kind,
        record.vchannel,
        record.sizes[first:end],
        bodies.part(record.body, first, end),
        None if part is None else replace(part, bodies=part.bodies + first),
        None if batch is None else _part_of(batch, first, end, (keys, own)),
    )


def joined(runs: Sequence[Record]) -> Record:
    """The messages of all runs of a record, as if no id was missing; the head is the first's."""
    first = runs[0]
    batches = [it.batch for it in runs if it.batch is not None]
    sizes = tuple([size for it in runs for size in it.sizes])
    body = b"".join([it.body for it in runs])
    if not batches:
        return replace(first, sizes=sizes, body=body)
    keys = BatchKeys(
        tuple([size for it in batches for size in it.keys.sizes]),
        b"".join([it.keys.body for it in batches]),
    )
    own = OwnProperties(
        tuple([size for it in batches for size in it.own.sizes]),
        b"".join([it.own.body for it in batches]),
    )
    return replace(first, sizes=sizes, body=body, batch=replace(batches[0], keys=keys, own=own))


def _part_of(batch: BatchPart, first: int, end: int, ends: tuple[_Ends, _Ends]) -> BatchPart:
    producer, keys, own = batch.producer, batch.keys, batch.own
    if producer is not None:
        producer = replace(producer, sequence=producer.sequence + first)
    if keys.sizes:
        keys = BatchKeys(keys.sizes[first:end], ends[0].part(keys.body, first, end))
    if own.sizes:
        own = OwnProperties(own.sizes[first:end], ends[1].part(own.body, first, end))
    return replace(batch, keys=keys, own=own, producer=producer)
