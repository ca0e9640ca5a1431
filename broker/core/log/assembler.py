"""Assembles transactions for one reader: buffers the bodies of each until its commit or rollback.

The state is a cache: it depends only on the records from a position's `open_id` to its `next_id`,
and can be rebuilt from them. Its size is bounded by the writer's limit on open transactions; the
records are shared with the in-memory tail while that still holds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.core.log.txn_members import TxnMembers, members_of
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import PREPARE_TXN, MessageType
from broker.model.position import ReadPosition
from broker.model.record import Record
from broker.model.txn import TxnPart

NOTHING_COMPACTED: Final[Mapping[str, TimeTick]] = {}


@dataclass(slots=True)
class _Building:
    """One open transaction; `count`: its bodies up to the last one that was read.

    `members` is built once, at its commit.
    """

    begin: Record
    bodies: list[Record] = field(default_factory=list)
    count: int = 0
    members: TxnMembers | None = None


class Assembler:
    """For one reader of one vchannel or of a whole pchannel; takes records in log order.

    `since_id`: it has seen every record from this id on. A commit of a transaction that began
    earlier means lost data, unless the reader is `partial`: then the transaction is skipped.
    `given_back`: by vchannel, up to which tick records may be missing because nobody needs them. A
    transaction that is not whole and ended by then is skipped; any other one is damage.
    `compacted`: by vchannel, up to which tick single messages may be missing: the others of their
    transaction are delivered.
    `seen_tick`: records up to this tick must not appear again, except the one at `seen_id`, which
    ends at `seen_end`: the rest of it may still be read, or what compaction has left of that.
    """

    __slots__ = (
        *("_open", "compacted", "given_back", "next_id", "partial"),
        *("seen_end", "seen_id", "seen_shift", "seen_tick", "since_id"),
    )

    def __init__(
        self,
        since_id: MessageId,
        *,
        partial: bool = False,
        compacted: Mapping[str, TimeTick] = NOTHING_COMPACTED,
    ) -> None:
        self.since_id = since_id
        self.partial = partial
        self.next_id = since_id
        self.given_back: dict[str, TimeTick] = {}
        self.compacted = compacted
        self.seen_tick = TimeTick(0)
        self.seen_id = MessageId(0)
        self.seen_end = TimeTick(0)
        self.seen_shift = 0
        self._open: dict[TxnId, _Building] = {}

    def is_at(self, cursor: ReadPosition) -> bool:
        """Whether a reader can go on from the cursor with what this one has seen."""
        if self.next_id != cursor.next_id or cursor.open_id is None:
            return False
        # Another place may have ended here, too, without the transactions from before it.
        return self.since_id <= cursor.open_id

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies of open transactions."""
        bodies = [record for each in self._open.values() for record in each.bodies]
        return sum([len(record.body) for record in bodies])

    def saw(self, record: Record) -> None:
        """Note the record as the newest one that was seen."""
        self.seen_tick = self.seen_end = record.last_tick
        self.seen_id = record.base_id
        self.seen_shift = record.base_tick - record.base_id

    def is_rest(self, record: Record) -> bool:
        """Whether it is the newest one that was seen, or a part that compaction has left of it."""
        if record.base_id == self.seen_id:
            return True
        # Within a record ids and ticks grow together.
        shift = record.base_tick - record.base_id
        return shift == self.seen_shift and self.seen_id < record.base_id <= self.seen_end - shift

    def forget_ended(self, confirmed_id: MessageId) -> None:
        """Forget transactions that begin below the last confirmed id of a record that was taken.

        They have ended. Compaction may have removed the record that says so.
        """
        ended = [txn for txn, it in self._open.items() if it.begin.base_id < confirmed_id]
        for txn in ended:
            del self._open[txn]

    def open_id(self, next_id: MessageId) -> MessageId:
        """Where a reader that resumes at `next_id` must start to find all open transactions."""
        oldest = next(iter(self._open.values()), None)
        return next_id if oldest is None else oldest.begin.base_id

    def absorb(self, record: Record) -> str:
        """Take in a record of a transaction; returns what is wrong with it, or ""."""
        part = record.txn
        assert part is not None
        match record.kind:
            case MessageType.BEGIN_TXN:
                self._open[part.id] = _Building(record)
                return ""
            case MessageType.ROLLBACK_TXN | MessageType.COMMIT_TXN:
                self._open.pop(part.id, None)
                return ""
            case _ if record.kind == PREPARE_TXN:
                return ""
            case _:
                return self._absorb_bodies(part, record)

    def committed(self, record: Record, kinds: frozenset[int] | None) -> TxnMembers | str | None:
        """The messages of the transaction that this record commits; None to skip it.

        A text says what is missing. The transaction is kept until `absorb` gets the commit, so
        that a reader can take its messages in several steps.
        """
        part = record.txn
        assert part is not None
        building = self._open.get(part.id)
        if building is None:
            return self._unknown(part, record)
        if building.count != part.bodies and not self._is_compacted(record, building.count):
            return self._short(part, record, building.count)
        if building.members is None:
            building.members = members_of(building.begin, building.bodies, record, kinds)
        return building.members

    def _absorb_bodies(self, part: TxnPart, record: Record) -> str:
        building = self._open.get(part.id)
        if building is None:
            return self._unknown(part, record) or ""
        if building.count != part.bodies and not self._is_compacted(record, building.count):
            return self._short(part, record, building.count) or ""
        building.bodies.append(record)
        building.count = part.bodies + len(record.sizes)
        return ""

    def _unknown(self, part: TxnPart, record: Record) -> str | None:
        if self._excuses(record) or self._is_compacted(record, 0):
            return None
        if part.begin_id < self.since_id:
            # Bodies alone show nothing: only a commit tells that their loss matters.
            if self.partial or record.kind != MessageType.COMMIT_TXN:
                return None
            return (
                f"message {record.base_id} commits transaction {part.id}, but retention removed"
                f" its messages from {part.begin_id} to {self.since_id - 1}"
            )
        return f"message {record.base_id} is in transaction {part.id}, whose begin is missing"

    def _short(self, part: TxnPart, record: Record, count: int) -> str | None:
        if self._excuses(record):
            return None
        return (
            f"message {record.base_id} follows {part.bodies} bodies of transaction {part.id}, but"
            f" {count} were read"
        )

    def _is_compacted(self, record: Record, count: int) -> bool:
        """Whether bodies may be missing before it, of which `count` were read."""
        assert record.txn is not None, record
        upto = self.compacted.get(record.vchannel, 0)
        return record.base_tick <= upto and count <= record.txn.bodies

    def _excuses(self, record: Record) -> bool:
        return record.base_tick <= self.given_back.get(record.vchannel, 0)
