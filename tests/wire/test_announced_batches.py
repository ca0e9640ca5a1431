"""Native batches on a vchannel whose collection a Milvus producer created, through real sockets."""

from typing import Any

import lz4.block
import pyarrow as pa
import pytest
import zstandard

from broker.core.segments.segment_sealing import SegmentLimits
from broker.meta.memory_store import MemoryMetaStore
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import MemoryWal
from schemas.batches import Landed
from schemas.encoding.base64_text import base64_text, read_base64
from schemas.generated.milvus.proto import messages
from schemas.generated.tidemark import v1
from schemas.wire import Consumed, Produced
from tests.wire.peer import Peer, connected
from tests.wire.small_broker import FIRST_TERM, P0, V0, small_broker
from tests.wire.test_append import batch, opened, refused, told
from tests.wire.test_collections import A, B, insert_header, proxy, segment_of
from tests.wire.test_consume import next_messages
from tests.wire.test_consume import opened as consuming
from tests.wire.test_node_control import status
from tests.wire.test_read import landed, reading, to_the_end
from tests.wire.test_rows import create as create_rows
from tests.wire.test_rows import of_rows

COLLECTION = 100
PLAIN = b"a" * 5000 + b"b" * 3000


def header_of(found: Consumed) -> messages.InsertMessageHeader:
    return messages.InsertMessageHeader.parse(read_base64(found.properties["_h"]))


def counts(found: list[Consumed]) -> tuple[int, int]:
    """Rows and bytes by the headers."""
    parts = [part for it in found for part in header_of(it).partitions]
    return sum(it.rows for it in parts), sum(it.binary_size for it in parts)


@pytest.mark.parametrize("codec", [v1.Codec.NONE, v1.Codec.LZ4, v1.Codec.ZSTD])
async def test_a_milvus_consumer_gets_a_header_of_one_row_with_each_message(
    peer: Peer, codec: v1.Codec
) -> None:
    await (await proxy(peer)).create()
    packed = {
        v1.Codec.NONE: PLAIN,
        v1.Codec.LZ4: lz4.block.compress(PLAIN, store_size=False),
        v1.Codec.ZSTD: zstandard.ZstdCompressor().compress(PLAIN),
    }[codec]
    request = batch(sizes=[5000, 3000], body=packed, codec=codec, key_sizes=[0, 2], keys=b"k")
    (first,) = await landed(peer, request)
    created, segment, *rows = await next_messages(await consuming(peer), 4)
    assert [it.properties["_t"] for it in (created, segment)] == ["5", "10"]
    assert [it.payload for it in rows] == [b"a" * 5000, b"b" * 3000]
    assert rows[0].message_id == first.message_id
    made = messages.CreateSegmentMessageHeader.parse(read_base64(segment.properties["_h"]))
    assert (made.collection_id, made.partition_id) == (COLLECTION, A)
    assert {segment_of(it) for it in rows} == {made.segment_id}
    assert [header_of(it).partitions[0].rows for it in rows] == [1, 1]
    assert counts(rows)[1] > 8000
    assert rows[1].properties["tidemark.key"] == "aw=="


async def test_a_native_reader_gets_batches_whole_and_nothing_that_the_log_wrote(
    peer: Peer,
) -> None:
    await (await proxy(peer)).create()
    (first,) = await landed(peer, batch(b"one", b"two"))
    stream = await reading(peer, v1.ReadOpen(until_tick=first.tick + 1))
    created, found = (await to_the_end(stream))[0]
    assert (created.type, found.type) == (5, 2)
    assert (found.body, found.sizes) == (b"onetwo", (3, 3))
    named = await reading(peer, v1.ReadOpen(types=[2, 10], until_tick=first.tick + 1))
    assert [it.type for it in (await to_the_end(named))[0]] == [10, 2]


async def test_rows_of_arrow_go_to_the_default_partition_and_come_as_json_with_headers(
    peer: Peer,
) -> None:
    rows: Any = pa.record_batch({"id": pa.array(range(7), pa.int64())})
    # This announces it on its vchannels, with a version of its own.
    await create_rows(peer, rows.schema)
    await landed(peer, of_rows(rows))
    found = (await next_messages(await consuming(peer), 9))[2:]
    assert [it.payload for it in found] == [b'{"id": %d}' % it for it in range(7)]
    assert counts(found)[0] == 7
    assert header_of(found[0]).schema_version == 0
    assert found[0].properties["tidemark.schema"] == "1"


async def test_a_producer_may_name_the_partition_and_is_told_what_is_wrong(peer: Peer) -> None:
    milvus = await proxy(peer)
    await milvus.create(version=4)

    def naming(*partitions: int, rows: int = 0, collection: int = COLLECTION, version: int = 4):  # type: ignore[no-untyped-def]
        sent = insert_header(*partitions, rows=rows, collection=collection, version=version)
        return batch(b"a", b"b", properties={"_h": base64_text(bytes(sent))})

    await landed(peer, naming(B))
    rows = (await next_messages(await consuming(peer), 4))[2:]
    assert [header_of(it).partitions[0].partition_id for it in rows] == [B, B]
    assert header_of(rows[0]).schema_version == 4
    for bad, why in (
        (naming(A, B), "names 2; append one batch for each partition"),
        (naming(A, rows=5), "says 5 rows"),
        (naming(9), "no partition 9"),
        (naming(A, collection=8), "not to 8"),
        (naming(A, version=3), "schema version 3"),
    ):
        assert why in (await refused(peer, bad)).cause


async def test_a_batch_larger_than_a_segment_is_refused_with_what_to_do() -> None:
    limits = NodeLimits(segments=SegmentLimits(segment_bytes=10_000))
    async with small_broker(node_limits=limits) as broker, connected(broker) as peer:
        await (await proxy(peer)).create()
        told = await refused(peer, batch(bytes(600), bytes(700)))
        assert "exceeds a segment's limit" in told.cause
        assert "split it" in told.cause


async def test_segments_and_repeats_are_the_same_after_a_restart() -> None:
    wal, store = MemoryWal(), MemoryMetaStore()
    numbered = batch(b"a", b"b", producer="p", sequence=0)
    async with small_broker(wal=wal, store=store) as broker, connected(broker) as peer:
        milvus = await proxy(peer)
        await milvus.create()
        (first,) = await told(await opened(peer), numbered)
        assert isinstance(await milvus.insert(A), Produced)
    async with small_broker(wal=wal, store=store) as broker, connected(broker) as peer:
        info = (await status(peer))[P0].info
        assert info is not None
        assert info.term > FIRST_TERM
        stream = await opened(peer, info.term)
        again, after = await told(stream, numbered, batch(b"c", vchannel=V0))
        assert again == first
        assert isinstance(after, Landed)
        found = (await next_messages(await consuming(peer, term=info.term), 6))[2:]
    assert len({segment_of(it) for it in found}) == 1
    assert counts(found)[0] == 4
