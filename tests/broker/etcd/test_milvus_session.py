"""Sessions as Milvus's Go clients read them: keys, values, leases, and who may replace whom."""

import base64
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.etcd.members import Members
from broker.etcd.milvus_session import (
    MIXCOORD,
    STREAMINGNODE,
    AnnouncedSession,
    MilvusSession,
    SessionTaken,
)
from broker.etcd.place import etcd_place
from tests.local_etcd import EtcdServer

CLUSTER = "0d2a"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
async def members(etcd: EtcdServer) -> AsyncIterator[Members]:
    made = Members(etcd_place(f"etcd://{etcd.address}/tidemark"), None, str)
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"by-dev-{tmp_path.name}"


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def found(etcd: EtcdServer, prefix: str) -> dict[str, Any]:
    """Keys and values below a prefix, read as etcd's gateway gives them."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    kvs = etcd.post("kv/range", {"key": text(prefix), "range_end": text(end)}).get("kvs", [])
    return {
        base64.b64decode(it["key"]).decode(): json.loads(base64.b64decode(it["value"]))
        for it in kvs
    }


def leader(term: int, address: str = "10.0.0.1:19531") -> MilvusSession:
    return MilvusSession(MIXCOORD, 0, address, exclusive=True, term=term)


async def test_keys_and_values_are_those_that_milvus_reads(
    etcd: EtcdServer, members: Members, root: str
) -> None:
    node = MilvusSession(STREAMINGNODE, 7, "10.0.0.2:19532")
    async with (
        AnnouncedSession(members, leader(3), root, CLUSTER) as first,
        AnnouncedSession(members, node, root, CLUSTER) as second,
    ):
        # Golden: fields and keys of `internal/util/sessionutil` of Milvus 2.6.
        common = {
            "Stopping": False,
            "TriggerKill": False,
            "Version": "2.6.6",
            "IndexEngineVersion": {},
            "ScalarIndexEngineVersion": {},
            "HostName": socket.gethostname(),
        }
        assert found(etcd, f"{root}/meta/session/") == {
            f"{root}/meta/session/mixcoord": common | {
                "ServerID": 0, "ServerName": "mixcoord", "Address": "10.0.0.1:19531",
                "Exclusive": True, "LeaseID": first._lease,
                "ServerLabels": {"tidemark-cluster": CLUSTER, "tidemark-term": "3"},
            },
            f"{root}/meta/session/streamingnode-7": common | {
                "ServerID": 7, "ServerName": "streamingnode", "Address": "10.0.0.2:19532",
                "Exclusive": False, "LeaseID": second._lease,
                "ServerLabels": {"tidemark-cluster": CLUSTER, "tidemark-term": "0"},
            },
            f"{root}/meta/session/id": 8,
        }  # fmt: skip
    assert [*found(etcd, f"{root}/meta/session/")] == [f"{root}/meta/session/id"]


async def test_the_key_goes_with_the_lease_that_its_value_names(
    etcd: EtcdServer, members: Members, root: str
) -> None:
    async with AnnouncedSession(members, leader(1), root, CLUSTER) as session:
        (value,) = found(etcd, f"{root}/meta/session/mixcoord").values()
        etcd.post("lease/revoke", {"ID": str(value["LeaseID"])})
        assert found(etcd, f"{root}/meta/session/mixcoord") == {}
        await session.renew()
        (again,) = found(etcd, f"{root}/meta/session/mixcoord").values()
        assert again["LeaseID"] != value["LeaseID"]
        await session.renew()
        assert found(etcd, f"{root}/meta/session/mixcoord") == {
            f"{root}/meta/session/mixcoord": again
        }


async def test_a_newer_leader_replaces_an_older_one_and_is_not_replaced_by_it(
    etcd: EtcdServer, members: Members, root: str
) -> None:
    def address() -> str:
        (value,) = found(etcd, f"{root}/meta/session/mixcoord").values()
        return str(value["Address"])

    old = AnnouncedSession(members, leader(1, "a:1"), root, CLUSTER)
    await old.renew()
    async with AnnouncedSession(members, leader(2, "b:1"), root, CLUSTER):
        assert address() == "b:1"
        await old.renew()
        assert address() == "b:1", "its own lease is all that the older one renews"
        etcd.post("lease/revoke", {"ID": str(old._lease)})
        with pytest.raises(SessionTaken, match="is of a newer process at b:1"):
            await old.renew()
        await old.end()
        assert address() == "b:1"


@pytest.mark.parametrize(
    ("value", "whose"),
    [
        ('{"ServerID":4,"Address":"c:1","Version":"2.6.6"}', "of a Milvus at c:1"),
        ('{"Address":"c:1","ServerLabels":{"tidemark-cluster":"ff"}}', "of cluster ff at c:1"),
        ('{"Address":"c:1","ServerLabels":null}', "of a Milvus at c:1"),
        ("[]", "of a Milvus at an unknown address"),
        ("no JSON", "of a Milvus at an unknown address"),
    ],
)
async def test_the_session_of_another_cluster_is_left_alone_until_it_is_gone(
    etcd: EtcdServer, members: Members, root: str, value: str, whose: str
) -> None:
    key = f"{root}/meta/session/mixcoord"
    etcd.post("kv/put", {"key": text(key), "value": text(value)})
    session = AnnouncedSession(members, leader(9), root, CLUSTER)
    with pytest.raises(SessionTaken, match=f"{key} in etcd is {whose}: set milvus_root"):
        await session.renew()
    lease = session._lease
    with pytest.raises(SessionTaken):
        await session.renew()
    assert session._lease == lease, "no new lease for each attempt"
    etcd.post("kv/deleterange", {"key": text(key)})
    await session.renew()
    assert found(etcd, key)[key]["Address"] == "10.0.0.1:19531"
    await session.end()


@pytest.mark.parametrize(("before", "after"), [(None, 6), ("1", 6), ("5", 6), ("6", 6), ("40", 40)])
async def test_ids_that_milvus_gives_out_are_above_ours(
    etcd: EtcdServer, members: Members, root: str, before: str | None, after: int
) -> None:
    key = f"{root}/meta/session/id"
    if before is not None:
        etcd.post("kv/put", {"key": text(key), "value": text(before)})
    node = MilvusSession(STREAMINGNODE, 5, "a:1")
    async with AnnouncedSession(members, node, root, CLUSTER):
        assert found(etcd, key) == {key: after}


async def test_a_counter_that_is_no_number_is_left_alone(
    etcd: EtcdServer, members: Members, root: str
) -> None:
    key = f"{root}/meta/session/id"
    etcd.post("kv/put", {"key": text(key), "value": text('"x"')})
    async with AnnouncedSession(members, leader(1), root, CLUSTER):
        assert found(etcd, key) == {key: "x"}


@pytest.mark.parametrize("sessions", [(0, 0), (5, 6)])
async def test_a_node_that_was_paused_does_not_take_the_key_of_the_one_in_its_place_for_good(
    etcd: EtcdServer, members: Members, root: str, sessions: tuple[int, int]
) -> None:
    """Without sessions, as in an earlier release, until it stops; with them not at all."""
    key = f"{root}/meta/session/streamingnode-7"
    before, after = [
        MilvusSession(STREAMINGNODE, 7, f"{host}:1", term=session)
        for host, session in zip("ab", sessions, strict=True)
    ]
    paused = AnnouncedSession(members, before, root, CLUSTER)
    await paused.renew()
    async with AnnouncedSession(members, after, root, CLUSTER) as session:
        etcd.post("lease/revoke", {"ID": str(paused._lease)})  # it ran out
        assert found(etcd, key)[key]["Address"] == "b:1"
        if sessions[0]:
            with pytest.raises(SessionTaken):
                await paused.renew()
            assert found(etcd, key)[key]["Address"] == "b:1"
        else:
            await paused.renew()
        await session.renew()
        await paused.end()
        await session.renew()
        assert found(etcd, key)[key]["Address"] == "b:1"
