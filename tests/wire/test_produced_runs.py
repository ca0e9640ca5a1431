"""Many produced rows in one write: stored in runs, and placed one by one in a collection."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import grpclib.client

from broker.edge.rpc.edge_limits import EdgeLimits
from broker.transport import ClientBatchStream, MessageCodec, open_call
from schemas.encoding.frames import frames
from schemas.generated.milvus.proto import messages, msg, schema
from schemas.handshake import CREATE_PRODUCER, CreateHeader
from schemas.wire import Produced, ProduceFailed, scan_produce_response
from tests.create_headers import create_header
from tests.wire.peer import ANSWER_S, append, connected
from tests.wire.small_broker import FIRST_TERM, HOST, P0, PRODUCE, SmallBroker, small_broker
from tests.wire.test_collections import (
    CREATE,
    CREATE_SEGMENT,
    INSERT,
    MANUAL_FLUSH,
    A,
    Header,
    insert_header,
    segment_of,
)
from tests.wire.test_consume import next_messages, opened

MIB = 1 << 20
Answer = Produced | ProduceFailed


@asynccontextmanager
async def produced(broker: SmallBroker) -> AsyncIterator[ClientBatchStream]:
    """A Produce stream whose requests leave in one write."""
    channel = grpclib.client.Channel(HOST, broker.port, codec=MessageCodec())
    headers = {CREATE_PRODUCER: create_header(CreateHeader(P0, FIRST_TERM))}
    try:
        async with open_call(channel, PRODUCE, headers, limit_bytes=MIB, stall_s=ANSWER_S) as call:
            (created,) = await call.read_batch()
            assert created
            # From then on the stream knows that the vchannel is one of this pchannel.
            await answers(call, [append(0)])
            yield call
    finally:
        channel.close()


def text(header: Header) -> str:
    return b64encode(bytes(header)).decode()


async def answers(call: ClientBatchStream, requests: list[bytes]) -> dict[int, Answer]:
    """The answer to each request, by its id."""
    found: dict[int, Answer] = {}
    with anyio.fail_after(ANSWER_S):
        await call.write_framed(frames(requests))
        while len(found) < len(requests):
            for each in map(scan_produce_response, await call.read_batch()):
                assert isinstance(each, Answer), each
                assert each.request_id not in found
                found[each.request_id] = each
    return found


async def test_each_row_of_a_run_is_read_where_its_answer_says() -> None:
    async with small_broker() as broker, produced(broker) as call:
        count = 300
        requests = [append(at, b"row %d" % at, _t="23"[at % 50 == 7]) for at in range(1, count)]
        found = await answers(call, requests)
        async with connected(broker) as peer:
            read = await next_messages(await opened(peer), count)
    by_id = {it.message_id: it for it in read}
    assert len(by_id) == count
    for request_id, answer in found.items():
        assert isinstance(answer, Produced)
        row = by_id[answer.message_id]
        assert row.payload == b"row %d" % request_id
        assert (row.tick, row.last_confirmed_id) == (answer.tick, answer.last_confirmed_id)
    assert [it.payload for it in read[1:]] == [b"row %d" % at for at in range(1, count)]


async def test_a_row_that_is_too_large_is_refused_without_the_others_of_its_run() -> None:
    limits = EdgeLimits(message_bytes_max=1000)
    async with small_broker(limits=limits) as broker, produced(broker) as call:
        found = await answers(call, [append(1), append(2, bytes(1000)), append(3)])
        assert {at: type(it) for at, it in found.items()} == {
            1: Produced,
            2: ProduceFailed,
            3: Produced,
        }


async def test_rows_behind_the_create_of_their_collection_get_its_segment() -> None:
    async with small_broker() as broker, produced(broker) as call:
        header = messages.CreateCollectionMessageHeader(collection_id=100, partition_ids=[A])
        body = bytes(msg.CreateCollectionRequest(collection_schema=schema.CollectionSchema()))
        create = append(1, body, _t=CREATE, _h=text(header))
        rows = [append(at, b"%d" % at, _h=text(insert_header(A))) for at in range(2, 40)]
        unknown = append(40, _h=text(insert_header(77)))
        before = [append(at, b"%d" % at) for at in (50, 51)]
        found = await answers(call, [*before, create, *rows, unknown])
        assert isinstance(found.pop(40), ProduceFailed)
        assert all(isinstance(it, Produced) for it in found.values())
        # The edge knows the collection by now.
        found |= await answers(call, [append(41, b"41", _h=text(insert_header(A)))])
        async with connected(broker) as peer:
            read = await next_messages(await opened(peer), 44)
    assert [it.properties["_t"] for it in read] == [
        *[INSERT] * 3, CREATE, CREATE_SEGMENT, *[INSERT] * 39
    ]  # fmt: skip
    assert [it.payload for it in read[1:3]] == [b"50", b"51"]
    assert [it.payload for it in read[5:]] == [b"%d" % at for at in (*range(2, 40), 41)]
    (segment,) = {segment_of(it) for it in read[5:]}
    assert segment


async def test_what_is_behind_the_rows_of_a_new_collection_stays_behind_them() -> None:
    create_header = messages.CreateCollectionMessageHeader(collection_id=100, partition_ids=[A])
    body = bytes(msg.CreateCollectionRequest(collection_schema=schema.CollectionSchema()))
    delete_header = messages.DeleteMessageHeader(collection_id=100)
    flush_header = messages.ManualFlushMessageHeader(collection_id=100, flush_ts=5)
    async with small_broker() as broker, produced(broker) as call:
        create = append(1, body, _t=CREATE, _h=text(create_header))
        rows = [append(at, b"%d" % at, _h=text(insert_header(A))) for at in range(2, 6)]
        # The barrier tick keeps it out of runs; it has passed long ago.
        delete = append(6, b"6", _t="3", _h=text(delete_header), _btt="1")
        flush = append(7, b"7", _t=MANUAL_FLUSH, _h=text(flush_header))
        found = await answers(call, [create, *rows, delete, flush])
        landed = [it for _, it in sorted(found.items())]
        async with connected(broker) as peer:
            read = await next_messages(await opened(peer), 9)
    assert [it.properties["_t"] for it in read] == [
        INSERT, CREATE, CREATE_SEGMENT, *[INSERT] * 4, "3", MANUAL_FLUSH
    ]  # fmt: skip
    ids = [it.message_id for it in landed if isinstance(it, Produced)]
    assert ids == [it.message_id for it in read[1:] if it.properties["_t"] != CREATE_SEGMENT]


async def test_rows_sent_while_a_collection_is_stored_stay_behind_those_sent_before() -> None:
    header = messages.CreateCollectionMessageHeader(collection_id=100, partition_ids=[A])
    body = bytes(msg.CreateCollectionRequest(collection_schema=schema.CollectionSchema()))
    count = 400
    async with small_broker() as broker, produced(broker) as call:
        create = append(1, body, _t=CREATE, _h=text(header))
        rows = [append(at, b"%d" % at, _h=text(insert_header(A))) for at in range(2, count)]
        found: dict[int, Produced] = {}
        with anyio.fail_after(ANSWER_S):
            await call.write_framed(frames([create, *rows[:100]]))
            for at in range(100, len(rows), 50):
                await call.write_framed(frames(rows[at : at + 50]))
            while len(found) < count - 1:
                for each in map(scan_produce_response, await call.read_batch()):
                    assert isinstance(each, Produced)
                    found[each.request_id] = each
        ids = [it.message_id for _, it in sorted(found.items())]
    assert ids == sorted(ids)
