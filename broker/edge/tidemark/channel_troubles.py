"""Which pchannels are in trouble, and why, as far as the actors say.

Owns the join of what the coordinator has recorded with what actors tell. It judges no actor.
"""

from collections.abc import Mapping, Sequence

from actors import ActorStatistics
from broker.core.cluster.actor_kinds import kind_of, pchannel_in
from broker.core.cluster.assignment import PChannelMeta
from broker.model.channel import PChannelState
from broker.node.append.appender import REFUSING
from schemas.generated.tidemark import v1

NOT_TOLD = "nobody serves it, and nobody has said why yet"


def channel_troubles(
    known: Sequence[PChannelMeta], statistics: Sequence[ActorStatistics]
) -> list[v1.ChannelTrouble]:
    """Those that are not served, or take no appends; in the order of `known`."""
    refusing = _told(statistics, "appender", "cause")
    unplaced = _told(statistics, "reconciler", "error")
    found = []
    for meta in known:
        if meta.state is not PChannelState.ASSIGNED:
            state, cause = meta.state.name.lower(), unplaced.get(meta.name, NOT_TOLD)
            found.append(v1.ChannelTrouble(name=meta.name, state=state, cause=cause))
        elif meta.name in refusing:
            cause = refusing[meta.name]
            found.append(v1.ChannelTrouble(name=meta.name, state=REFUSING, cause=cause))
    return found


def _told(statistics: Sequence[ActorStatistics], kind: str, what: str) -> Mapping[str, str]:
    return {
        pchannel_in(entry.path): str(entry.extra[what])
        for entry in statistics
        if what in entry.extra and kind_of(entry.path) == kind
    }
