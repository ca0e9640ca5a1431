"""Collections and segments through Milvus's Produce and Consume, as its nodes use them."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Protocol

import pytest

from broker.core.segments.segment_sealing import SegmentLimits
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import StreamingCode as Code
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import MemoryWal
from schemas.generated.milvus.proto import messages, msg, schema
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.milvus.proto.data import SegmentLevel
from schemas.generated.tidemark import v1
from schemas.properties.keys import TXN
from schemas.properties.txn_context import TxnContext
from schemas.wire import (
    Consumed,
    Produced,
    ProduceFailed,
    message,
    produce_request,
    scan_produce_response,
)
from tests.wire.peer import Peer, PeerStream, connected
from tests.wire.small_broker import P0, V0, small_broker
from tests.wire.test_consume import next_messages, opened
from tests.wire.test_node_control import status

INSERT, DELETE, CREATE, DROP, ALTER = "2", "3", "5", "6", "13"
MANUAL_FLUSH, CREATE_SEGMENT = "9", "10"
EXTRA = "type.googleapis.com/milvus.proto.messages.ManualFlushExtraResponse"
A, B = 1, 2


class Header(Protocol):
    def __bytes__(self) -> bytes: ...


class Proxy:
    """What Milvus's proxy sends about one collection, one message after the other."""

    def __init__(self, stream: PeerStream) -> None:
        self.stream = stream

    async def raw(self, kind: str, header: Header, payload: bytes, **properties: str) -> bytes:
        values = {"_t": kind, "_v": "1", "_vc": V0, "_h": b64encode(bytes(header)).decode()}
        await self.stream.send(produce_request(7, message(payload, values | properties)))
        return await self.stream.receive()

    async def say(
        self, kind: str, header: Header, payload: bytes = b"row", **properties: str
    ) -> Produced | Code:
        answer = scan_produce_response(await self.raw(kind, header, payload, **properties))
        if isinstance(answer, ProduceFailed):
            assert answer.cause
            return Code(answer.code)
        assert isinstance(answer, Produced)
        return answer

    async def create(self, version: int = 0) -> Produced | Code:
        header = messages.CreateCollectionMessageHeader(collection_id=100, partition_ids=[A, B])
        body = msg.CreateCollectionRequest(
            collection_schema=schema.CollectionSchema(name="c", version=version)
        )
        return await self.say(CREATE, header, bytes(body))

    async def insert(
        self, *partitions: int, rows: int = 1, size: int = 0, **properties: str
    ) -> Produced | Code:
        header = insert_header(*partitions, rows=rows, size=size)
        return await self.say(INSERT, header, b"row", **properties)

    async def manual_flush(self) -> wire.ProduceMessageResponseResult:
        header = messages.ManualFlushMessageHeader(collection_id=100, flush_ts=5)
        answer = wire.ProduceResponse.parse(await self.raw(MANUAL_FLUSH, header, b""))
        assert answer.produce is not None
        assert answer.produce.result is not None
        return answer.produce.result


def insert_header(
    *partitions: int, rows: int = 1, size: int = 0, collection: int = 100, version: int = 0
) -> messages.InsertMessageHeader:
    return messages.InsertMessageHeader(
        collection_id=collection,
        partitions=[
            messages.PartitionSegmentAssignment(partition_id=each, rows=rows, binary_size=size)
            for each in partitions
        ],
        schema_version=version,
    )


def header_of(found: Consumed) -> bytes:
    return b64decode(found.properties["_h"])


def segment_of(found: Consumed) -> int:
    (part,) = messages.InsertMessageHeader.parse(header_of(found)).partitions
    assert part.segment_assignment is not None
    return part.segment_assignment.segment_id


def flushed_in(result: wire.ProduceMessageResponseResult) -> Sequence[int]:
    assert result.extra is not None
    assert result.extra.type_url == EXTRA
    return messages.ManualFlushExtraResponse.parse(result.extra.value).segment_ids


async def proxy(peer: Peer, term: int = 2) -> Proxy:
    stream = peer.produce(term)
    await stream.receive()
    return Proxy(stream)


