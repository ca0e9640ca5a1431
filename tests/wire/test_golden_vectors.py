"""Bytes that Milvus's own Go code makes, or that follow from the definitions: all must be met."""

import pytest

from broker.codec.stored_headers import StoredHeaders
from broker.model.effect import SegmentCreated, SegmentLevel
from broker.model.ids import CollectionId, PartitionId, SegmentId
from broker.model.message import MessageType
from schemas import wire
from schemas.encoding.base64_text import base64_text, read_base64
from schemas.generated.google.protobuf import Any, Empty
from schemas.generated.google.rpc import Status
from schemas.generated.milvus.proto import common, messages, msg, streaming
from schemas.handshake import CreateHeader, read_create_header
from schemas.message_id import (
    PULSAR_EARLIEST,
    WOODPECKER_EARLIEST,
    WOODPECKER_LATEST,
    PulsarId,
    WoodpeckerId,
)
from schemas.properties import keys
from schemas.properties.txn_context import TxnContext
from schemas.status import (
    StreamingError,
    grpc_code,
    read_status_details,
    status_details,
    streaming_error,
)
from tests.create_headers import create_header

PCHANNEL = "by-dev-rootcoord-dml_0"
TICK = 455000000000000001
CREATE_PRODUCER = "ChoKFmJ5LWRldi1yb290Y29vcmQtZG1sXzAQAg=="
CREATE_CONSUMER = "ChwKFmJ5LWRldi1yb290Y29vcmQtZG1sXzAQAhgB"


def test_the_create_producer_header_is_the_go_clients() -> None:
    header = CreateHeader(PCHANNEL, 2)
    info = streaming.PChannelInfo(name=PCHANNEL, term=2)
    assert create_header(header) == CREATE_PRODUCER
    assert read_create_header(CREATE_PRODUCER) == header
    assert base64_text(bytes(streaming.CreateProducerRequest(pchannel=info))) == CREATE_PRODUCER


def test_the_create_consumer_header_is_the_go_clients() -> None:
    header = CreateHeader(PCHANNEL, 2, 1)
    mode = streaming.PChannelAccessMode.PCHANNEL_ACCESS_READONLY
    info = streaming.PChannelInfo(name=PCHANNEL, term=2, access_mode=mode)
    assert create_header(header) == CREATE_CONSUMER
    assert read_create_header(CREATE_CONSUMER) == header
    assert base64_text(bytes(streaming.CreateConsumerRequest(pchannel=info))) == CREATE_CONSUMER


@pytest.mark.parametrize(
    ("keepalive_ms", "text"),
    [(10000, "CAEQkE4="), (-1000, "CAEQmPj/////////AQ==")],
)
def test_transaction_contexts_are_gos(keepalive_ms: int, text: str) -> None:
    context = TxnContext(1, keepalive_ms)
    assert keys.TXN.encode(context) == text
    assert keys.TXN.decode(text) == context
    generated = messages.TxnContext(txn_id=1, keepalive_milliseconds=keepalive_ms)
    assert base64_text(bytes(generated)) == text


def test_an_empty_header_is_the_empty_string() -> None:
    assert keys.HEADER.encode(bytes(messages.TimeTickMessageHeader())) == ""
    assert keys.HEADER.decode("") == b""


def test_insert_headers_are_gos() -> None:
    assigned = messages.InsertMessageHeader(
        collection_id=1,
        partitions=[
            messages.PartitionSegmentAssignment(
                partition_id=2,
                rows=3,
                binary_size=4,
                segment_assignment=messages.SegmentAssignment(segment_id=5),
            )
        ],
    )
    fresh = messages.InsertMessageHeader(
        collection_id=100,
        partitions=[messages.PartitionSegmentAssignment(partition_id=1, rows=1)],
    )
    assert keys.HEADER.encode(bytes(assigned)) == "CAESCggCEAMYBCICCAU="
    assert keys.HEADER.encode(bytes(fresh)) == "CGQSBAgBEAE="


@pytest.mark.parametrize(
    ("created", "text"),
    [
        (
            SegmentCreated(
                CollectionId(100), PartitionId(1), SegmentId(470647707567915012),
                128849018, 8053063, SegmentLevel.ROWS, 0, 2,
            ),
            "CGQQARiEgMD/ivOExAYgAij6qLg9MMfC6wM4Ag==",
        ),
        (
            SegmentCreated(
                CollectionId(100), PartitionId(-1), SegmentId(5), 0, 0, SegmentLevel.DELETES, 0, 3
            ),
            "CGQQ////////////ARgFIAM4AQ==",
        ),
    ],
)  # fmt: skip
def test_the_header_of_a_create_segment_is_gos(created: SegmentCreated, text: str) -> None:
    stored = StoredHeaders().own("by-dev-rootcoord-dml_0_100v0", created)
    assert common.ImmutableMessage.parse(stored).properties["_h"] == text
    assert StoredHeaders().effect(MessageType.CREATE_SEGMENT, stored) == created


