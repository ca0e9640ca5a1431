"""The services around the streams: node control, state, what does not exist yet, and our own."""

import grpc
import pytest

from broker.model.failure import StreamingCode as Code
from schemas.generated.google import protobuf as google
from schemas.generated.milvus.proto import common, milvus
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.tidemark import v1
from tests.wire.peer import Peer, append, ended
from tests.wire.small_broker import NODE_CONTROL, P0, STATE, V0, SmallBroker

COORD = "/milvus.proto.streaming.StreamingCoord"
REPLICATION = COORD + "AssignmentService/UpdateReplicateConfiguration"
HANDLER = "/milvus.proto.streaming.StreamingNodeHandlerService/"


async def code_of(peer: Peer, path: str, request: object) -> tuple[int, Code]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.call(path, bytes(request))  # type: ignore[call-overload]
    end = ended(caught.value)
    assert end.error is not None
    assert end.error.cause
    return end.code, Code(end.error.code)


def assign(name: str, term: int) -> wire.StreamingNodeManagerAssignRequest:
    return wire.StreamingNodeManagerAssignRequest(pchannel=wire.PChannelInfo(name=name, term=term))


def remove(name: str, term: int) -> wire.StreamingNodeManagerRemoveRequest:
    return wire.StreamingNodeManagerRemoveRequest(pchannel=wire.PChannelInfo(name=name, term=term))


async def status(peer: Peer) -> dict[str, wire.StreamingNodeWalMetrics]:
    answer = await peer.call(NODE_CONTROL + "CollectStatus", b"")
    metrics = wire.StreamingNodeManagerCollectStatusResponse.parse(answer).metrics
    assert metrics is not None
    return {entry.info.name: entry for entry in metrics.wals if entry.info is not None}


async def test_status_names_every_open_channel_with_its_ticks(peer: Peer) -> None:
    found = (await status(peer))[P0]
    assert found.info == wire.PChannelInfo(name=P0, term=2)
    assert found.rw is not None
    assert found.rw.mvcc_time_tick > 0
    assert found.rw.recovery_time_tick > 0


async def test_assigning_what_is_open_or_older_is_ignored(peer: Peer) -> None:
    for term in (1, 2):
        found = await code_of(peer, NODE_CONTROL + "Assign", assign(P0, term))
        assert found == (9, Code.IGNORED_OPERATION)


async def test_removing_at_an_older_term_is_ignored_and_an_unknown_channel_succeeds(
    peer: Peer,
) -> None:
    found = await code_of(peer, NODE_CONTROL + "Remove", remove(P0, 1))
    assert found == (9, Code.IGNORED_OPERATION)
    assert await peer.call(NODE_CONTROL + "Remove", bytes(remove("never-seen_0", 5))) == b""
    again = await code_of(peer, NODE_CONTROL + "Remove", remove("never-seen_0", 5))
    assert again == (9, Code.IGNORED_OPERATION)


@pytest.mark.parametrize("call", ["Assign", "Remove"])
@pytest.mark.parametrize(("name", "term"), [("", 2), (P0, 0), (P0, -3)])
async def test_what_names_no_channel_is_an_invalid_argument(
    peer: Peer, call: str, name: str, term: int
) -> None:
    assert await code_of(peer, NODE_CONTROL + call, assign(name, term)) == (
        3,
        Code.INVALID_ARGUMENT,
    )
    empty = wire.StreamingNodeManagerAssignRequest()
    assert await code_of(peer, NODE_CONTROL + call, empty) == (3, Code.INVALID_ARGUMENT)


async def test_the_state_is_healthy_under_the_role_milvus_expects(peer: Peer) -> None:
    found = milvus.ComponentStates.parse(await peer.call(STATE, b""))
    assert found.state == milvus.ComponentInfo(
        node_id=1, role="streamingnode", state_code=common.StateCode.Healthy
    )


