"""Up to which tick the retention of a collection removes messages of one vchannel.

By age, to the tick. By size, whole records from the oldest on, as long as the newer ones have as
many bytes as the limit says. In steps of a 16th of the limit: each is a record in the log, and may
have segments rewritten.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.model.ids import TICK_LOGICAL_BITS, MessageId, TimeTick
from broker.model.measured import RecordHead
from broker.model.retention.dead import VChannelPart
from broker.model.retention.policy import Retention

STEPS = 16
STEP_BYTES_MIN = 16 * 1024
HEAD_BYTES = 68
"""What a stored record has beside its name, its sizes and its bodies, most often."""


@dataclass(frozen=True, slots=True)
class AgeBound:
    """When it is, how often it is looked, and the newest closed tick, up to which is purged.

    `now_ms`: by the clock of the node, which may be another one than that of the ticks.
    """

    now_ms: int
    period_ms: int
    closed: TimeTick


def due_by_age(
    limits: Retention, purged: TimeTick, data_tick: TimeTick, bound: AgeBound
) -> TimeTick:
    """The tick up to which messages of a vchannel are too old; 0: nothing is due.

    `purged`: up to which tick it is purged already. `data_tick`: none of its messages has a larger
    one.
    """
    if not limits.age_ms_max or data_tick <= purged:
        return TimeTick(0)
    upto = aged_tick(limits.age_ms_max, bound.now_ms, bound.closed)
    step = max(limits.age_ms_max // STEPS, bound.period_ms) << TICK_LOGICAL_BITS
    return upto if upto - purged >= step else TimeTick(0)


def agreed_now_ms(now_ms: int, closed: TimeTick) -> int:
    """When it is, by the clock of the node and by the newest closed tick: the earlier of both.

    A node whose clock is ahead of the ticks would remove what is young.
    """
    return min(now_ms, closed >> TICK_LOGICAL_BITS)


def aged_tick(age_ms_max: int, now_ms: int, closed: TimeTick) -> TimeTick:
    """The largest closed tick that is older; 0: there is none."""
    oldest = max(0, agreed_now_ms(now_ms, closed) - age_ms_max) << TICK_LOGICAL_BITS
    return TimeTick(max(0, oldest - 1))


def step_bytes(bytes_max: int) -> int:
    """So much is due at least before it is removed."""
    return max(bytes_max // STEPS, STEP_BYTES_MIN)


@dataclass(frozen=True, slots=True)
class Excess:
    """`whole`: so many of the oldest parts may go. `spare`: bytes that may go behind them."""

    whole: int
    spare: int


def excess(parts: Sequence[VChannelPart], bytes_max: int) -> Excess:
    """What of the parts of a vchannel, the oldest first, is more than the limit."""
    spare = sum(it.bytes for it in parts) - bytes_max
    for at, part in enumerate(parts):
        if spare < part.bytes:
            return Excess(at, max(spare, 0))
        spare -= part.bytes
    return Excess(len(parts), 0)


class OldestRecords:
    """Finds the last record that may go of a run of records, which are shown to it in order."""

    def __init__(self, vchannel: str, grain_bytes: int) -> None:
        self._vchannel, self._grain = vchannel, grain_bytes
        self._steps: list[tuple[int, TimeTick]] = []
        """The bytes up to a tick, both growing, at least a grain apart."""
        self.bytes = 0
        self.next_id = MessageId(0)

    def show(self, head: RecordHead) -> None:
        """The next record of the log, of any vchannel."""
        self.next_id = head.next_id
        if head.vchannel != self._vchannel:
            return
        self.bytes += head_bytes(head)
        if not self._steps or self.bytes - self._steps[-1][0] >= self._grain:
            self._steps.append((self.bytes, head.last_tick))

    def upto(self, newer_bytes: int, bytes_max: int) -> TimeTick:
        """The tick up to which may go, so that with what is newer `bytes_max` are left; 0: none."""
        spare = self.bytes + newer_bytes - bytes_max
        return max((tick for size, tick in self._steps if size <= spare), default=TimeTick(0))


def head_bytes(head: RecordHead) -> int:
    """About how many bytes the record takes in the log."""
    return head.size_bytes + len(head.vchannel) + 4 * head.messages + HEAD_BYTES
