"""A position that programs share by its name: how far something has been processed."""

from dataclasses import dataclass

from broker.model.ids import TimeTick


@dataclass(frozen=True, slots=True)
class NamedCursor:
    """Everything with a tick up to `tick` on these channels is processed, as its owner says."""

    name: str
    tick: TimeTick
    channels: tuple[str, ...]
    moved_ms: int
    """When its tick last grew, in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class CursorView:
    """A cursor as it stands at one moment.

    `lag_ms`: how old its tick is. `closed_tick`: closed on all its channels, 0 while nobody can
    tell for one of them. `behind_ms`: from the cursor to that; 0 when nothing older is left.
    """

    name: str
    tick: TimeTick
    channels: tuple[str, ...]
    moved_ms: int
    lag_ms: int
    closed_tick: TimeTick
    behind_ms: int
