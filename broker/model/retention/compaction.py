"""How a collection is compacted by key, and how far a vchannel is."""

from dataclasses import dataclass

from broker.model.ids import TimeTick


@dataclass(frozen=True, slots=True)
class Compaction:
    """Of each key the newest message is kept. A message with a key and no payload is a tombstone.

    `lag_ms`: what is younger is left alone. `tombstone_ms`: for so long after a pass has removed
    what a tombstone deletes, the tombstone itself stays.
    """

    lag_ms: int = 0
    tombstone_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """How far a vchannel is compacted, as the log says.

    `upto`: messages up to this tick may be missing, because newer ones of their keys came.
    `clean`: a pass has finished there. `horizon`: what tombstones up to this tick delete was gone
    at `horizon_ms`; 0: none waits. `tombstones`: how many are left up to `clean`. `tick`: of the
    record that says so.
    """

    vchannel: str
    upto: TimeTick = TimeTick(0)
    clean: TimeTick = TimeTick(0)
    horizon: TimeTick = TimeTick(0)
    horizon_ms: int = 0
    tombstones: int = 0
    tick: TimeTick = TimeTick(0)
