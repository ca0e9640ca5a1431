"""Every call of every service has a permission, and none stands for a call that is not there."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from actors import SupervisorSpec, System
from broker.app.actor_lookup import MEMBERSHIP, ActorLookup
from broker.core.security.access_book import (
    BUILT_IN,
    AccessBook,
    AccessDecision,
    Origin,
    Principal,
    User,
)
from broker.core.security.grants import Action, Resource, ResourceKind
from broker.edge.milvus.state_service import ServerState
from broker.edge.roles import Role, RoleParts, coordinator, node, single_process
from broker.edge.rpc.access.collection_names import CollectionNames
from broker.edge.rpc.access.needs import Who
from broker.edge.rpc.access.permissions import PERMISSIONS
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.health_service import HealthService
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.request_metadata import Identity
from broker.edge.tidemark.admin_service import ServerFacts
from broker.edge.tidemark.cluster_service import ClusterProxies
from broker.edge.tidemark.process_view import ProcessView
from broker.model.channel import ChannelOffsets
from broker.model.ids import NodeId, PChannelName
from broker.ports.row_schemas import NoRowSchemas
from schemas.generated.tidemark import v1

PROTOS = Path(__file__).parents[5] / "schemas" / "proto"
SERVICE = re.compile(r"^service (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
RPC = re.compile(r"^\s*rpc (\w+)\(", re.MULTILINE)
COMMENT = re.compile(r"//.*")
OF_OTHERS = {"etcdserverpb"}
"""Served by an etcd cluster."""


def declared() -> Iterator[str]:
    """The path of each call that the protocol files declare, but those that we only make."""
    for file in PROTOS.rglob("*.proto"):
        text = COMMENT.sub("", file.read_text())
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
        for service in SERVICE.finditer(text):
            assert package is not None, file
            if package[1] in OF_OTHERS:
                continue
            for call in RPC.findall(service[2]):
                yield f"/{package[1]}.{service[1]}/{call}"


async def _nothing() -> Mapping[PChannelName, ChannelOffsets]:
    return {}


def role(name: str) -> Role:
    """The services of a process of this role, whose actors do not run."""
    proxy = ActorLookup().proxy
    if name == "node":
        return node(lambda: "127.0.0.1:1", proxy(MEMBERSHIP))
    if name == "coordinator":
        one = proxy(MEMBERSHIP)
        return coordinator(ClusterProxies(one, one, one, one, address="127.0.0.1:1"), _nothing)
    return single_process


@pytest.mark.parametrize("name", ["single", "node", "coordinator"])
async def test_every_call_that_a_process_serves_has_a_permission(name: str) -> None:
    middleware = Middleware(Identity("by-dev", NodeId(1)), EdgeLimits())
    facts = ServerFacts("0.0.0", NodeId(1), "by-dev", "rocksmq", "memory", 1, 1)
    view = ProcessView(System(SupervisorSpec("root", children=())))
    parts = RoleParts(facts, ActorLookup().proxies, lambda: ServerState.HEALTHY, view)
    services = role(name)(middleware, parts)
    served = {path for service in services for path in service.__mapping__()}
    health = HealthService(middleware, served, tuple).__mapping__()
    assert {*served, *health} - PERMISSIONS.keys() == set()


def test_permissions_stand_for_exactly_the_calls_of_the_protocols() -> None:
    assert set(declared()) == PERMISSIONS.keys()


def test_only_probes_need_no_proof() -> None:
    open_calls = {path for path, it in PERMISSIONS.items() if it.who is Who.ANYBODY}
    assert open_calls == {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"}


def test_a_call_by_grants_asks_for_something_and_others_leave_it_to_the_service() -> None:
    for path, it in PERMISSIONS.items():
        assert bool(it.needs) == (it.who is Who.GRANTED), path
        assert not it.inside or it.who is Who.SIGNED_IN, path
        for need in (*it.needs, *it.inside):
            assert need.actions, path
            assert need.kinds, path


NAMES = CollectionNames(NoRowSchemas(), "by-dev")


async def asked(path: str, request: object) -> list[tuple[frozenset[Action], Resource]]:
    """What the request must be allowed: the actions, one of which is needed, on which thing."""
    return [
        (need.actions, resource)
        for need in PERMISSIONS[f"/tidemark.v1.{path}"].needs
        for resource in await need.find(request, NAMES)
    ]


def may(role_name: str, found: list[tuple[frozenset[Action], Resource]]) -> bool:
    """Whether a user of a role that is built in may make the request."""
    assert role_name in BUILT_IN
    book = AccessBook({"ann": User("ann", (role_name,))})
    ann = Principal("ann", Origin.OTHER)
    return all(book.decide(ann, actions, [it]) is AccessDecision.ALLOWED for actions, it in found)


V0 = "by-dev-rootcoord-dml_0_1v0"


@pytest.mark.parametrize(
    ("path", "request_", "things"),
    [
        ("Collections/Drop", v1.DropCollectionRequest(name="a"), ["collection a"]),
        ("Collections/Get", v1.GetCollectionRequest(name="a", database="d"), ["collection d/a"]),
        (
            "Collections/Get",
            v1.GetCollectionRequest(name="a", database="default"),
            ["collection a"],
        ),
        ("Master/HasCollection", v1.HasCollectionRequest(collection_name="a"), ["collection a"]),
        (
            "Master/CreateAlias",
            v1.CreateAliasRequest(collection_name="a", alias="b", db_name="d"),
            ["collection d/a", "collection d/b"],
        ),
        ("Master/ShowAliases", v1.ShowAliasesRequest(), []),
        ("Master/ShowAliases", v1.ShowAliasesRequest(collection_name="a"), ["collection a"]),
        (
            "Master/DescribeCollection",
            v1.DescribeCollectionRequest(collection_id=7),
            ["collection #7"],
        ),
        (
            "Master/DescribeCollection",
            v1.DescribeCollectionRequest(collection_id=7, collection_name="a"),
            ["collection a"],
        ),
        ("Master/DescribeCollection", v1.DescribeCollectionRequest(), ["collection "]),
        (
            "Groups/Create",
            v1.CreateGroupRequest(vchannel=V0, group="g", limit=v1.DeliveryLimit(vchannel="p_2v0")),
            ["group g", f"channel {V0}", "channel p_2v0"],
        ),
        (
            "Groups/Create",
            v1.CreateGroupRequest(vchannel=V0, group="g"),
            ["group g", f"channel {V0}"],
        ),
        (
            "TimeSync/MoveCursor",
            v1.MoveCursorRequest(name="c", channels=[V0, "by-dev-rootcoord-dml_0"]),
            ["cursor c", f"channel {V0}"],
        ),
        (
            "TimeSync/OpenCursor",
            v1.OpenCursorRequest(name="c", positions=[v1.CursorPosition(channel=V0)]),
            ["cursor c", f"channel {V0}"],
        ),
        (
            "TimeSync/HoldBroadcasts",
            v1.HoldBroadcastsRequest(channels=[V0], exclusive=True),
            [f"channel {V0}", "cluster by-dev"],
        ),
        (
            "Commits/Commit",
            v1.CommitBatchRequest(txns=[v1.StagedTxn(vchannel=V0)]),
            [f"channel {V0}"],
        ),
        (
            "Log/Measure",
            v1.MeasureRequest(channels=[V0], together=["p_2v0"]),
            [f"channel {V0}", "channel p_2v0"],
        ),
        ("Admin/Streaming", v1.StreamingRequest(), ["cluster by-dev"]),
        ("Admin/Streaming", v1.StreamingRequest(at_least=1), ["cluster by-dev", "cluster by-dev"]),
        (
            "Master/AssignSegmentID",
            v1.AssignSegmentIdRequest(requests=[v1.SegIdRequest(collection_name="a")]),
            ["collection a"],
        ),
    ],
)
async def test_the_table_of_what_a_request_names(
    path: str, request_: object, things: list[str]
) -> None:
    assert [f"{it.kind} {it.name}" for _, it in await asked(path, request_)] == things


@pytest.mark.parametrize(
    ("path", "request_", "roles"),
    [
        ("Collections/Create", v1.CreateCollectionRequest(name="a"), {"admin"}),
        ("Collections/Get", v1.GetCollectionRequest(name="a"), {*BUILT_IN}),
        ("TimeSync/GetCursor", v1.GetCursorRequest(name="c"), {"admin", "observer", "reader"}),
        ("TimeSync/DropCursor", v1.DropCursorRequest(name="c"), {"admin", "reader"}),
        ("Admin/Health", v1.HealthRequest(), {"admin", "observer"}),
        ("Admin/Kill", v1.KillRequest(), {"admin"}),
        ("SysConfig/Set", v1.SetConfigRequest(), {"admin"}),
        ("Auth/Show", v1.ShowAccessRequest(), {"admin"}),
    ],
)
async def test_the_table_of_what_the_built_in_roles_may(
    path: str, request_: object, roles: set[str]
) -> None:
    found = await asked(path, request_)
    assert {name for name in BUILT_IN if may(name, found)} == roles


async def test_a_name_may_stand_for_a_collection_or_a_channel() -> None:
    find = v1.FindRequest(name="a")
    assert [it for _, it in await asked("Collections/Find", find)] == [
        Resource(ResourceKind.CHANNEL, "a", "a")
    ]
