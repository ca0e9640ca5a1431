"""The unit a log stores: one batch of messages of one vchannel and one type."""

from collections.abc import Iterator
from dataclasses import dataclass

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import Delivered
from broker.model.txn import TxnPart


@dataclass(frozen=True, slots=True)
class Record:
    """`len(sizes)` messages with contiguous ids and ticks; never split by a crash.

    Message i has id `base_id + i`, tick `base_tick + i` and `sizes[i]` bytes of `body`.
    `last_confirmed_id` equal to `base_id` says that each message confirms itself; any smaller
    value holds for all of them. `txn` is the transaction that all of them belong to, if any.
    """

    term: Term
    base_id: MessageId
    base_tick: TimeTick
    last_confirmed_id: MessageId
    kind: int
    vchannel: str
    sizes: tuple[int, ...]
    body: bytes
    txn: TxnPart | None = None

    @property
    def next_id(self) -> MessageId:
        return MessageId(self.base_id + len(self.sizes))

    @property
    def last_tick(self) -> TimeTick:
        return TimeTick(self.base_tick + len(self.sizes) - 1)

    def messages(self, first: int = 0) -> Iterator[Delivered]:
        """The messages from index `first` on, each with its own slice of the body."""
        confirms_itself = self.last_confirmed_id == self.base_id
        start = sum(self.sizes[:first])
        for index in range(first, len(self.sizes)):
            end = start + self.sizes[index]
            own_id = MessageId(self.base_id + index)
            yield Delivered(
                id=own_id,
                tick=TimeTick(self.base_tick + index),
                last_confirmed_id=own_id if confirms_itself else self.last_confirmed_id,
                term=self.term,
                body=self.body[start:end],
            )
            start = end
