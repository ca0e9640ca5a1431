"""The audit's table of all methods: kind and action of each.

A server with a method that is not here does not start, and a test fails: a new method is recorded,
or somebody has decided that it is not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.core.audit.audit_record import AuditKind


@dataclass(frozen=True, slots=True)
class Audited:
    """What a method is to the audit. `action`: what it does, in one word."""

    kind: AuditKind
    action: str


def _admin(action: str, *methods: str) -> dict[str, Audited]:
    return dict.fromkeys(methods, Audited(AuditKind.ADMIN, action))


def _data(action: str, *methods: str) -> dict[str, Audited]:
    return dict.fromkeys(methods, Audited(AuditKind.DATA, action))


def _observe(*methods: str) -> dict[str, Audited]:
    return dict.fromkeys(methods, Audited(AuditKind.OBSERVE, "observe"))


def _internal(action: str, *methods: str) -> dict[str, Audited]:
    return dict.fromkeys(methods, Audited(AuditKind.INTERNAL, action))


_SERVICES: Final[Mapping[str, Mapping[str, Audited]]] = {
    "milvus.proto.streaming.StreamingCoordAssignmentService": {
        **_observe("AssignmentDiscover"),
        **_admin("balance", "UpdateWALBalancePolicy"),
        **_admin("cluster", "UpdateReplicateConfiguration"),
    },
    "milvus.proto.streaming.StreamingCoordBroadcastService": {
        **_admin("broadcast", "Broadcast"),
        **_data("ack", "Ack"),
    },
    "milvus.proto.streaming.StreamingNodeHandlerService": {
        **_data("produce", "Produce"),
        **_data("consume", "Consume"),
        **_observe("GetReplicateCheckpoint"),
    },
    "milvus.proto.streaming.StreamingNodeManagerService": {
        # Not internal, though nodes are rarely asked by others: they open and close channels.
        **_admin("cluster", "Assign", "Remove"),
        **_internal("cluster", "CollectStatus"),
    },
    "milvus.proto.streaming.StreamingNodeStateService": _observe("GetComponentStates"),
    "grpc.health.v1.Health": _observe("Check", "Watch"),
    "tidemark.v1.Log": {
        **_data("produce", "Append"),
        **_data("consume", "Read"),
        **_observe("Describe", "Seek", "Advance", "Measure", "Mvcc", "HasVChannel"),
    },
    "tidemark.v1.Groups": {
        **_admin("group", "Create", "Alter", "Seek", "Drop"),
        **_data("consume", "Join"),
        **_observe("List"),
    },
    "tidemark.v1.Wal": {**_admin("settings", "Alter", "Abort"), **_observe("Status")},
    "tidemark.v1.Space": _admin("purge", "Purge"),
    "tidemark.v1.Collections": {
        **_admin("ddl", "Create", "Drop", "AddColumns", "Alter"),
        **_observe("Get", "List", "Find"),
    },
    "tidemark.v1.Commits": {**_data("txn", "Commit", "Abort"), **_observe("List")},
    "tidemark.v1.Broadcasts": {
        **_admin("broadcast", "Retry", "Skip"),
        **_observe("List", "Locks", "WaitForKey"),
    },
    "tidemark.v1.TimeSync": {
        **_data("consume", "OpenCursor", "CommitCursor"),
        **_admin("cursor", "MoveCursor", "ResetCursor", "DropCursor"),
        **_admin("broadcast", "HoldBroadcasts", "ReleaseBroadcasts"),
        **_internal("time", "JoinBarrier", "ReportTick", "LeaveBarrier", "WatchBarrier", "Cut"),
        **_observe("GetCursor", "ListCursors", "ListBarriers"),
    },
    "tidemark.v1.SysConfig": {
        **_admin("settings", "Set"),
        **_observe("Request", "Get", "GetByPrefix", "Settings"),
    },
    "tidemark.v1.Admin": {
        **_admin("chaos", "Kill"),
        **_admin("settings", "PauseConsumption", "Streaming"),
        **_observe("Health", "Actors", "Channels", "Traffic"),
    },
    "tidemark.v1.Auth": {
        **_admin("access", "SetRole", "DropRole", "SetUser", "DropUser"),
        **_admin("access", "AddToken", "RevokeToken"),
        **_observe("WhoAmI", "Show"),
    },
    "tidemark.v1.Cluster": {
        **_admin("cluster", "Register", "Leave"),
        **_internal(
            "cluster", "Renew", "ReserveTicks", "ReportChannels", "FindHolds", "AllowRemovals"
        ),
    },
    "tidemark.v1.Copies": _internal("cluster", "Append", "OrderSegments"),
    "tidemark.v1.NodeSettings": _internal("cluster", "Refresh"),
    "tidemark.v1.Master": {
        **_admin("ddl", "CreateCollection", "AlterCollection", "DropCollection"),
        **_admin("ddl", "CreatePartition", "DropPartition", "CreateIndex", "DropIndex"),
        **_admin("ddl", "CreateAlias", "DropAlias", "CreateDatabase", "DropDatabase"),
        **_admin("ddl", "ClearClashes", "SealCollection"),
        **_admin("members", "AddTenant", "DeleteTenant", "AddProxy", "DeleteProxy"),
        **_admin("time", "SetTimeTicks", "CloseTimeTicks"),
        **_internal("time", "ReportTimeTick", "AllocTimestamp"),
        **_internal("segments", "AllocID", "AssignSegmentID"),
        **_internal("segments", "ReportQueryNode", "ReportBinlogs", "AcknowledgeFlushes"),
        **_observe("HasCollection", "DescribeCollection", "ShowCollections"),
        **_observe("HasPartition", "ShowPartitions", "CountPartitions", "DescribeIndex"),
        **_observe("ShowAliases", "ListDatabases", "ListTenants", "ListProxies", "ListClashes"),
        **_observe("ShowSegments", "DescribeSegment", "GetSegmentStates", "ListFlushes"),
        **_observe("GetDdChannel", "DescribeTimeTicks", "GetComponentStates"),
    },
}

METHODS: Final[Mapping[str, Audited]] = {
    f"/{service}/{method}": audited
    for service, methods in _SERVICES.items()
    for method, audited in methods.items()
}


class UnauditedMethod(LookupError):
    """A server has a method of which the audit does not know what it is."""


def check_audited(paths: Iterable[str]) -> None:
    """Raises UnauditedMethod for paths that `METHODS` does not have."""
    missing = sorted(path for path in paths if path not in METHODS)
    if missing:
        raise UnauditedMethod(
            f"the audit does not know {', '.join(missing)}; add them to METHODS in"
            " broker/edge/rpc/audit/audited_methods.py with their kind"
        )
