"""The wrapper of each class of the async client; facade.pyi says their types.

That file is written by `scripts/gen_sync.py` from the async classes.
"""

import asyncio
from typing import Any

from broker.client.access.auth import Auth as AsyncAuth
from broker.client.client import Client as AsyncClient
from broker.client.cluster.admin import Admin as AsyncAdmin
from broker.client.cluster.barrier import Barrier as AsyncBarrier
from broker.client.cluster.barrier import NamedBarriers as AsyncNamedBarriers
from broker.client.cluster.barrier import Peer as AsyncPeer
from broker.client.cluster.broadcast import Broadcasts as AsyncBroadcasts
from broker.client.cluster.collections import Collections as AsyncCollections
from broker.client.cluster.cursor import Cursor as AsyncCursor
from broker.client.cluster.cursor import NamedCursors as AsyncNamedCursors
from broker.client.cluster.offsets import Offsets as AsyncOffsets
from broker.client.cluster.watch import Watch as AsyncWatch
from broker.client.connect import connect as async_connect
from broker.client.groups.consumer_group import ConsumerGroup as AsyncConsumerGroup
from broker.client.groups.consumer_group import Groups as AsyncGroups
from broker.client.groups.leased_batch import LeasedBatch as AsyncLeasedBatch
from broker.client.groups.member import GroupMember as AsyncGroupMember
from broker.client.master.cached_allocator import CachedAllocator as AsyncCachedAllocator
from broker.client.master.cluster_config import ClusterConfig as AsyncClusterConfig
from broker.client.master.master import Master as AsyncMaster
from broker.client.read.row_scanner import RowScanner as AsyncRowScanner
from broker.client.read.scanner import BatchScanner as AsyncBatchScanner
from broker.client.read.scanner import Scanner as AsyncScanner
from broker.client.sync.blocking import (
    Blocking,
    BlockingClient,
    BlockingContext,
    BlockingGroupMember,
    BlockingIterator,
    BlockingLeased,
    BlockingRowScanner,
    BlockingScanner,
    BlockingTicket,
    without_await,
)
from broker.client.sync.loop_thread import LoopThread
from broker.client.txn.batch_commits import BatchCommits as AsyncBatchCommits
from broker.client.txn.stage import Stage as AsyncStage
from broker.client.txn.staged_batch import StagedBatch as AsyncStagedBatch
from broker.client.txn.txn import Txn as AsyncTxn


def _wrapper(kind: type, *bases: type[Blocking]) -> Any:
    # An append under way is a future of asyncio; its name as a type is Ticket.
    name = "Ticket" if kind is asyncio.Future else kind.__name__
    members = {"__doc__": without_await(kind.__doc__ or ""), "__module__": __name__}
    made = type(name, bases or (Blocking,), members)
    Blocking.WRAPPERS[kind] = made
    return made


Admin = _wrapper(AsyncAdmin)
Auth = _wrapper(AsyncAuth)
Barrier = _wrapper(AsyncBarrier)
BatchCommits = _wrapper(AsyncBatchCommits)
BatchScanner = _wrapper(AsyncBatchScanner, BlockingScanner)
Broadcasts = _wrapper(AsyncBroadcasts)
CachedAllocator = _wrapper(AsyncCachedAllocator)
Client = _wrapper(AsyncClient, BlockingClient)
ClusterConfig = _wrapper(AsyncClusterConfig)
Collections = _wrapper(AsyncCollections)
ConsumerGroup = _wrapper(AsyncConsumerGroup)
Cursor = _wrapper(AsyncCursor)
Groups = _wrapper(AsyncGroups)
LeasedBatch = _wrapper(AsyncLeasedBatch, BlockingLeased)
Master = _wrapper(AsyncMaster)
GroupMember = _wrapper(AsyncGroupMember, BlockingGroupMember)
NamedBarriers = _wrapper(AsyncNamedBarriers)
NamedCursors = _wrapper(AsyncNamedCursors)
Offsets = _wrapper(AsyncOffsets)
Peer = _wrapper(AsyncPeer, BlockingContext)
RowScanner = _wrapper(AsyncRowScanner, BlockingRowScanner)
Scanner = _wrapper(AsyncScanner, BlockingScanner)
Stage = _wrapper(AsyncStage, BlockingContext)
StagedBatch = _wrapper(AsyncStagedBatch, BlockingContext)
Ticket = _wrapper(asyncio.Future, BlockingTicket)
Txn = _wrapper(AsyncTxn, BlockingContext)
Watch = _wrapper(AsyncWatch, BlockingIterator)


def connect(*args: Any, **kwargs: Any) -> Any:
    """Connect and return a client, which a `with` block or `close` ends. See `broker.client`."""
    loop = LoopThread(lambda: async_connect(*args, **kwargs))
    return Client(loop.client, loop)
