"""What of a request gets into the audit: names, cut where they are long, and nothing else."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, cast

import betterproto2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.edge.rpc.audit.named_objects import FIELDS, NAME_LENGTH_MAX, NAME_OF, named_in
from schemas.generated.milvus.proto import messages
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.tidemark import v1
from schemas.handshake import CREATE_CONSUMER, CREATE_PRODUCER, CreateHeader
from schemas.properties.broadcast_header import BroadcastHeader, write_broadcast_header
from schemas.properties.keys import BROADCAST
from tests.create_headers import create_header

SECRET = "planted-secret"
SECRETS: dict[str, object] = {
    "str": SECRET,
    "bytes": SECRET.encode(),
    "list[str]": [SECRET],
    "list[bytes]": [SECRET.encode()],
    "dict[str, str]": {SECRET: SECRET},
}
"""By the type of a field."""
METHOD = "/tidemark.v1.Master/CreateIndex"


def test_names_are_found_by_their_fields() -> None:
    request = v1.CreateIndexRequest(
        db_name="shop", collection_name="orders", field_name="vector", index_name="ivf"
    )
    assert named_in(METHOD, request, {}) == {
        "database": "shop", "collection": "orders", "field": "vector", "index": "ivf",
    }  # fmt: skip


@pytest.mark.parametrize(("service", "kind"), NAME_OF.items())
def test_the_name_of_a_request_is_called_by_what_its_service_is_for(
    service: str, kind: str
) -> None:
    request = v1.DropCursorRequest(name="it")
    assert named_in(f"{service}Drop", request, {}) == {kind: "it"}


@pytest.mark.parametrize(
    ("call", "request_", "named"),
    [
        (
            "Auth/SetRole",
            v1.SetRoleRequest(name="ops", grants=["admin:cluster:*"], replaces=True),
            {"role": "ops", "grants": ["admin:cluster:*"], "replaces": True},
        ),
        ("Auth/DropRole", v1.DropRoleRequest(name="ops"), {"role": "ops"}),
        (
            "Auth/SetUser",
            v1.SetUserRequest(name="ann", roles=["admin"]),
            {"user": "ann", "roles": ["admin"]},
        ),
        ("Auth/DropUser", v1.DropUserRequest(name="ann"), {"user": "ann"}),
        (
            "Auth/AddToken",
            v1.AddTokenRequest(user="ann", ttl_ms=1000, note=SECRET),
            {"user": "ann", "ttl_ms": 1000},
        ),
        ("Auth/RevokeToken", v1.RevokeTokenRequest(id="t1"), {"id": "t1"}),
        ("Wal/Alter", v1.AlterWalRequest(target="kafka://a/p"), {"target": "kafka://a/p"}),
    ],
)
def test_a_change_of_access_says_whom_and_what_it_gives(
    call: str, request_: object, named: dict[str, object]
) -> None:
    assert named_in(f"/tidemark.v1.{call}", request_, {}) == named


def test_the_channel_of_a_stream_is_in_its_header_and_its_vchannels_in_its_first_request() -> None:
    header = create_header(CreateHeader("by-dev-rootcoord-dml_0", 3))
    opening = v1.ReadOpen(vchannels=[f"v{it}" for it in range(20)])
    found = named_in("/tidemark.v1.Log/Read", opening, {CREATE_CONSUMER: header})
    assert found == {
        "pchannel": "by-dev-rootcoord-dml_0",
        "vchannels": [f"v{it}" for it in range(8)],
        "vchannels_count": 20,
    }
    assert named_in("", None, {CREATE_PRODUCER: header}) == {"pchannel": "by-dev-rootcoord-dml_0"}


@pytest.mark.parametrize("header", ["", "no base64 !", "AAAA", b"\xff"])
def test_a_header_that_cannot_be_read_names_nothing(header: str | bytes) -> None:
    assert named_in("", None, {CREATE_PRODUCER: header}) == {}


def test_a_broadcast_is_named_by_its_vchannels() -> None:
    text = write_broadcast_header(BroadcastHeader(1, ("v0", "v1"), (), False))
    message = messages.Message(payload=SECRET.encode(), properties={BROADCAST.key: text})
    assert named_in("", wire.BroadcastRequest(message=message), {}) == {"vchannels": ["v0", "v1"]}
    for bad in (None, messages.Message(), messages.Message(properties={BROADCAST.key: "!"})):
        assert named_in("", wire.BroadcastRequest(message=bad), {}) == {}


def test_of_a_change_of_settings_the_names_are_recorded_and_no_value() -> None:
    change = v1.ConfigChange(key="app/database_url", value=f"postgres://u:{SECRET}@h/d")
    found = named_in("", v1.SetConfigRequest(changes=[change]), {})
    assert found == {"settings": ["app/database_url"]}


def test_frozen_nodes_and_the_channel_of_an_assignment_are_named() -> None:
    nodes = wire.WalBalancePolicyNodes(freeze_node_ids=[1, 2], defreeze_node_ids=[3])
    request = wire.UpdateWalBalancePolicyRequest(nodes=nodes)
    assert named_in("", request, {}) == {"freeze": ["1", "2"], "defreeze": ["3"]}
    assert named_in("", wire.UpdateWalBalancePolicyRequest(), {}) == {}
    assign = wire.StreamingNodeManagerAssignRequest(pchannel=wire.PChannelInfo("p", 4))
    assert named_in("", assign, {}) == {"pchannel": "p"}


def test_a_long_name_is_cut() -> None:
    found = named_in("", v1.DropGroupRequest(vchannel="v" * 5000, group="g"), {})
    assert found == {"vchannel": f"{'v' * NAME_LENGTH_MAX}...", "group": "g"}


def requests() -> Iterator[type[betterproto2.Message]]:
    for module in (v1, wire, messages):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, betterproto2.Message):
                yield each


def planted(kind: type[betterproto2.Message]) -> Any:
    """A message whose texts and bytes are the secret, but for the fields that are names."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cast(Any, kind)):
        form = str(field.type)
        if field.name in FIELDS or field.name == "name":
            continue
        if form in SECRETS:
            values[field.name] = SECRETS[form]
    return kind(**values)


def test_no_field_of_any_message_gets_in_that_is_not_on_the_list_of_names() -> None:
    kinds = list(requests())
    assert len(kinds) > 200
    for kind in kinds:
        for service in NAME_OF:
            found = named_in(f"{service}Do", planted(kind), {"authorization": f"Bearer {SECRET}"})
            assert SECRET not in json.dumps(found), kind


def test_the_list_of_names_has_no_field_for_what_messages_carry() -> None:
    carried = {"payload", "value", "key", "keys", "properties", "params", "token", "password"}
    assert not carried & FIELDS.keys()


@given(st.text(max_size=600), st.lists(st.text(), max_size=20), st.integers())
def test_any_names_become_json(name: str, names: list[str], number: int) -> None:
    kill = named_in("", v1.KillRequest(path=name, term=number % 2**31), {})
    cut = named_in("", v1.CutRequest(channels=names), {})
    assert json.loads(json.dumps({**kill, **cut})) == {**kill, **cut}