async def test_a_collections_life_over_a_restart_is_read_back_in_order() -> None:
    wal, store = MemoryWal(), MemoryMetaStore()
    async with small_broker(wal=wal, store=store) as broker, connected(broker) as peer:
        first = await proxy(peer)
        await first.create(version=3)
        await first.insert(A)
        await first.insert(A, rows=2)
        flush = await first.manual_flush()
        await first.insert(A)
    async with small_broker(wal=wal, store=store) as broker, connected(broker) as peer:
        info = (await status(peer))[P0].info
        assert info is not None
        second = await proxy(peer, info.term)
        await second.insert(A)
        await second.insert(B)
        header = messages.DropCollectionMessageHeader(collection_id=100)
        assert isinstance(await second.say(DROP, header), Produced)
        assert await second.insert(A) is Code.UNRECOVERABLE
        found = await next_messages(await opened(peer, term=info.term), 11)
    assert [each.properties["_t"] for each in found] == [
        CREATE, CREATE_SEGMENT, INSERT, INSERT, MANUAL_FLUSH, CREATE_SEGMENT, INSERT,
        INSERT, CREATE_SEGMENT, INSERT, DROP,
    ]  # fmt: skip
    one, two, three = segment_of(found[2]), segment_of(found[6]), segment_of(found[9])
    assert [segment_of(found[at]) for at in (3, 7)] == [one, two]
    assert len({0, one, two, three}) == 4
    assert flushed_in(flush) == [one]
    told = messages.ManualFlushMessageHeader.parse(header_of(found[4]))
    assert (told.collection_id, told.flush_ts, told.segment_ids) == (100, 5, [one])
    for at, segment, partition in ((1, one, A), (5, two, A), (8, three, B)):
        made = messages.CreateSegmentMessageHeader.parse(header_of(found[at]))
        assert (made.collection_id, made.partition_id, made.segment_id) == (100, partition, segment)
        assert made.schema_version == 3
        assert made.storage_version == 2
        assert 0 < made.max_segment_size <= int(0.12 * (1 << 30))
        assert found[at].payload == b""
        assert found[at].properties.keys() >= {"_t", "_v", "_h", "_vc", "_tt", "_wt"}
        assert (found[at].properties["_v"], found[at].properties["_vc"]) == ("2", V0)
        assert found[at].tick < found[at + 1].tick
    ticks = [each.tick for each in found]
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize("version", [0, 3])
async def test_a_segments_storage_version_is_the_setting(version: int) -> None:
    limits = NodeLimits(segments=SegmentLimits(storage_version=version))
    async with small_broker(node_limits=limits) as broker, connected(broker) as peer:
        one = await proxy(peer)
        await one.create()
        await one.insert(A)
        _, created, _ = await next_messages(await opened(peer), 3)
        made = messages.CreateSegmentMessageHeader.parse(header_of(created))
        assert (created.properties["_t"], made.storage_version) == (CREATE_SEGMENT, version)


@pytest.mark.parametrize("segments", [False, True])
async def test_a_delete_creates_a_segment_only_where_the_setting_says_so(*, segments: bool) -> None:
    limits = NodeLimits(segments=SegmentLimits(delete_segments=segments))
    header = messages.DeleteMessageHeader(collection_id=100, rows=1)
    async with small_broker(node_limits=limits) as broker, connected(broker) as peer:
        one = await proxy(peer)
        await one.create()
        await one.say(DELETE, header, b"keys")
        await one.say(DELETE, header, b"more")
        found = await next_messages(await opened(peer), 3 + segments)
        kinds = [CREATE, *[CREATE_SEGMENT] * segments, DELETE, DELETE]
        assert [each.properties["_t"] for each in found] == kinds
        if segments:
            made = messages.CreateSegmentMessageHeader.parse(header_of(found[1]))
            assert (made.partition_id, made.level) == (-1, SegmentLevel.L0)


async def test_an_insert_keeps_all_but_its_segment_and_a_size_that_was_not_given(
    peer: Peer,
) -> None:
    one = await proxy(peer)
    await one.create()
    await one.insert(A, rows=7, mine="kept")
    await one.insert(A, size=12)
    found = await next_messages(await opened(peer), 4)
    (part,) = messages.InsertMessageHeader.parse(header_of(found[2])).partitions
    sent = {"_t": INSERT, "_v": "1", "_vc": V0, "_h": "", "mine": "kept"}
    sent["_h"] = b64encode(bytes(insert_header(A, rows=7))).decode()
    assert part.rows == 7
    assert part.binary_size == 3 + sum(len(key) + len(value) for key, value in sent.items())
    assert found[2].payload == b"row"
    assert found[2].properties["mine"] == "kept"
    (part,) = messages.InsertMessageHeader.parse(header_of(found[3])).partitions
    assert part.binary_size == 12


