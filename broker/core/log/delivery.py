"""Turns stored records into what one consumer sees: in tick order, each message exactly once.

The sequencer assigns ids and ticks in the same order, so reading by id is reading by tick. Only
transactions are reordered: they are delivered whole at their commit. Stateless: a read position
comes in and the next one goes out; the assembler caches what the position implies.

Next: broker/edge/rpc/scanner_proxy.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import assert_never

from broker.core.log.assembler import Assembler
from broker.core.log.txn_members import fitting, whole_record
from broker.model.ids import MessageId, TimeTick
from broker.model.message import RELEASED, SYSTEM_TYPES, ClosedTick, Delivered, MessageType
from broker.model.position import DeliverFilter, MessageTypes, ReadPosition, TimeTickGt, TimeTickGte
from broker.model.record import Record, RecordSlice
from broker.model.retention.dead import PURGED_KINDS
from broker.value import value

DeliveredItem = Delivered | ClosedTick | RecordSlice


@dataclass(frozen=True, slots=True)
class Selection:
    """What a consumer wants: one vchannel ("": all), ticks above `floor`, kinds (None: all).

    `among`: of all vchannels only these. `whole`: records come uncut; otherwise each is cut to fit.
    `released`: with the records of kind RELEASED, which only groups read.
    `purged`: of some vchannels only what has a larger tick.
    """

    vchannel: str
    floor: TimeTick
    kinds: frozenset[int] | None
    among: frozenset[str] | None = None
    whole: bool = False
    released: bool = False
    purged: Mapping[str, TimeTick] = field(default_factory=dict)

    def passes(self, vchannel: str) -> bool:
        """Whether the consumer wants messages of this vchannel; "" is for every consumer."""
        if not vchannel:
            return True
        if self.vchannel:
            return vchannel == self.vchannel
        return self.among is None or vchannel in self.among


@value
class DeliveryResult:
    """`items` in tick order; `cursor` is where to continue.

    `broken`: what contradicts itself in the log at the cursor; reading must not continue past it.
    `disordered`: the contradiction is a tick that does not grow, and not an incomplete transaction.
    `incomplete`: the record of the incomplete transaction.
    """

    items: tuple[DeliveredItem, ...]
    cursor: ReadPosition
    broken: str = ""
    disordered: bool = False
    incomplete: Record | None = None


def selection_of(vchannel: str, filters: Sequence[DeliverFilter]) -> Selection:
    """The selection where all filters hold. System messages pass every type filter."""
    floor, kinds = TimeTick(0), None
    for each in filters:
        match each:
            case TimeTickGt(tick):
                floor = max(floor, tick)
            case TimeTickGte(tick):
                floor = max(floor, TimeTick(tick - 1))
            case MessageTypes(types):
                wanted = types | SYSTEM_TYPES
                kinds = wanted if kinds is None else kinds & wanted
            case _:
                assert_never(each)
    return Selection(vchannel, floor, kinds)


def deliver(
    records: Sequence[Record],
    cursor: ReadPosition,
    selection: Selection,
    bytes_max: int,
    assembler: Assembler,
) -> DeliveryResult:
    """What the consumer sees of consecutive records, the first of which holds `cursor.next_id`.

    Where space was given back, the first is the next one behind it, and ids are missing between.
    Stops at about `bytes_max`, even within a record or transaction, but delivers at least one
    message if there is one. Records of other vchannels cost one comparison each; those with
    vchannel "" go to every consumer. `assembler` must be at the cursor (see `catch_up`).
    """
    assert assembler.next_id == cursor.next_id, (assembler.next_id, cursor.next_id)
    kind = _AbovePurges if selection.purged else _Delivery
    delivery = kind(cursor, selection, bytes_max, assembler)
    if cursor.inside and _is_gone(records, cursor.next_id):
        delivery.leave_txn()
    passes, kinds = selection.passes, selection.kinds
    compacted = assembler.compacted
    for record in records:
        if not delivery.follows(record):
            break
        if not passes(record.vchannel):
            delivery.pass_over(record)
        elif record.txn is not None:
            if not delivery.take_in_txn(record):
                break
        elif kinds is not None and record.kind not in kinds:
            delivery.pass_over(record)
        elif not delivery.take(record):
            break
        if compacted:
            assembler.forget_ended(record.last_confirmed_id)
    return delivery.picked()


def _is_gone(records: Sequence[Record], commit_id: MessageId) -> bool:
    """Whether there is a record behind the commit, and not the commit."""
    left = next((it for it in records if it.next_id > commit_id), None)
    return left is not None and left.base_id != commit_id


def catch_up(records: Sequence[Record], cursor: ReadPosition, assembler: Assembler) -> None:
    """Advance an assembler towards a cursor: absorb open transactions, deliver nothing.

    The records start at the assembler's `next_id`, or with the record that holds it. Bodies are
    absorbed by whole records, so the assembler may end up past the cursor: continue from there.
    """
    for record in records:
        if record.next_id <= assembler.next_id:
            continue
        if record.base_id >= cursor.next_id:
            # All below the cursor was absorbed, or its space was given back.
            assembler.next_id = max(assembler.next_id, cursor.next_id)
            return
        if record.txn is not None and record.base_id >= assembler.since_id:
            assembler.absorb(record)
        in_txn = record.txn is not None and record.kind != RELEASED
        whole = in_txn or record.next_id <= cursor.next_id
        assembler.next_id = record.next_id if whole else cursor.next_id


class _Delivery:
    """One pass over records: the items found and the position reached."""

    __slots__ = (
        "_assembler", "_broken", "_disordered", "_floor", "_incomplete", "_inside", "_items",
        "_next_id", "_partial", "_purged", "_room", "_selection", "_tick",
    )  # fmt: skip

    def __init__(
        self, cursor: ReadPosition, selection: Selection, bytes_max: int, assembler: Assembler
    ) -> None:
        self._selection = selection
        self._assembler = assembler
        self._floor = max(selection.floor, cursor.tick)
        self._next_id, self._tick, self._inside = cursor.next_id, cursor.tick, cursor.inside
        self._partial, self._purged = cursor.partial, cursor.purged
        self._room = bytes_max
        self._items: list[DeliveredItem] = []
        self._broken = ""
        self._disordered = False
        self._incomplete: Record | None = None

    def leave_txn(self) -> None:
        """The commit that the reader was inside of was given back: what follows is not of it."""
        self._inside = 0

    def follows(self, record: Record) -> bool:
        """Whether ticks keep growing; the rest of a partly read record is not a new record."""
        assembler = self._assembler
        if record.base_tick <= assembler.seen_tick and not assembler.is_rest(record):
            self._broken = (
                f"message {record.base_id} has tick {record.base_tick}, after tick"
                f" {assembler.seen_tick} was seen"
            )
            self._disordered = True
            return False
        assembler.saw(record)
        return True

    def pass_over(self, record: Record) -> None:
        self._next_id = record.next_id

    def take(self, record: Record) -> bool:
        """Deliver what fits of a record; False if that is not all of it."""
        items = self._items
        # Ids and ticks grow by one per message, so each of the two says where the rest begins.
        first = max(0, self._next_id - record.base_id, self._floor - record.base_tick + 1)
        # At least one message, however large: else the consumer could never advance.
        if self._selection.whole:
            count, used = whole_record(record, first, self._room, one_at_least=not items)
        else:
            count, used = fitting(record.sizes, first, self._room, one_at_least=not items)
        if count > 0:
            items += _items(record, first, count)
            self._tick = max(self._tick, TimeTick(record.base_tick + first + count - 1))
        self._room -= used
        if first + count < len(record.sizes):
            self._next_id = MessageId(record.base_id + first + count)
            return False
        self._next_id = record.next_id
        return True

    def take_in_txn(self, record: Record) -> bool:
        """Keep it for its commit; if this is the commit, deliver what fits."""
        if record.kind == RELEASED and self._selection.released:
            return self.take(record)
        wanted = self._inside > 0 or record.base_tick > self._floor
        if record.kind == MessageType.COMMIT_TXN and wanted and not self._take_committed(record):
            return False
        self._broken = self._assembler.absorb(record)
        if self._broken:
            self._incomplete = record
            return False
        self._next_id = record.next_id
        return True

    def picked(self) -> DeliveryResult:
        self._assembler.next_id = self._next_id
        open_id = self._assembler.open_id(self._next_id)
        cursor = ReadPosition(
            self._next_id, self._tick, open_id, self._inside, self._partial, purged=self._purged
        )
        return DeliveryResult(
            tuple(self._items), cursor, self._broken, self._disordered, self._incomplete
        )

    def _take_committed(self, commit: Record) -> bool:
        members = self._assembler.committed(commit, self._selection.kinds)
        if isinstance(members, str):
            self._broken, self._incomplete = members, commit
            return False
        if members is None:
            self.leave_txn()
            return True
        whole, one_at_least = self._selection.whole, not self._items
        taken = members.take(self._inside, self._room, whole=whole, one_at_least=one_at_least)
        self._items += taken.items
        self._room -= taken.used_bytes
        inside = self._inside + taken.count
        if inside < members.count:
            self._inside, self._next_id = inside, commit.base_id
            return False
        self._inside, self._tick = 0, commit.base_tick
        return True


class _AbovePurges(_Delivery):
    """Where something was purged, each vchannel has a floor of its own."""

    __slots__ = ("_everywhere",)

    def __init__(
        self, cursor: ReadPosition, selection: Selection, bytes_max: int, assembler: Assembler
    ) -> None:
        super().__init__(cursor, selection, bytes_max, assembler)
        self._everywhere = self._floor

    def take(self, record: Record) -> bool:
        if record.kind in PURGED_KINDS:
            self._raise_floor(record.vchannel)
        else:  # definitions stay
            self._floor = self._everywhere
        return super().take(record)

    def take_in_txn(self, record: Record) -> bool:
        self._raise_floor(record.vchannel)
        if record.base_tick <= self._floor:
            self.leave_txn()
        return super().take_in_txn(record)

    def _raise_floor(self, vchannel: str) -> None:
        self._floor = max(self._everywhere, self._selection.purged.get(vchannel, TimeTick(0)))


def announce(closed: ClosedTick, cursor: ReadPosition, selection: Selection) -> ClosedTick | None:
    """The closed tick, unless the consumer has seen it already; call it when all before is read."""
    if closed.tick <= cursor.tick or closed.tick <= selection.floor:
        return None
    return closed


def _items(record: Record, first: int, count: int) -> Sequence[DeliveredItem]:
    if record.kind != MessageType.TIME_TICK:
        return (RecordSlice(record, first, first + count),)
    return [
        ClosedTick(
            tick=message.tick,
            id=message.id,
            last_confirmed_id=message.last_confirmed_id,
            term=message.term,
            persisted=True,
        )
        for message in islice(record.messages(first), count)
    ]
