"""Every method of every service has a kind for the audit; a server with another one does not start.

The services are those that the three roles mount, taken from the roles themselves.
"""

import dataclasses
from pathlib import Path
from typing import Any, Never, cast

import pytest
from grpclib.const import Cardinality, Handler

from broker.core.audit.audit_record import AuditKind
from broker.edge.milvus.state_service import ServerState
from broker.edge.roles import Role, RoleParts, Service, coordinator, node, single_process
from broker.edge.rpc.audit.audited_methods import METHODS, UnauditedMethod, check_audited
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.health_service import HealthService
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies, Proxy
from broker.edge.rpc.request_metadata import Identity
from broker.edge.server import EdgeServer
from broker.edge.tidemark.admin_service import ServerFacts
from broker.edge.tidemark.cluster_service import ClusterProxies
from broker.edge.tidemark.process_view import ProcessView
from broker.model.ids import NodeId

FACTS = ServerFacts("0", NodeId(1), "by-dev", "rocksmq", "memory", 1, 1)
ROOT = Path(__file__).resolve().parents[5]


def nobody() -> Never:
    raise AssertionError("nothing is asked here")


def proxies_of(kind: Any) -> Any:
    """An object of proxies that lead nowhere."""
    given = {
        it.name: Proxy(nobody)
        for it in dataclasses.fields(kind)
        if it.default is dataclasses.MISSING and it.default_factory is dataclasses.MISSING
    }
    return kind(**given)


def view() -> ProcessView:
    return ProcessView(cast(Any, None))


def roles() -> dict[str, Role]:
    cluster = dataclasses.replace(proxies_of(ClusterProxies), address="h:1")
    return {
        "single": single_process,
        "node": node(lambda: "h:1", Proxy(nobody)),
        "coordinator": coordinator(cluster, cast(Any, nobody)),
    }


def methods_of(role: Role) -> set[str]:
    middleware = Middleware(Identity("by-dev", NodeId(1)), EdgeLimits())
    parts = RoleParts(FACTS, proxies_of(Proxies), lambda: ServerState.HEALTHY, view())
    services: list[Service] = [
        *role(middleware, parts), HealthService(middleware, (), tuple),
    ]  # fmt: skip
    return {path for service in services for path in service.__mapping__()}


async def all_methods() -> set[str]:
    return set().union(*(methods_of(role) for role in roles().values()))


async def test_every_method_of_every_role_has_a_kind_for_the_audit() -> None:
    found = await all_methods()
    assert len(found) > 100, "the walk has met the services"
    assert sorted(found - METHODS.keys()) == []


async def test_the_table_has_no_method_that_nobody_serves() -> None:
    assert sorted(METHODS.keys() - await all_methods()) == []


def test_what_changes_something_for_others_is_always_recorded() -> None:
    changing = (
        "Create", "Drop", "Delete", "Alter", "Add", "Clear", "Kill", "Purge", "Set", "Reset",
        "Assign", "Remove", "Skip", "Retry", "Broadcast", "Register", "Leave", "Seal", "Pause",
        "Hold", "Release", "Update", "Streaming",
    )  # fmt: skip
    left_out = {
        # Of one reader, or of one peer of a barrier.
        "/tidemark.v1.TimeSync/LeaveBarrier",
        # Reads are asked so, too; and a segment is assigned with each insert of an early master.
        "/tidemark.v1.Log/Seek",
        "/tidemark.v1.Master/AssignSegmentID",
        "/milvus.proto.streaming.StreamingCoordAssignmentService/AssignmentDiscover",
    }
    for path, audited in METHODS.items():
        name = path.rpartition("/")[2]
        only_looks = name in ("Settings", "SetTimeTicks") or path in left_out
        if name.startswith(changing) and not only_looks:
            assert audited.kind is AuditKind.ADMIN, path


async def test_a_server_with_a_method_that_the_audit_does_not_know_does_not_start() -> None:
    class Later:
        def __mapping__(self) -> dict[str, Handler]:
            return {"/later.v1.Later/Do": Handler(nobody, Cardinality.UNARY_UNARY, bytes, bytes)}

    with pytest.raises(UnauditedMethod, match=r"/later\.v1\.Later/Do; add them to METHODS in"):
        EdgeServer(FACTS, proxies_of(Proxies), view(), role=lambda _, __: [Later()])


def test_the_refusal_names_every_method_and_a_file_that_is_there() -> None:
    with pytest.raises(UnauditedMethod) as refused:
        check_audited(["/a/B", "/tidemark.v1.Log/Append", "/c/D"])
    assert "/a/B, /c/D" in str(refused.value)
    named = str(refused.value).split(" in ")[1].split()[0]
    assert (ROOT / named).is_file()