def test_a_broadcast_header_is_gos() -> None:
    header = messages.BroadcastHeader(
        broadcast_id=7,
        vchannels=["by-dev-rootcoord-dml_0_vcchan", "by-dev-rootcoord-dml_1_100v0"],
        Resource_keys=[
            messages.ResourceKey(
                domain=messages.ResourceDomain.ResourceDomainCollectionName, key="default:c1"
            ),
            messages.ResourceKey(domain=messages.ResourceDomain.ResourceDomainCluster, shared=True),
        ],
    )
    assert keys.BROADCAST.encode(bytes(header)) == (
        "CAcSHWJ5LWRldi1yb290Y29vcmQtZG1sXzBfdmNjaGFuEhxieS1kZXYtcm9vdGNvb3JkLWRtbF8xXzEwMHYw"
        "Gg4IAhIKZGVmYXVsdDpjMRoECH8YAQ=="
    )


def test_a_replicate_header_is_gos() -> None:
    header = messages.ReplicateHeader(
        cluster_id="src",
        message_id=common.MessageId(id="2s", WAL_name=common.WalName.RocksMQ),
        last_confirmed_message_id=common.MessageId(id="2i", WAL_name=common.WalName.RocksMQ),
        time_tick=TICK,
        vchannel="src-rootcoord-dml_0_100v0",
    )
    assert keys.REPLICATE.encode(bytes(header)) == (
        "CgNzcmMSBgoCMnMQARoGCgIyaRABIIGAtubtgp+oBioZc3JjLXJvb3Rjb29yZC1kbWxfMF8xMDB2MA=="
    )


def test_a_time_tick_payload_is_gos() -> None:
    expected = "0a0f08b009188180b6e6ed829fa8062001"
    assert wire.time_tick_payload(TICK, 1).hex() == expected
    base = common.MsgBase(msg_type=common.MsgType.TimeTick, timestamp=TICK, source_id=1)
    assert bytes(msg.TimeTickMsg(base=base)).hex() == expected


def test_a_streaming_error_is_gos() -> None:
    error = streaming.StreamingError(code=streaming.StreamingCode.UNMATCHED_CHANNEL_TERM, cause="c")
    assert bytes(error).hex() == "0805120163"
    assert streaming_error(StreamingError(5, "c")).hex() == "0805120163"


def test_the_status_details_are_gos() -> None:
    expected = bytes.fromhex(
        "08091a4d0a39747970652e676f6f676c65617069732e636f6d2f6d696c7675732e70726f746f2e"
        "73747265616d696e672e53747265616d696e674572726f7212100801120c6368206e6f74206578697374"
    )
    error = StreamingError(1, "ch not exist")
    assert grpc_code(error.code) == 9
    assert status_details(error) == expected
    assert read_status_details(expected) == error
    detail = Any(
        type_url="type.googleapis.com/milvus.proto.streaming.StreamingError",
        value=streaming_error(error),
    )
    assert bytes(Status(code=9, details=[detail])) == expected


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (streaming.ConsumeRequest(close=streaming.CloseConsumerRequest()), "2200"),
        (
            streaming.AssignmentDiscoverRequest(close=streaming.CloseAssignmentDiscoverRequest()),
            "1200",
        ),
        (streaming.DeliverPolicy(all=Empty()), "0a00"),
        (streaming.DeliverPolicy(latest=Empty()), "1200"),
    ],
)
def test_empty_oneof_members_are_written_as_the_go_client_writes_them(
    built: streaming.ConsumeRequest, expected: str
) -> None:
    assert bytes(built).hex() == expected


def test_an_empty_map_value_is_written() -> None:
    expected = "0a017812080a045f6c63731200"
    assert wire.message(b"x", {"_lcs": ""}).hex() == expected
    assert bytes(messages.Message(payload=b"x", properties={"_lcs": ""})).hex() == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (35, "z"),
        (36, "10"),
        (1234567890, "kf12oi"),
        (TICK, "3gg41ee04s8x"),
        (2**63 - 1, "1y2p0ij32e8e7"),
        (2**64 - 1, "3w5e11264sgsf"),
        ((1772420718000 << 18) | 5, "3j2xe9q5qvph"),
    ],
)
def test_base_36_is_gos(number: int, text: str) -> None:
    assert keys.TIME_TICK.encode(number) == text
    assert keys.TIME_TICK.decode(text) == number
    assert wire.base36(number).decode() == text


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        (WOODPECKER_EARLIEST, ""),
        (WoodpeckerId(0, 5), "EAU="),
        (WoodpeckerId(3, 0), "CAM="),
        (WoodpeckerId(3, 17), "CAMQEQ=="),
        (WOODPECKER_LATEST, "CP//////////fxD//////////38="),
    ],
)
def test_woodpecker_ids_are_gos(message_id: WoodpeckerId, text: str) -> None:
    assert message_id.text() == text
    assert WoodpeckerId.read(text) == message_id


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        (PulsarId(12, 34, 0, 0, 0), "CAwQIhgAIAAwAA=="),
        (PulsarId(12, 34, -1, -1, 0), "CAwQIhj///////////8BIP///////////wEwAA=="),
        (
            PULSAR_EARLIEST,
            "CP///////////wEQ////////////ARj///////////8BIP///////////wEwAA==",
        ),
    ],
)
def test_pulsar_ids_are_gos(message_id: PulsarId, text: str) -> None:
    assert message_id.text() == text
    assert PulsarId.read(text) == message_id


def test_base64_of_the_vectors_comes_back_as_it_was() -> None:
    for text in (CREATE_PRODUCER, CREATE_CONSUMER, "CAEQkE4=", "CAESCggCEAMYBCICCAU="):
        assert base64_text(read_base64(text)) == text
