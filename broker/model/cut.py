"""A cut: a position that is consistent across several channels."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.ids import MessageId, TimeTick


@dataclass(frozen=True, slots=True)
class Cut:
    """`tick` is closed on every channel of `ends`: nothing with a tick up to it will be added.

    `ends[channel]` is the first id whose tick is larger; all messages before it have ticks <= tick.
    """

    tick: TimeTick
    ends: Mapping[str, MessageId]
