"""List the pchannels that are not served or take no appends, and why.

Joins the coordinator's record of the pchannels with what the actors report.
"""

from collections.abc import Mapping, Sequence

from actors import ActorStatistics
from broker.core.cluster.actor_kinds import kind_of, pchannel_in
from broker.core.cluster.assignment import PChannelMeta
from broker.model.channel import PChannelState
from broker.node.append.appender import REFUSING
from schemas.generated.tidemark import v1

NO_CAUSE = "no node serves it; no cause has been reported yet"


def channel_troubles(
    known: Sequence[PChannelMeta], statistics: Sequence[ActorStatistics]
) -> list[v1.ChannelTrouble]:
    """The troubled ones among `known`, in that order."""
    refusing = _reported(statistics, "appender", "cause")
    unplaced = _reported(statistics, "reconciler", "error")
    found = []
    for meta in known:
        if meta.state is not PChannelState.ASSIGNED:
            state, cause = meta.state.name.lower(), unplaced.get(meta.name, NO_CAUSE)
            found.append(v1.ChannelTrouble(name=meta.name, state=state, cause=cause))
        elif meta.name in refusing:
            cause = refusing[meta.name]
            found.append(v1.ChannelTrouble(name=meta.name, state=REFUSING, cause=cause))
    return found


def _reported(statistics: Sequence[ActorStatistics], kind: str, what: str) -> Mapping[str, str]:
    return {
        pchannel_in(entry.path): str(entry.extra[what])
        for entry in statistics
        if what in entry.extra and kind_of(entry.path) == kind
    }
