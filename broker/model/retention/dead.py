"""What nobody needs of a pchannel, and what a part of its log holds of each vchannel."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.ids import MessageId
from broker.model.message import BODY_TYPES, PREPARE_TXN, PURGE, RELEASED, TXN_TYPES
from broker.model.record import Record

PURGED_KINDS = BODY_TYPES | TXN_TYPES | {PREPARE_TXN, RELEASED}
"""What a purge removes: messages, copies of delayed ones, and the steps of transactions."""
_GONE_BY_PURGE = PURGED_KINDS | {PURGE}
"""And the records of earlier purges, which it reaches beyond: its own lies behind its tick."""


@dataclass(frozen=True, slots=True)
class VChannelPart:
    """The records of one vchannel: their size as stored, and ids from the first to the last."""

    bytes: int
    base_id: MessageId
    next_id: MessageId

    def joined(self, later: "VChannelPart") -> "VChannelPart":
        """With records that lie behind these."""
        return VChannelPart(self.bytes + later.bytes, self.base_id, later.next_id)


Contents = Mapping[str, VChannelPart]
"""By vchannel."""


@dataclass(frozen=True, slots=True)
class Dead:
    """What nobody needs of a pchannel: of each vchannel the records that end at or below an id.

    `dropped`: all of them. `purged`: of a collection that lives, so that definitions and groups
    stay. No transaction that a reader may still be given has a record there.
    """

    dropped: Mapping[str, MessageId] = field(default_factory=dict)
    purged: Mapping[str, MessageId] = field(default_factory=dict)

    def covers(self, record: Record) -> bool:
        """Whether nobody needs this record."""
        if record.next_id <= self.dropped.get(record.vchannel, 0):
            return True
        return (
            record.next_id <= self.purged.get(record.vchannel, 0) and record.kind in _GONE_BY_PURGE
        )

    def bytes_in(self, contents: Contents) -> int:
        """About how many bytes of a segment are dead: a part across a floor counts by its ids."""
        return sum(self._bytes_of(name, part) for name, part in contents.items())

    def _bytes_of(self, name: str, part: VChannelPart) -> int:
        floor = max(self.dropped.get(name, MessageId(0)), self.purged.get(name, MessageId(0)))
        ids = min(floor, part.next_id) - part.base_id
        return part.bytes * max(ids, 0) // (part.next_id - part.base_id)
