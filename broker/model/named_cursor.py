"""A named, shared position: how far some channels have been processed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.model.ids import MessageId, TimeTick

WHOLE_TICK: Final = MessageId((1 << 63) - 1)
"""An id above every other: all messages of a tick."""


@dataclass(frozen=True, slots=True)
class ChannelPosition:
    """How far one channel is processed: every message with a smaller (tick, id), and this one.

    `id` is WHOLE_TICK except in the middle of a transaction, whose messages share one tick.
    `from_id`: every message with a smaller id is processed too, or was of no concern; 0: unknown.
    """

    tick: TimeTick
    id: MessageId = WHOLE_TICK
    from_id: MessageId = MessageId(0)

    @property
    def closed(self) -> TimeTick:
        """Every message with a tick up to it is processed."""
        return self.tick if self.id == WHOLE_TICK else TimeTick(self.tick - 1)

    def joined(self, other: "ChannelPosition") -> "ChannelPosition":
        """What is processed when both positions hold."""
        tick, id = max((self.tick, self.id), (other.tick, other.id))
        return ChannelPosition(tick, id, max(self.from_id, other.from_id))


@dataclass(frozen=True, slots=True)
class NamedCursor:
    """The positions of the channels; `epoch` differs after each reset and for each new cursor.

    `holds`: retention keeps what it needs, within limits.
    """

    name: str
    positions: Mapping[str, ChannelPosition]
    moved_ms: int
    """When it last changed, in Unix milliseconds."""
    epoch: int = 0
    holds: bool = True

    @property
    def tick(self) -> TimeTick:
        """Everything up to it is processed, on all channels."""
        return min(it.closed for it in self.positions.values())

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(self.positions)


@dataclass(frozen=True, slots=True)
class ChannelLag:
    """What is not processed yet on one channel.

    `rows` and `bytes` (as stored, without record heads): counted, or where `exact` is False
    estimated from the first part of what is not processed. `closed_tick` 0: unknown now.
    """

    rows: int
    bytes: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class CursorView:
    """A cursor at one moment.

    `tick`: processed up to it on all channels. `lag_ms`: the age of that tick. `closed_tick`:
    closed on all its channels, 0 while that of one is unknown. `behind_ms`: the distance from the
    cursor to that; 0 if the cursor has reached it. For a cursor at the beginning of the log both
    count from when it was made. `lags`: of each channel, if they were measured. `held_bytes`: what
    retention keeps for it alone or with others. `passed`: of each pchannel of which retention has
    removed messages that it still needed, why.
    """

    name: str
    tick: TimeTick
    channels: tuple[str, ...]
    moved_ms: int
    lag_ms: int
    closed_tick: TimeTick
    behind_ms: int
    epoch: int = 0
    positions: Mapping[str, ChannelPosition] = field(default_factory=dict)
    closed_ticks: Mapping[str, TimeTick] = field(default_factory=dict)
    lags: Mapping[str, ChannelLag] = field(default_factory=dict)
    holds: bool = True
    held_bytes: int = 0
    passed: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows_behind(self) -> int:
        """Messages that are not processed yet, on all channels; 0 if that was not measured."""
        return sum(it.rows for it in self.lags.values())

    @property
    def bytes_behind(self) -> int:
        """Their size as stored: bodies as compressed, without the heads of records."""
        return sum(it.bytes for it in self.lags.values())

    @property
    def exact(self) -> bool:
        """Whether all of them were counted, rather than estimated."""
        return all(it.exact for it in self.lags.values())
