"""The actor of the soft barriers, among them the cluster's own, whose peers are the pchannels.

Why only a tick that moved renews a pchannel's lease: a pchannel whose storage hangs still answers
requests; its tick is the only sign. Why a removed pchannel must pass the cluster's tick before it
rejoins: until then "closed everywhere" would not be true for it.
"""

from collections.abc import Mapping, Sequence

from actors import Context
from broker.core.time import tso
from broker.core.time.barrier_peers import PeerLease
from broker.model.barrier import BarrierKind
from broker.model.ids import PChannelName, TimeTick
from broker.timesync.barriers import Barriers
from broker.timesync.group import Group
from broker.timesync.messages import CLUSTER_BARRIER, BarrierMessage
from broker.timesync.timing import TimesyncTiming

PCHANNEL_LEASE_ID = 0
"""Pchannels are fed by the TickProducer, so they need no lease ids."""


class SoftBarrier(Barriers):
    """See the module."""

    kinds = frozenset({BarrierKind.SOFT})

    def __init__(self, pchannels: Sequence[PChannelName], timing: TimesyncTiming) -> None:
        super().__init__()
        self._pchannels = tuple(pchannels)
        self._timing = timing
        self._cluster: Group

    async def started(self, context: Context[BarrierMessage]) -> None:
        await super().started(context)
        founders: dict[str, PeerLease] = {name: self._lease() for name in self._pchannels}
        interval = tso.compose(self._timing.interval_ms, 0)
        self._cluster = Group(CLUSTER_BARRIER, BarrierKind.SOFT, interval, founders)
        self._groups[CLUSTER_BARRIER] = self._cluster

    def statistics(self) -> Mapping[str, int | float | str]:
        """As Barriers, and `tick`: closed on all pchannels that are members."""
        return {**super().statistics(), "tick": self._cluster.passed}

    def feed(self, ticks: Mapping[PChannelName, TimeTick]) -> TimeTick:
        cluster = self._cluster
        for name, tick in ticks.items():
            if name in cluster:
                # A tick that stands still does not renew the lease, see the module.
                if tick > cluster.newest(name):
                    cluster.hear(name, self._now_s())
                    cluster.report(name, tick)
            elif tick > cluster.passed:
                cluster.join(name, self._lease())
                cluster.report(name, tick)
        self._tell(cluster)
        return cluster.passed

    def _lease(self) -> PeerLease:
        return PeerLease(PCHANNEL_LEASE_ID, self._timing.pchannel_lease_s, self._now_s())
