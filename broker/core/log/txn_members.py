"""The messages of a committed transaction as readers get them, all at the commit's tick.

The members are the begin, the bodies and the commit. A batch among the bodies stays in one piece.

Members are numbered as they were appended: those that compaction has removed, or that a reader does
not want, keep their numbers. So a reader that had some of them goes on behind those, whatever was
removed meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.model.message import Delivered, DeliveredInTxn
from broker.model.record import Record, RecordSliceInTxn
from broker.model.txn import TxnContext

MESSAGE_OVERHEAD_BYTES = 64
"""Counted for every message beside its body, so that a credit in bytes bounds tiny messages too."""

Part = RecordSliceInTxn | tuple[Delivered, ...]
"""A batch, or single messages."""


@dataclass(frozen=True, slots=True)
class TakenMembers:
    """The members that fit: as items for the reader, how many numbers on, and their bytes."""

    items: tuple[Delivered | RecordSliceInTxn, ...]
    count: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class TxnMembers:
    """`count` numbers of members; each part with the number of its first member."""

    parts: tuple[tuple[int, Part], ...]
    count: int

    def take(self, first: int, room: int, *, whole: bool, one_at_least: bool) -> TakenMembers:
        """The members from `first` on, as many as fit into `room` bytes.

        `whole`: a batch is sent as it is stored, so it fits whole or not at all.
        """
        items: list[Delivered | RecordSliceInTxn] = []
        used, reached = 0, first
        for start, part in self.parts:
            size = _count(part)
            inside = max(0, first - start)
            if inside >= size:
                continue
            more, more_bytes = _fit(
                part, inside, room - used, whole=whole, one_at_least=one_at_least and not items
            )
            if isinstance(part, RecordSliceInTxn):
                items += [replace(part, first=inside, end=inside + more)] if more else []
            else:
                items += part[inside : inside + more]
            used += more_bytes
            reached = start + inside + more
            if inside + more < size:
                break
        return TakenMembers(tuple(items), reached - first, used)


def members_of(
    begin: Record, bodies: Sequence[Record], commit: Record, kinds: frozenset[int] | None
) -> TxnMembers:
    """The members of a transaction, with only the bodies of these kinds (None: all)."""
    part, (end,) = begin.txn, commit.messages()
    assert part is not None
    context = TxnContext(part.id, part.keepalive_ms)
    parts: list[tuple[int, Part]] = []
    parts.append((0, tuple([_member(each, end, context) for each in begin.messages()])))
    for record in bodies:
        if kinds is not None and record.kind not in kinds:
            continue
        assert record.txn is not None, record
        at = 1 + record.txn.bodies
        if record.batch is not None:
            whole = len(record.sizes)
            parts.append((at, RecordSliceInTxn(record, 0, whole, end.tick, end.last_confirmed_id)))
        else:
            parts.append((at, tuple([_member(each, end, None) for each in record.messages()])))
    assert commit.txn is not None, commit
    last = 1 + commit.txn.bodies
    parts.append((last, (end,)))
    return TxnMembers(tuple(parts), last + 1)


def fitting(sizes: Sequence[int], first: int, room: int, *, one_at_least: bool) -> tuple[int, int]:
    """How many messages from `first` on fit into `room` bytes, and what they take."""
    count = used = 0
    for index in range(first, len(sizes)):
        size = sizes[index] + MESSAGE_OVERHEAD_BYTES
        if used + size > room and not (one_at_least and count == 0):
            break
        count += 1
        used += size
    return count, used


def whole_record(record: Record, first: int, room: int, *, one_at_least: bool) -> tuple[int, int]:
    """The rest of a record, or nothing: the whole record is sent, whatever `first` is."""
    left = max(0, len(record.sizes) - first)
    used = _sent_bytes(record) + MESSAGE_OVERHEAD_BYTES
    return (left, used) if used <= room or one_at_least else (0, 0)


def _sent_bytes(record: Record) -> int:
    batch, body_bytes = record.batch, len(record.body)
    if batch is None:
        return body_bytes
    if batch.own.sizes:
        # Sent uncompressed and message by message, each with all that the messages share.
        body_bytes = sum(record.sizes) + len(record.sizes) * len(batch.properties)
    return body_bytes + batch.shared_bytes


def _fit(part: Part, first: int, room: int, *, whole: bool, one_at_least: bool) -> tuple[int, int]:
    if not isinstance(part, RecordSliceInTxn):
        sizes = [len(each.body) for each in part]
        return fitting(sizes, first, room, one_at_least=one_at_least)
    if whole:
        return whole_record(part.record, first, room, one_at_least=one_at_least)
    return fitting(part.record.sizes, first, room, one_at_least=one_at_least)


def _count(part: Part) -> int:
    return part.end if isinstance(part, RecordSliceInTxn) else len(part)


def _member(each: Delivered, end: Delivered, begins: TxnContext | None) -> DeliveredInTxn:
    return DeliveredInTxn(each.id, end.tick, end.last_confirmed_id, each.term, each.body, begins)