@pytest.mark.parametrize(
    ("kind", "header", "code"),
    [
        (INSERT, insert_header(), Code.UNRECOVERABLE),
        (INSERT, insert_header(A, B), Code.UNRECOVERABLE),
        (INSERT, insert_header(99), Code.UNRECOVERABLE),
        (INSERT, insert_header(A, collection=101), Code.UNRECOVERABLE),
        (INSERT, insert_header(A, rows=1 << 40), Code.UNRECOVERABLE),
        (INSERT, insert_header(A, size=1 << 30), Code.UNRECOVERABLE),
        (INSERT, insert_header(A, version=1), Code.SCHEMA_VERSION_MISMATCH),
        (INSERT, b"\x08", Code.UNRECOVERABLE),
        (DELETE, messages.DeleteMessageHeader(collection_id=101, rows=1), Code.UNRECOVERABLE),
        (ALTER, b"\x0a", Code.UNRECOVERABLE),
    ],
)
async def test_what_a_collection_cannot_take_is_refused_and_not_stored(
    peer: Peer, kind: str, header: Header, code: Code
) -> None:
    one = await proxy(peer)
    assert isinstance(await one.create(version=2), Produced)
    assert await one.say(kind, header) is code
    assert isinstance(await one.insert(A), Produced)
    found = await next_messages(await opened(peer), 3)
    assert [each.properties["_t"] for each in found] == [CREATE, CREATE_SEGMENT, INSERT]


async def test_a_schema_change_flushes_and_rows_of_the_old_version_are_refused(
    peer: Peer,
) -> None:
    one = await proxy(peer)
    await one.create(version=2)
    assert isinstance(await one.say(INSERT, insert_header(A, version=2)), Produced)
    updates = messages.AlterCollectionMessageUpdates(
        schema=schema.CollectionSchema(name="c", version=3)
    )
    header = messages.AlterCollectionMessageHeader(collection_id=100)
    body = bytes(messages.AlterCollectionMessageBody(updates=updates))
    assert isinstance(await one.say(ALTER, header, body), Produced)
    assert await one.say(INSERT, insert_header(A, version=2)) is Code.SCHEMA_VERSION_MISMATCH
    assert isinstance(await one.say(INSERT, insert_header(A, version=3)), Produced)
    found = await next_messages(await opened(peer), 6)
    told = messages.AlterCollectionMessageHeader.parse(header_of(found[3]))
    assert told.flushed_segment_ids == [segment_of(found[2])]
    assert segment_of(found[5]) != segment_of(found[2])


async def test_rows_of_a_transaction_have_their_segment_and_end_with_an_exclusive_message(
    peer: Peer,
) -> None:
    one = await proxy(peer)
    await one.create()
    begun = await one.say("900", b"", b"")
    assert isinstance(begun, Produced)
    txn = TXN.encode(TxnContext.decode(begun.txn_context))
    assert isinstance(await one.insert(A, _tx=txn), Produced)
    assert isinstance(await one.say("901", b"", b"", _tx=txn), Produced)
    begun = await one.say("900", b"", b"")
    assert isinstance(begun, Produced)
    lost = TXN.encode(TxnContext.decode(begun.txn_context))
    assert isinstance(await one.insert(B, _tx=lost), Produced)
    flushed = flushed_in(await one.manual_flush())
    assert await one.say("901", b"", b"", _tx=lost) is Code.TRANSACTION_EXPIRED
    found = await next_messages(await opened(peer), 7)
    kinds = [each.properties["_t"] for each in found]
    assert kinds == [CREATE, CREATE_SEGMENT, "900", INSERT, "901", CREATE_SEGMENT, MANUAL_FLUSH]
    assert segment_of(found[3]) in flushed
    assert len(flushed) == 2


async def test_without_a_collection_rows_pass_and_a_flush_flushes_nothing(peer: Peer) -> None:
    one = await proxy(peer)
    assert isinstance(await one.insert(A, B), Produced)
    assert flushed_in(await one.manual_flush()) == []
    (found, _) = await next_messages(await opened(peer), 2)
    assert header_of(found) == bytes(insert_header(A, B))


async def test_segments_are_told_to_people(peer: Peer) -> None:
    one = await proxy(peer)
    await one.create()
    await one.insert(A, size=40)
    await one.insert(B, size=2)
    answer = await peer.call("/tidemark.v1.Admin/Channels", b"")
    (found,) = v1.ChannelsResponse.parse(answer).channels
    assert (found.growing_segments, found.growing_bytes, found.sealed_segments) == (2, 42, 0)
