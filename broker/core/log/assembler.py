"""Puts transactions together for one reader: what is open, until its commit or rollback is read.

It owns the records of open transactions. It never reads a log and never decides what is committed:
the log says so. Its state depends on nothing but the records from a cursor's `open_id` to its
`next_id`, so it is a cache that can be built again.

What it holds is bounded by the writer's limit on open transactions, and is shared with the tail
while that has it.
Next: broker/core/log/txn_members.py
"""

from dataclasses import dataclass, field

from broker.core.log.txn_members import TxnMembers, members_of
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import PREPARE_TXN, MessageType
from broker.model.record import Record
from broker.model.txn import TxnPart


@dataclass(slots=True)
class _Building:
    """One open transaction; `members` is made at its commit, once."""

    begin: Record
    bodies: list[Record] = field(default_factory=list)
    count: int = 0
    members: TxnMembers | None = None


class Assembler:
    """For one reader of one vchannel, or of a whole pchannel. Give it records in order.

    `since_id`: it has seen everything from there on. What began before and is committed is a loss,
    unless it is `partial`: then that is none of its business.
    `seen_tick`: no record with a tick up to it may come any more, but for the one at `seen_id`,
    which may be read on.
    """

    __slots__ = ("_open", "next_id", "partial", "seen_id", "seen_tick", "since_id")

    def __init__(self, since_id: MessageId, *, partial: bool = False) -> None:
        self.since_id = since_id
        self.partial = partial
        self.next_id = since_id
        self.seen_tick = TimeTick(0)
        self.seen_id = MessageId(0)
        self._open: dict[TxnId, _Building] = {}

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies whose commit has not come."""
        bodies = [record for each in self._open.values() for record in each.bodies]
        return sum([len(record.body) for record in bodies])

    def open_id(self, next_id: MessageId) -> MessageId:
        """Where a reader who goes on at `next_id` must begin to look for open transactions."""
        oldest = next(iter(self._open.values()), None)
        return next_id if oldest is None else oldest.begin.base_id

    def absorb(self, record: Record) -> str:
        """Take a record of a transaction in, other than a commit; what is wrong with it, or ""."""
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
        """The messages of a transaction whose commit this is; None when it is none of our business.

        Stays known until `absorb` is given the commit. A text says what is missing.
        """
        part = record.txn
        assert part is not None
        building = self._open.get(part.id)
        if building is None:
            return self._unknown(part, record)
        if building.count != part.bodies:
            return _short(part, record, building.count)
        if building.members is None:
            building.members = members_of(building.begin, building.bodies, record, kinds)
        return building.members

    def _absorb_bodies(self, part: TxnPart, record: Record) -> str:
        building = self._open.get(part.id)
        if building is None:
            return self._unknown(part, record) or ""
        if building.count != part.bodies:
            return _short(part, record, building.count)
        building.bodies.append(record)
        building.count += len(record.sizes)
        return ""

    def _unknown(self, part: TxnPart, record: Record) -> str | None:
        if part.begin_id < self.since_id:
            if self.partial or record.kind != MessageType.COMMIT_TXN:
                return None
            return (
                f"message {record.base_id} commits transaction {part.id}, of which everything"
                f" from {part.begin_id} to {self.since_id - 1} was removed by retention"
            )
        return f"message {record.base_id} is of transaction {part.id}, whose begin was not read"


def _short(part: TxnPart, record: Record, count: int) -> str:
    return (
        f"message {record.base_id} says that {part.bodies} bodies of transaction {part.id} lie"
        f" before it, and {count} were read"
    )
