"""Below which id the dead records of each vchannel are given back, although somebody may hold them.

A hold keeps the dead records of its vchannels from the first id that it needs, within its limits.
Of a dropped collection, cursors and groups hold nothing: nobody can go on there by its name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.core.space.removal import exceeded
from broker.model.ids import MessageId
from broker.model.retention.dead import Dead
from broker.model.retention.holders import Hold, HolderKind, Holding
from broker.model.retention.policy import SealedSegment

_OF_LIVING = frozenset({HolderKind.CURSOR, HolderKind.GROUP})


@dataclass(frozen=True, slots=True)
class HeldSpace:
    """What is dead and not held, and whom a limit keeps from holding more."""

    dead: Dead
    beyond: tuple[Holding, ...] = ()


def not_held(
    dead: Dead, holds: Iterable[Hold], segments: Sequence[SealedSegment], now_ms: int
) -> HeldSpace:
    """What nobody holds of what is dead. Only the `from_id` of a hold counts.

    A holder holds back what the log has sealed from there on.
    """
    dropped, purged = dict(dead.dropped), dict(dead.purged)
    beyond: list[Holding] = []
    for hold in holds:
        held = [
            *((dropped, name) for name in _covered(hold, dropped, living=False)),
            *((purged, name) for name in _covered(hold, purged, living=True)),
        ]
        if not held:
            continue
        size = sum([it.size_bytes for it in segments if it.next_id > hold.from_id])
        holding = Holding(hold.kind, hold.name, size, hold.bytes_max, hold.until_ms)
        if exceeded(holding, now_ms) is not None:
            beyond.append(holding)
            continue
        for floors, name in held:
            floors[name] = hold.from_id
    return HeldSpace(Dead(dropped, purged), tuple(beyond))


def _covered(hold: Hold, floors: Mapping[str, MessageId], *, living: bool) -> list[str]:
    """The vchannels of which the hold keeps something that lies below the floor."""
    if hold.vchannels and not living and hold.kind in _OF_LIVING:
        return []
    names = hold.vchannels & floors.keys() if hold.vchannels else floors.keys()
    return [name for name in names if hold.from_id < floors[name]]
