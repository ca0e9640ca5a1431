"""What keeps a group from going on: messages that were delivered or taken, and are not settled."""

from dataclasses import dataclass
from enum import Enum

from broker.model.ids import TimeTick, TxnId


class Unsettled(Enum):
    """What became of a message that an ordered group has to settle before what comes behind it."""

    WAITING = "no member takes it"
    LEASED = "a member has it"
    DELAYED = "it was given back, and its delay is not over"
    SETTLING = "its acknowledgement or its dead letter is being written"
    HELD = "an open transaction has acknowledged it"


@dataclass(frozen=True, slots=True)
class FirstUnsettled:
    """The oldest message of an ordered group that is not settled, and what waits for it.

    `tick`: where it is read. `key_hash`: CRC-32 of its key, None without one, or if the vchannel is
    ordered as a whole. `first_s`: how long ago it was delivered first, None if it was not.
    `deliveries`: how often it was. `behind`: messages behind it, of the same key or the vchannel.
    `unsettled` messages of the group are in memory, of at most `unsettled_max`.
    """

    tick: TimeTick
    key_hash: int | None
    state: Unsettled
    deliveries: int
    first_s: float | None
    behind: int
    unsettled: int
    unsettled_max: int

    @property
    def full(self) -> bool:
        """Whether no new message is delivered, of any key, until some are settled."""
        return self.unsettled >= self.unsettled_max


@dataclass(frozen=True, slots=True)
class HeldByTxn:
    """Acknowledgements inside an open transaction, by their number of ranges.

    `txn`: its id, the tick of its begin. `stage`: what it is staged for, "" when it is not.
    `last_tick`: when its writer was heard last. `ends_ms`: it is rolled back so long after that.
    """

    txn: TxnId
    ranges: int
    stage: str
    last_tick: TimeTick
    ends_ms: int
