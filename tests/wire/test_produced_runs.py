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
