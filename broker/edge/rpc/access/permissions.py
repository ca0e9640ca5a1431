"""Which permission each call needs: one line for each RPC of each service.

A call without a line here is refused while access is controlled, and a test fails for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from broker.core.security.grants import Action, ResourceKind
from broker.edge.rpc.access.collection_names import qualified
from broker.edge.rpc.access.needs import (
    ANYBODY,
    PROCESS,
    SIGNED_IN,
    Permission,
    Requirement,
    granted,
    inside,
    listed,
    on_channels,
    on_cluster,
    on_collection,
    on_collection_id,
    on_cursor,
    on_group,
    on_target,
)

PRODUCE, CONSUME, GROUP, DDL = Action.PRODUCE, Action.CONSUME, Action.GROUP, Action.DDL
BROADCAST, TXN, ADMIN, OBSERVE = Action.BROADCAST, Action.TXN, Action.ADMIN, Action.OBSERVE
OBSERVED: Final = granted(on_cluster(OBSERVE))
ADMINISTERED: Final = granted(on_cluster(ADMIN))
WRITTEN: Final = granted(on_cluster(PRODUCE))
"""Reports of the processes of a database that writes through this broker."""
BARRIER: Final = granted(on_cluster(GROUP))


def _named(request: Any) -> Iterable[str]:
    return (qualified(request.database, request.name),)


def _in_master(request: Any) -> Iterable[str]:
    return (qualified(request.db_name, request.collection_name),)


def _described(request: Any) -> Iterable[str]:
    return _in_master(request) if request.collection_name or not request.collection_id else ()


def _alias(request: Any) -> Iterable[str]:
    return (qualified(request.db_name, request.alias),)


def _aliased(request: Any) -> Iterable[str]:
    return _in_master(request) if request.collection_name else ()


def _vchannel(request: Any) -> Iterable[str]:
    return (request.vchannel,)


def _channel(request: Any) -> Iterable[str]:
    return (request.channel,)


def _channels(request: Any) -> Iterable[str]:
    return tuple(request.channels)


def _measured(request: Any) -> Iterable[str]:
    return (*request.channels, *request.together)


def _positions(request: Any) -> Iterable[str]:
    return [it.channel for it in request.positions]


def _dead(request: Any) -> Iterable[str]:
    limit = request.limit
    return (limit.vchannel,) if limit is not None and limit.vchannel else ()


def _staged(request: Any) -> Iterable[str]:
    return [it.vchannel for it in request.txns]


def _rows(request: Any) -> Iterable[str]:
    return [qualified(it.db_name, it.collection_name) for it in request.requests]


_DEFINED: Final = granted(on_collection(DDL, _in_master))
_SEEN: Final = granted(on_collection(None, _in_master))
_CHANGED: Final = granted(on_collection(DDL, _named))
_USE_CURSOR: Final = on_cursor(CONSUME)
_ITS_CHANNEL: Final = on_channels(None, _vchannel, "its vchannel")
_ITS_MESSAGES: Final = on_channels(CONSUME, _vchannel, "its vchannel")
_ITS_VCHANNELS: Final = on_channels(None, lambda it: tuple(it.vchannels), "its vchannels")
_DEAD_LETTERS: Final = replace(
    on_channels(PRODUCE, _dead, "where dead letters go, if they go anywhere"), at_times=True
)
_ENDS_BATCH: Final = granted(
    on_channels(TXN, _staged, "the vchannels of its batch"),
    # Its number is used up all the same.
    on_cluster(TXN, lambda it: not it.txns, "a batch of nothing"),
)


def _stream(action: Action, of: str, *, at_times: bool = False) -> Requirement:
    """What a service asks for itself, for the page."""
    return replace(on_channels(action, lambda _: (), of), at_times=at_times)


def _service(name: str, **calls: Permission) -> Mapping[str, Permission]:
    return {f"/{name}/{call}": permission for call, permission in calls.items()}


PERMISSIONS: Final[Mapping[str, Permission]] = MappingProxyType(
    {
        **_service("grpc.health.v1.Health", Check=ANYBODY, Watch=ANYBODY),
        **_service(
            "tidemark.v1.Admin",
            Health=OBSERVED,
            Actors=OBSERVED,
            Channels=OBSERVED,
            Kill=granted(on_cluster(Action.CHAOS)),
            PauseConsumption=ADMINISTERED,
            Streaming=granted(
                on_cluster(OBSERVE), on_cluster(ADMIN, lambda it: it.at_least > 0, "a new version")
            ),
            Traffic=OBSERVED,
        ),
        **_service(
            "tidemark.v1.Auth",
            WhoAmI=SIGNED_IN,
            Show=ADMINISTERED,
            SetRole=ADMINISTERED,
            DropRole=ADMINISTERED,
            SetUser=ADMINISTERED,
            DropUser=ADMINISTERED,
            AddToken=ADMINISTERED,
            RevokeToken=ADMINISTERED,
        ),
        **_service(
            "tidemark.v1.Broadcasts",
            List=OBSERVED,
            Locks=OBSERVED,
            Retry=ADMINISTERED,
            Skip=ADMINISTERED,
            WaitForKey=granted(on_cluster(BROADCAST)),
        ),
        **_service(
            "tidemark.v1.Cluster",
            Register=PROCESS,
            Renew=PROCESS,
            Leave=PROCESS,
            ReserveTicks=PROCESS,
            ReportChannels=PROCESS,
            FindHolds=PROCESS,
            AllowRemovals=PROCESS,
        ),
        **_service(
            "tidemark.v1.Collections",
            Create=_CHANGED,
            Get=granted(on_collection(None, _named)),
            List=listed(ResourceKind.COLLECTION),
            Drop=_CHANGED,
            AddColumns=_CHANGED,
            Alter=_CHANGED,
            Find=granted(on_target(lambda it: (it.name,))),
        ),
        **_service(
            "tidemark.v1.Commits",
            Commit=_ENDS_BATCH,
            Abort=_ENDS_BATCH,
            List=listed(ResourceKind.COLLECTION),
        ),
        **_service("tidemark.v1.Copies", Append=PROCESS, OrderSegments=PROCESS),
        **_service(
            "tidemark.v1.Groups",
            Create=granted(on_group(GROUP), _ITS_MESSAGES, _DEAD_LETTERS),
            Alter=granted(on_group(GROUP), _ITS_MESSAGES, _DEAD_LETTERS),
            Seek=granted(on_group(GROUP), _ITS_MESSAGES),
            Drop=granted(on_group(GROUP), _ITS_MESSAGES),
            List=listed(ResourceKind.GROUP, needs=(_ITS_VCHANNELS,)),
            Join=inside(on_group(GROUP), _stream(CONSUME, of="its vchannel")),
        ),
        **_service(
            "tidemark.v1.Log",
            Append=inside(_stream(PRODUCE, of="the vchannel of each batch")),
            Read=inside(_stream(CONSUME, of="its vchannels, or its pchannel")),
            Describe=granted(on_channels(None, _channels)),
            Seek=granted(on_channels(None, _channel, "its channel")),
            Advance=granted(on_channels(None, _channel, "its channel")),
            Measure=granted(on_channels(None, _measured)),
            Mvcc=granted(_ITS_CHANNEL),
            HasVChannel=granted(_ITS_CHANNEL),
        ),
        **_service(
            "tidemark.v1.Master",
            CreateCollection=_DEFINED,
            AlterCollection=_DEFINED,
            DropCollection=_DEFINED,
            HasCollection=_SEEN,
            DescribeCollection=granted(
                on_collection(None, _described),
                on_collection_id(None, lambda it: 0 if it.collection_name else it.collection_id),
            ),
            ShowCollections=listed(ResourceKind.COLLECTION),
            CreatePartition=_DEFINED,
            DropPartition=_DEFINED,
            HasPartition=_SEEN,
            ShowPartitions=_SEEN,
            CreateIndex=_DEFINED,
            DropIndex=_DEFINED,
            DescribeIndex=_SEEN,
            CreateAlias=granted(
                on_collection(DDL, _in_master), on_collection(DDL, _alias, "its alias")
            ),
            DropAlias=granted(on_collection(DDL, _alias, "its alias")),
            ShowAliases=listed(ResourceKind.COLLECTION, needs=(on_collection(None, _aliased),)),
            CreateDatabase=granted(on_cluster(DDL)),
            DropDatabase=granted(on_cluster(DDL)),
            ListDatabases=listed(ResourceKind.COLLECTION),
            CountPartitions=OBSERVED,
            ListClashes=OBSERVED,
            ClearClashes=ADMINISTERED,
            AllocTimestamp=SIGNED_IN,
            AllocID=SIGNED_IN,
            GetDdChannel=SIGNED_IN,
            GetComponentStates=SIGNED_IN,
            AddTenant=ADMINISTERED,
            DeleteTenant=ADMINISTERED,
            ListTenants=OBSERVED,
            AddProxy=ADMINISTERED,
            DeleteProxy=ADMINISTERED,
            ListProxies=OBSERVED,
            SetTimeTicks=ADMINISTERED,
            CloseTimeTicks=ADMINISTERED,
            DescribeTimeTicks=OBSERVED,
            ReportTimeTick=WRITTEN,
            ShowSegments=granted(on_collection_id(None, lambda it: it.collection_id)),
            DescribeSegment=granted(on_collection_id(None, lambda it: it.collection_id)),
            GetSegmentStates=OBSERVED,
            AssignSegmentID=granted(on_collection(PRODUCE, _rows, "its collections")),
            SealCollection=granted(on_collection_id(DDL, lambda it: it.collection_id)),
            ReportQueryNode=WRITTEN,
            ReportBinlogs=WRITTEN,
            ListFlushes=OBSERVED,
            AcknowledgeFlushes=WRITTEN,
        ),
        **_service("tidemark.v1.NodeSettings", Refresh=PROCESS),
        **_service("tidemark.v1.Space", Purge=granted(on_channels(DDL, _vchannel, "its vchannel"))),
        **_service(
            "tidemark.v1.SysConfig",
            Request=OBSERVED,
            Get=OBSERVED,
            GetByPrefix=OBSERVED,
            Set=ADMINISTERED,
            Settings=OBSERVED,
        ),
        **_service(
            "tidemark.v1.TimeSync",
            Cut=granted(on_channels(None, _channels)),
            HoldBroadcasts=granted(
                on_channels(None, _channels),
                on_cluster(OBSERVE, lambda it: it.exclusive, "all broadcasts"),
            ),
            ReleaseBroadcasts=SIGNED_IN,
            JoinBarrier=BARRIER,
            ReportTick=BARRIER,
            LeaveBarrier=BARRIER,
            WatchBarrier=BARRIER,
            ListBarriers=OBSERVED,
            MoveCursor=granted(_USE_CURSOR, on_channels(None, _channels)),
            OpenCursor=granted(_USE_CURSOR, on_channels(None, _positions)),
            CommitCursor=granted(_USE_CURSOR, on_channels(None, _positions)),
            ResetCursor=granted(_USE_CURSOR, on_channels(None, _positions)),
            GetCursor=granted(on_cursor(CONSUME, OBSERVE)),
            ListCursors=listed(ResourceKind.CURSOR),
            DropCursor=granted(_USE_CURSOR),
        ),
        **_service("tidemark.v1.Wal", Alter=ADMINISTERED, Status=OBSERVED, Abort=ADMINISTERED),
        **_service(
            "milvus.proto.streaming.StreamingCoordAssignmentService",
            AssignmentDiscover=SIGNED_IN,
            UpdateReplicateConfiguration=ADMINISTERED,
            UpdateWALBalancePolicy=ADMINISTERED,
        ),
        **_service(
            "milvus.proto.streaming.StreamingCoordBroadcastService",
            Broadcast=inside(
                _stream(BROADCAST, of="its vchannels"),
                _stream(DDL, of="its vchannels, if it is exclusive there", at_times=True),
                on_cluster(DDL, lambda _: True, "a change of definitions"),
            ),
            Ack=inside(_stream(BROADCAST, of="its vchannel")),
        ),
        **_service(
            "milvus.proto.streaming.StreamingNodeHandlerService",
            Produce=inside(
                _stream(PRODUCE, of="the vchannel of each message"),
                _stream(TXN, of="that of a begin, commit or rollback", at_times=True),
                _stream(DDL, of="that of an exclusive message, or its pchannel", at_times=True),
            ),
            Consume=inside(_stream(CONSUME, of="its vchannel, or its pchannel")),
            GetReplicateCheckpoint=OBSERVED,
        ),
        **_service(
            "milvus.proto.streaming.StreamingNodeManagerService",
            Assign=PROCESS,
            Remove=PROCESS,
            CollectStatus=PROCESS,
        ),
        **_service(
            "milvus.proto.streaming.StreamingNodeStateService", GetComponentStates=SIGNED_IN
        ),
    }
)
