"""What all actors of a node use: ports, the tick cache, the open channels, limits, meters.

`broker/app` makes one per node.

Next: broker/node/append/appender.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.core.pressure.storage_use import StorageBook
from broker.model.failure import Refusal
from broker.model.ids import NodeId
from broker.node.state.channel_meters import Meters
from broker.node.state.live_limits import LiveLimits
from broker.node.state.node_limits import NodeLimits
from broker.node.state.open_channels import OpenChannels
from broker.node.state.pause import ConsumptionPause
from broker.node.state.pressure import NodePressure
from broker.node.state.retention_rule import RetentionRule
from broker.node.state.tick_cache import TickCache
from broker.node.state.write_lease import WriteLease
from broker.ports.headers import Headers
from broker.ports.holds import Holds, NoHolds
from broker.ports.memory import Memory
from broker.ports.nodes import ChannelObserver
from broker.ports.recovery_store import RecoveryStore
from broker.ports.row_schemas import NoRowSchemas, RowSchemas
from broker.ports.space.collection_retentions import CollectionRetentions, NoRetentions
from broker.ports.space.collection_sizes import CollectionSizes, NoSizes
from broker.ports.space.disk_room import DiskRoom, EnoughRoom
from broker.ports.switching.log_switch import LogSwitch, NoLogSwitch
from broker.ports.terms import Terms
from broker.ports.ticks import TickSource
from broker.ports.wal import Wal


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The drivers and services a node needs."""

    wal: Wal
    terms: Terms
    ticks: TickSource
    observer: ChannelObserver
    headers: Headers
    recovery: RecoveryStore
    memory: Memory
    holds: Holds = NoHolds()
    catalog: RowSchemas = NoRowSchemas()
    retentions: CollectionRetentions = NoRetentions()
    sizes: CollectionSizes = NoSizes()
    room: DiskRoom = EnoughRoom()
    switch: LogSwitch = NoLogSwitch()


@dataclass(frozen=True, slots=True)
class NodeRuntime:
    """One per node, for the life of the process."""

    node_id: NodeId
    wal: Wal
    terms: Terms
    ticks: TickCache
    observer: ChannelObserver
    headers: Headers
    recovery: RecoveryStore
    memory: Memory
    live: LiveLimits
    open_channels: OpenChannels
    pause: ConsumptionPause
    meters: Meters
    retention: RetentionRule
    holds: Holds
    catalog: RowSchemas
    retentions: CollectionRetentions
    sizes: CollectionSizes
    room: DiskRoom
    switch: LogSwitch
    write_lease: WriteLease = field(default_factory=WriteLease)
    pressure: NodePressure = field(default_factory=NodePressure)
    storage: StorageBook = field(default_factory=StorageBook)

    @property
    def limits(self) -> NodeLimits:
        """The limits in force; read them where they are needed, because they may change."""
        return self.live.now

    @property
    def full(self) -> Refusal | None:
        """Why messages that take space are refused; None: they are not."""
        return self.room.refusal or self.pressure.refusal

    def warnings(self) -> Sequence[str]:
        """What an operator should know of retention, groups, disk and memory now."""
        of_collections = [
            text for it in self.open_channels.all() for text in it.kept.warnings(it.passed())
        ]
        of_groups = [
            text
            for it in self.open_channels.all()
            for text in it.groups.warnings(it.tail.closed.tick)
        ]
        of_sizes = [it.sizes.warning(it.channel.name) for it in self.open_channels.all()]
        of_channels = [*of_collections, *of_groups, *filter(None, of_sizes)]
        of_node = [
            *self.pressure.warnings(),
            *self.storage.now.warnings(),
            *self.retention.warnings(),
        ]
        return [*of_node, *self.wal.warnings(), *self.switch.warnings(), *of_channels]

    def adopt(self, limits: NodeLimits) -> None:
        """New limits, in effect at once; transactions that are open keep to them, too."""
        self.live.adopt(limits)
        for opened in self.open_channels.all():
            opened.transactions.limits = limits.txns


def node_runtime(
    node_id: NodeId, ports: NodePorts, limits: NodeLimits | None = None
) -> NodeRuntime:
    """The runtime of a node over its ports."""
    limits = limits or NodeLimits()
    return NodeRuntime(
        node_id=node_id,
        wal=ports.wal,
        terms=ports.terms,
        ticks=TickCache(ports.ticks),
        observer=ports.observer,
        headers=ports.headers,
        recovery=ports.recovery,
        memory=ports.memory,
        live=LiveLimits(limits),
        open_channels=OpenChannels(limits.tail_total_bytes_max),
        pause=ConsumptionPause(limits.pause_consumption),
        meters=Meters(),
        retention=RetentionRule(limits.retention, limits.hold_bytes_max),
        holds=ports.holds,
        catalog=ports.catalog,
        retentions=ports.retentions,
        sizes=ports.sizes,
        room=ports.room,
        switch=ports.switch,
    )
