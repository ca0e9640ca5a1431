"""What a log remembers of producers that number their messages, so that a retry is stored once."""

from dataclasses import dataclass

from broker.model.failure import Refusal
from broker.model.ids import MessageId, TimeTick
from broker.model.message import Appended
from broker.value import value


@value
class ProducerPart:
    """The producer of a stored record; message i has the number `sequence + i`."""

    producer: str
    sequence: int


@value
class ProducedBatch:
    """Where `count` messages of a producer, numbered from `sequence`, were stored.

    Ids and ticks grow by one each. `last_confirmed_id` equal to `id`: each message confirms its own
    id, as in a stored record.
    """

    producer: str
    sequence: int
    count: int
    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId

    @property
    def next_sequence(self) -> int:
        return self.sequence + self.count

    @property
    def last_tick(self) -> TimeTick:
        return TimeTick(self.tick + self.count - 1)

    def landed(self, sequence: int) -> Appended:
        """Where the message of this number is; it must be one of these."""
        offset = sequence - self.sequence
        own_id = MessageId(self.id + offset)
        confirms_itself = self.last_confirmed_id == self.id
        return Appended(
            own_id,
            TimeTick(self.tick + offset),
            own_id if confirms_itself else self.last_confirmed_id,
        )


@dataclass(frozen=True, slots=True)
class OutOfSequence(Refusal):
    """A sequence number out of order. `expected` from 1 to the number: it was never stored."""

    expected: int
