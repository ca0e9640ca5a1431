"""Collections, positions, cuts, barriers, cursors, broadcasts and administration of a cluster."""

from broker.client.cluster.admin import Admin
from broker.client.cluster.barrier import NamedBarriers
from broker.client.cluster.broadcast import Broadcasted, BroadcastInfo, Broadcasts, LockInfo
from broker.client.cluster.collections import Collections
from broker.client.cluster.cursor import NamedCursors
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.server_admin import (
    ActorInfo,
    ChannelInfo,
    ChannelTrouble,
    Damage,
    Health,
    LogHolder,
    PassedHolder,
    ServerTraffic,
)
from broker.client.cluster.switching.wal_calls import ChannelSwitched, WalStatus
from broker.model.barrier import BarrierPeer, BarrierView
from broker.model.broadcast import ResourceDomain
from broker.model.channel import ChannelOffsets
from broker.model.measured import SpanStep, TickChoice
from broker.model.named_cursor import CursorView
from broker.model.traffic import VChannelTraffic

__all__ = [
    "ActorInfo",
    "Admin",
    "BarrierPeer",
    "BarrierView",
    "BroadcastInfo",
    "Broadcasted",
    "Broadcasts",
    "ChannelInfo",
    "ChannelOffsets",
    "ChannelSwitched",
    "ChannelTrouble",
    "Collections",
    "CursorView",
    "Damage",
    "Health",
    "LockInfo",
    "LogHolder",
    "NamedBarriers",
    "NamedCursors",
    "Offsets",
    "PassedHolder",
    "ResourceDomain",
    "ServerTraffic",
    "SpanStep",
    "TickChoice",
    "VChannelTraffic",
    "WalStatus",
]
