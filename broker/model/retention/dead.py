"""What nobody needs of a pchannel, and what a part of its log holds of each vchannel."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.ids import MessageId, TxnId
from broker.model.record import Record


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
    """What nobody needs of a pchannel: all of the `dropped` vchannels, and what lies `below` an id.

    `open_txns`: the transactions that may still end; staged and prepared ones are among them.
    """

    dropped: frozenset[str] = frozenset()
    below: Mapping[str, MessageId] = field(default_factory=dict)
    open_txns: frozenset[TxnId] = frozenset()

    def covers(self, record: Record) -> bool:
        """Whether nobody needs this record."""
        if record.txn is not None and record.txn.id in self.open_txns:
            return False
        if record.vchannel in self.dropped:
            return True
        return record.next_id <= self.below.get(record.vchannel, 0)

    def bytes_in(self, contents: Contents) -> int:
        """About how many bytes of a segment are dead: a part across a floor counts by its ids."""
        return sum(self._bytes_of(name, part) for name, part in contents.items())

    def _bytes_of(self, name: str, part: VChannelPart) -> int:
        if name in self.dropped:
            return part.bytes
        ids = min(self.below.get(name, MessageId(0)), part.next_id) - part.base_id
        return part.bytes * max(ids, 0) // (part.next_id - part.base_id)
