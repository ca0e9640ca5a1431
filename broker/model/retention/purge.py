"""What was purged of a vchannel: its messages up to a tick, while its collection lives on."""

from dataclasses import dataclass

from broker.model.ids import MessageId, TimeTick


@dataclass(frozen=True, slots=True)
class Purge:
    """Nobody is given a message of `vchannel` with a tick <= `upto` any more.

    `next_id`: the first id of the log behind that tick. `whole_id`: no transaction that ends behind
    the tick has a record below; what lies below it may be given back. `tick`: of the record of the
    purge.
    """

    vchannel: str
    upto: TimeTick
    next_id: MessageId
    whole_id: MessageId
    tick: TimeTick = TimeTick(0)
