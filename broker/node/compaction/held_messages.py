"""Superseded messages that somebody needs all the same, so that a pass leaves them.

A reader or a group that is behind needs none of them: as in Kafka it misses old values, and gets
the newest. Whoever took a message on itself needs it: the schedule of delayed messages, which
copies them by their ids, and a group that has decided to copy one to its dead letters. Such a group
looks for the copies that an earlier life of it has stored, so these stay, too.
"""

from dataclasses import dataclass
from typing import Final

from broker.core.groups.schedule_name import SCHEDULE
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import TimeTick
from broker.model.record import Record
from broker.node.state.open_channels import OpenChannel
from broker.ports.headers import Headers

_ENDLESS: Final = TimeTick(2**64 - 1)


@dataclass(frozen=True, slots=True)
class HeldMessages:
    """As of one moment, so that another thread can ask.

    `waiting`: by vchannel, behind which tick delayed messages may wait. `dying`: by vchannel, what
    goes to dead letters, and where the copies lie.
    """

    headers: Headers
    waiting: dict[str, TimeTick]
    dying: dict[str, tuple[TickSpan, ...]]

    def holds(self, record: Record, first: TimeTick, last: TimeTick) -> bool:
        """Whether a record is needed, whose messages readers get at these ticks."""
        for span in self.dying.get(record.vchannel, ()):
            if span.after < last and first <= span.upto:
                return True
        properties = record.body if record.batch is None else record.batch.properties
        times = self.headers.delivery_times(properties)
        if times is None or not times.at_ms:
            return False
        # Without a schedule none was delayed here, or none is known to have been released.
        return last > self.waiting.get(record.vchannel, TimeTick(0))


def held_messages(channel: OpenChannel, headers: Headers) -> HeldMessages:
    """What is held on a pchannel now."""
    groups = channel.groups.table.groups
    dying: dict[str, tuple[TickSpan, ...]] = {}
    for key, state in groups.items():
        spans = tuple([span for it in state.dying for span in it.spans])
        if spans:
            dying[key.vchannel] = dying.get(key.vchannel, ()) + spans
        if spans and state.limit is not None:
            letters, since = state.limit.vchannel, min([it.since for it in state.dying])
            dying[letters] = (*dying.get(letters, ()), TickSpan(since, _ENDLESS))
    waiting = {key.vchannel: it.floor for key, it in groups.items() if key == _schedule(key)}
    return HeldMessages(headers, waiting, dying)


def _schedule(key: GroupKey) -> GroupKey:
    return GroupKey(key.vchannel, SCHEDULE)
