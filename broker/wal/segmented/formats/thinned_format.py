"""The stored form of a thinned record: one of which some messages were removed. See README.md.

It takes the place of a record and has its frame, as version 8: base id, base tick and count are
those of the record before anything was removed, so that ids still follow one another. Behind the
vchannel it has

    inner version u32 | runs u32 | (first u32, messages u32) * runs | sizes u32 * kept

and then what a record of the inner version (1 to 6) with only the kept messages has behind its
sizes. `first` counts from 0 at the base id. Bodies before and sequence are those of the base id.

Readers get each run as a record of its own. The checksum has the mark 0 and the version is inside
the covered bytes, so a release that does not know it refuses the log and takes it for no torn tail.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from broker.core.space.record_runs import is_divisible, joined, runs_of
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record
from broker.wal.segmented.formats.record_parts import (
    IN_TXN,
    LEAST_BYTES,
    OF_BATCHES,
    BadPart,
    batch_at,
    encode_parts,
    part_at,
    part_bytes,
    sizes_of,
    version_of,
)

VERSION_THINNED: Final = 8
NAME_MARK: Final = VERSION_THINNED << 24
_MAGIC_AND_VERSION: Final = b"\xd7TmR" + struct.pack("<I", VERSION_THINNED)
_PREFIX = struct.Struct("<8sII")
_FIELDS = struct.Struct("<qqQqqIII")
_HEAD = struct.Struct("<II")
_FRAME_BYTES: Final = _PREFIX.size + _FIELDS.size


class ThinnedSpan(NamedTuple):
    """The ids and ticks of a record before anything was removed from it."""

    base_id: MessageId
    base_tick: TimeTick
    messages: int

    @property
    def next_id(self) -> MessageId:
        return MessageId(self.base_id + self.messages)

    @property
    def last_tick(self) -> TimeTick:
        return TimeTick(self.base_tick + self.messages - 1)


class Thinned(NamedTuple):
    """A thinned record that passed its checksum, with its place: the runs that are left of it."""

    offset: int
    end: int
    group_id: int
    term: Term
    span: ThinnedSpan
    records: tuple[Record, ...]

    @property
    def base_id(self) -> MessageId:
        return self.span.base_id

    @property
    def next_id(self) -> MessageId:
        return self.span.next_id

    @property
    def base_tick(self) -> TimeTick:
        return self.span.base_tick

    @property
    def last_tick(self) -> TimeTick:
        return self.span.last_tick


class ThinnedMet(Exception):
    """Where a record was expected there is an intact thinned one.

    An exception, so that reading a record costs nothing more in logs without them.
    """

    def __init__(self, thinned: Thinned) -> None:
        span = thinned.span
        super().__init__(f"of ids {span.base_id} to {span.next_id - 1} some were removed")
        self.thinned = thinned


def span_of(record: Record) -> ThinnedSpan:
    """The span of a whole record."""
    return ThinnedSpan(record.base_id, record.base_tick, len(record.sizes))


def encode_thinned(runs: Sequence[Record], span: ThinnedSpan, group_id: int, salt: int) -> bytes:
    """The stored form of the runs that are left of a record; at least one."""
    first = runs[0]
    before = first.base_id - span.base_id
    confirms_itself = first.last_confirmed_id == first.base_id
    confirmed = span.base_id if confirms_itself else first.last_confirmed_id
    kept = _moved(joined(runs), -before)
    name, inner = first.vchannel.encode(), version_of(kept)
    table = [number for it in runs for number in (it.base_id - span.base_id, len(it.sizes))]
    fields = b"".join(
        (
            _FIELDS.pack(
                first.term,
                span.base_id,
                span.base_tick,
                confirmed,
                group_id,
                span.messages,
                first.kind,
                len(name) ^ NAME_MARK,
            ),
            name,
            _HEAD.pack(inner, len(runs)),
            sizes_of(len(table)).pack(*table),
            sizes_of(len(kept.sizes)).pack(*kept.sizes),
            encode_parts(kept),
            kept.body,
        )
    )
    prefix = _PREFIX.pack(_MAGIC_AND_VERSION, _PREFIX.size + len(fields), crc32c(fields) ^ salt)
    return prefix + fields


def is_thinned(buffer: bytes, at: int) -> bool:
    """Whether a thinned record seems to begin there."""
    return buffer[at : at + 8] == _MAGIC_AND_VERSION


def decode_thinned(buffer: bytes, at: int, offset: int, salt: int) -> Thinned | None:
    """The thinned record at `at`, which is byte `offset` of its file; None when not intact."""
    if len(buffer) - at < _FRAME_BYTES:
        return None
    _, length, checksum = _PREFIX.unpack_from(buffer, at)
    covered = buffer[at + _PREFIX.size : at + length]
    if length < _FRAME_BYTES or len(buffer) - at < length or crc32c(covered) ^ salt != checksum:
        return None
    fields = _FIELDS.unpack_from(covered)
    span = ThinnedSpan(MessageId(fields[1]), TimeTick(fields[2]), fields[5])
    try:
        table, kept = _kept(covered, fields)
    except (BadPart, struct.error, UnicodeDecodeError):
        return None
    if not (is_divisible(kept) and kept.adds_up):
        return None
    if not _are_runs(table, span.messages, len(kept.sizes)):
        return None
    ends = list(accumulate([count for _, count in table], initial=0))
    runs = runs_of(kept, list(pairwise(ends)))
    records = [
        _placed(_moved(run, first - taken), span, first)
        for run, taken, (first, _) in zip(runs, ends, table, strict=False)
    ]
    return Thinned(offset, offset + length, fields[4], Term(fields[0]), span, tuple(records))


def _kept(
    covered: bytes, fields: tuple[int, int, int, int, int, int, int, int]
) -> tuple[list[tuple[int, int]], Record]:
    """The run table, and the kept messages as a record with the head of the span.

    What passed its checksum was written by a release that knows the version; whatever does not
    parse all the same raises BadPart, struct.error or UnicodeDecodeError.
    """
    term, base_id, base_tick, confirmed, _, _, kind, marked = fields
    name_bytes = marked ^ NAME_MARK
    at = _FIELDS.size + name_bytes
    name = covered[_FIELDS.size : at].decode()
    inner, runs = _HEAD.unpack_from(covered, at)
    if inner not in LEAST_BYTES:
        raise BadPart(f"inner version {inner} is unknown")
    at += _HEAD.size
    numbers = sizes_of(2 * runs).unpack_from(covered, at)
    table = list(zip(numbers[::2], numbers[1::2], strict=True))
    at += 8 * runs
    count = sum(numbers[1::2])
    sizes = sizes_of(count).unpack_from(covered, at)
    at += 4 * count
    body_from = at + part_bytes(inner, count, covered, at)
    if body_from > len(covered):
        raise BadPart("its lengths disagree")
    record = Record(
        Term(term),
        MessageId(base_id),
        TimeTick(base_tick),
        MessageId(confirmed),
        kind,
        name,
        sizes,
        covered[body_from:],
        part_at(covered, at) if inner in IN_TXN else None,
        batch_at(covered, at, inner, count) if inner in OF_BATCHES else None,
    )
    return table, record


def _are_runs(table: Sequence[tuple[int, int]], messages: int, kept: int) -> bool:
    """Whether these are runs, in order, of a record of so many messages."""
    at = total = 0
    for first, count in table:
        if first < at or not count:
            return False
        at, total = first + count, total + count
    return bool(table) and at <= messages and total == kept


def _moved(record: Record, by: int) -> Record:
    """With what counts messages before it, in the transaction and of the producer, moved."""
    part, batch = record.txn, record.batch
    if part is not None:
        record = replace(record, txn=replace(part, bodies=part.bodies + by))
    if batch is not None and batch.producer is not None:
        producer = replace(batch.producer, sequence=batch.producer.sequence + by)
        record = replace(record, batch=replace(batch, producer=producer))
    return record


def _placed(run: Record, span: ThinnedSpan, first: int) -> Record:
    base_id = MessageId(span.base_id + first)
    # `runs_of` has counted from the first kept message; what confirms itself does so in any place.
    confirms_itself = run.last_confirmed_id == run.base_id
    return replace(
        run,
        base_id=base_id,
        base_tick=TimeTick(span.base_tick + first),
        last_confirmed_id=base_id if confirms_itself else run.last_confirmed_id,
    )