async def test_unary_calls_for_another_server_are_ignored_operations(peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.call(STATE, b"", {"cluster": "other"})
    error = ended(caught.value).error
    assert error is not None
    assert error.code == Code.IGNORED_OPERATION


async def test_what_does_not_exist_yet_says_so(peer: Peer) -> None:
    for path, request, expected in (
        (
            HANDLER + "GetReplicateCheckpoint",
            wire.GetReplicateCheckpointRequest(pchannel=wire.PChannelInfo(name=P0, term=2)),
            (9, Code.REPLICATE_VIOLATION),
        ),
        (
            HANDLER + "GetReplicateCheckpoint",
            wire.GetReplicateCheckpointRequest(pchannel=wire.PChannelInfo(name=P0, term=9)),
            (9, Code.UNMATCHED_CHANNEL_TERM),
        ),
    ):
        assert await code_of(peer, path, request) == expected


def cluster(name: str, *pchannels: str) -> common.MilvusCluster:
    uri = common.ConnectionParam(uri=f"http://{name}:19530")
    return common.MilvusCluster(name, uri, list(pchannels))


ALONE = cluster("by-dev", P0)
COPIED = common.CrossClusterTopology("by-dev", "other")


@pytest.mark.parametrize(
    "present",
    [None, common.ReplicateConfiguration(), common.ReplicateConfiguration([ALONE])],
    ids=["none", "empty", "this cluster alone"],
)
async def test_a_replication_that_is_the_present_one_is_set_without_a_change(
    peer: Peer, present: common.ReplicateConfiguration | None
) -> None:
    asked = bytes(wire.UpdateReplicateConfigurationRequest(present))
    assert await peer.call(REPLICATION, asked) == b""


@pytest.mark.parametrize(
    ("wanted", "cause"),
    [
        (([ALONE, cluster("other", P0)], [COPIED]), "it copies 'by-dev' to 'other'"),
        (([ALONE, cluster("other", P0)], []), "the clusters ['by-dev', 'other']"),
        (([cluster("other", P0)], []), "this one is 'by-dev'"),
        (([cluster("by-dev", P0, "more_1")], []), "its pchannels of 'by-dev'"),
    ],
)
async def test_any_other_replication_is_refused_with_what_is_missing(
    peer: Peer,
    wanted: tuple[list[common.MilvusCluster], list[common.CrossClusterTopology]],
    cause: str,
) -> None:
    asked = wire.UpdateReplicateConfigurationRequest(common.ReplicateConfiguration(*wanted))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.call(REPLICATION, bytes(asked))
    error = ended(caught.value).error
    assert error is not None
    assert error.code == Code.UNRECOVERABLE
    assert "replication between clusters is not built" in error.cause
    assert cause in error.cause


async def test_collections_are_created_found_listed_and_dropped(peer: Peer) -> None:
    service = "/tidemark.v1.Collections/"
    asked = v1.CreateCollectionRequest(name="flights", shards=2)
    created = v1.Collection.parse(await peer.call(service + "Create", bytes(asked)))
    assert (created.name, len(created.vchannels)) == ("flights", 2)
    by_name = v1.GetCollectionRequest(name="flights")
    assert v1.Collection.parse(await peer.call(service + "Get", bytes(by_name))) == created
    listed = v1.ListCollectionsResponse.parse(await peer.call(service + "List", b""))
    assert listed.collections == [created]
    assert await code_of(peer, service + "Create", asked) == (3, Code.INVALID_ARGUMENT)
    assert await peer.call(service + "Drop", bytes(v1.DropCollectionRequest(name="flights"))) == b""
    assert await code_of(peer, service + "Get", by_name) == (9, Code.CHANNEL_NOT_EXIST)


async def test_a_log_is_described_sought_and_cut_by_bytes(peer: Peer) -> None:
    stream = peer.produce()
    await stream.receive()
    await stream.send(*[append(number, b"x" * 100) for number in range(20)])
    for _ in range(20):
        await stream.receive()
    service = "/tidemark.v1.Log/"
    asked = v1.DescribeRequest(channels=[V0, P0])
    described = v1.DescribeResponse.parse(await peer.call(service + "Describe", bytes(asked)))
    by_vchannel, by_pchannel = described.channels
    assert (by_vchannel.channel, by_pchannel.channel) == (V0, P0)
    assert by_vchannel.next_id - by_vchannel.first_id >= 20
    assert by_vchannel.closed_tick > 0
    assert by_vchannel.term == 2
    seek = v1.SeekRequest(channel=V0, time_tick=1)
    sought = v1.SeekResponse.parse(await peer.call(service + "Seek", bytes(seek)))
    assert sought.message_id == by_vchannel.first_id
    advance = v1.AdvanceRequest(
        channel=V0, from_id=by_vchannel.first_id, bytes_max=1, until_id=by_vchannel.next_id
    )
    end = v1.AdvanceResponse.parse(await peer.call(service + "Advance", bytes(advance))).message_id
    assert by_vchannel.first_id < end <= by_vchannel.next_id


@pytest.mark.parametrize(
    ("call", "request_", "code"),
    [
        ("Describe", v1.DescribeRequest(channels=["nobody_0"]), Code.CHANNEL_NOT_EXIST),
        ("Seek", v1.SeekRequest(channel="nobody_0"), Code.CHANNEL_NOT_EXIST),
        ("Seek", v1.SeekRequest(), Code.INVALID_ARGUMENT),
        ("Advance", v1.AdvanceRequest(channel=V0, from_id=3, until_id=2), Code.INVALID_ARGUMENT),
    ],
)
async def test_a_question_about_no_log_is_refused(
    peer: Peer, call: str, request_: object, code: Code
) -> None:
    assert (await code_of(peer, "/tidemark.v1.Log/" + call, request_))[1] is code


async def test_the_admin_sees_health_actors_and_channels(peer: Peer) -> None:
    service = "/tidemark.v1.Admin/"
    health = v1.HealthResponse.parse(await peer.call(service + "Health", b""))
    assert (health.state, health.wal_name, health.cluster) == ("healthy", "rocksmq", "by-dev")
    assert (health.channels_open, health.channels_total) == (1, 1)
    actors = v1.ActorsResponse.parse(await peer.call(service + "Actors", b"")).actors
    paths = [actor.path for actor in actors]
    assert paths == sorted(paths)
    assert any(path.endswith("/appender") for path in paths)
    (channel,) = v1.ChannelsResponse.parse(await peer.call(service + "Channels", b"")).channels
    assert (channel.name, channel.term, channel.state) == (P0, 2, "assigned")
    assert channel.is_control_host
    assert channel.next_id >= channel.first_id > 0


async def test_while_it_stops_the_state_says_so(broker: SmallBroker, peer: Peer) -> None:
    broker.edge._middleware.drain()
    refused = await code_of(peer, NODE_CONTROL + "CollectStatus", b"")
    assert refused == (9, Code.ON_SHUTDOWN)
    found = milvus.ComponentStates.parse(await peer.call(STATE, b""))
    assert found.state is not None


async def policy(peer: Peer, request: wire.UpdateWalBalancePolicyRequest) -> tuple[bool, list[int]]:
    answer = await peer.call(COORD + "AssignmentService/UpdateWALBalancePolicy", bytes(request))
    found = wire.UpdateWalBalancePolicyResponse.parse(answer)
    assert found.config is not None
    return found.config.allow_rebalance, list(found.freeze_node_ids)


async def test_the_balance_policy_changes_where_something_is_given(peer: Peer) -> None:
    request = wire.UpdateWalBalancePolicyRequest
    off = wire.WalBalancePolicyConfig(allow_rebalance=False)
    assert await policy(peer, request()) == (True, [])
    other = google.FieldMask(paths=["config.something"])
    assert await policy(peer, request(config=off, update_mask=other)) == (True, [])
    named = google.FieldMask(paths=["config.allow_rebalance"])
    assert await policy(peer, request(config=off, update_mask=named)) == (False, [])
    assert await policy(peer, request()) == (False, [])
    nodes = wire.WalBalancePolicyNodes(freeze_node_ids=[1, 77])
    assert await policy(peer, request(nodes=nodes)) == (False, [1])
    nodes = wire.WalBalancePolicyNodes(defreeze_node_ids=[1])
    config = wire.WalBalancePolicyConfig(allow_rebalance=True)
    assert await policy(peer, request(config=config, nodes=nodes)) == (True, [])


async def test_a_node_id_that_is_none_freezes_nothing(peer: Peer) -> None:
    nodes = wire.WalBalancePolicyNodes(freeze_node_ids=[1, 0])
    path = COORD + "AssignmentService/UpdateWALBalancePolicy"
    request = wire.UpdateWalBalancePolicyRequest(nodes=nodes)
    assert await code_of(peer, path, request) == (3, Code.INVALID_ARGUMENT)
    assert await policy(peer, wire.UpdateWalBalancePolicyRequest()) == (True, [])
