"""A named, shared position: how far some channels have been processed."""

from dataclasses import dataclass

from broker.model.ids import TimeTick


@dataclass(frozen=True, slots=True)
class NamedCursor:
    """Its owner has processed every message of these channels with a tick up to `tick`."""

    name: str
    tick: TimeTick
    channels: tuple[str, ...]
    moved_ms: int
    """When its tick last grew, in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class CursorView:
    """A cursor at one moment.

    `lag_ms`: the age of its tick. `closed_tick`: closed on all its channels, 0 while that of one is
    unknown. `behind_ms`: the distance from the cursor to that; 0 if the cursor has reached it.
    """

    name: str
    tick: TimeTick
    channels: tuple[str, ...]
    moved_ms: int
    lag_ms: int
    closed_tick: TimeTick
    behind_ms: int
