"""Reading through Milvus's Consume: policies, filters, properties, ticks, ends, and resumption."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from broker.model.failure import StreamingCode as Code
from broker.node.scanner_messages import CloseScanner
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import Fault, MemoryWal
from schemas.generated.google.protobuf import Empty
from schemas.generated.milvus.proto import common, messages
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.milvus.proto.msg import TimeTickMsg
from schemas.wire import (
    Closed,
    Consumed,
    Produced,
    VChannelCreated,
    produce_request,
    rocksmq_id_text,
    scan_consume_response,
    scan_produce_response,
)
from tests.wire.peer import Ended, Peer, PeerStream, append, connected, insert
from tests.wire.small_broker import P0, V0, SmallBroker, small_broker

ALL = wire.DeliverPolicy(all=Empty())
LATEST = wire.DeliverPolicy(latest=Empty())
ROCKSMQ = common.WalName(1)


@dataclass
class FullDisk:
    """Refuses appends while `full`; `looks`: how often it was asked whether it still is."""

    full: bool = False
    looks: int = 0

    def fault(self, _channel: object, _records: object) -> Fault | None:
        return Fault.LOST if self.full else None

    def is_writable(self) -> bool:
        self.looks += 1
        return not self.full


def message_id(number: int, wal: common.WalName = ROCKSMQ) -> common.MessageId:
    return common.MessageId(id=rocksmq_id_text(number), WAL_name=wal)


def start_from(number: int, wal: common.WalName = ROCKSMQ) -> wire.DeliverPolicy:
    return wire.DeliverPolicy(start_from=message_id(number, wal))


def request(
    policy: wire.DeliverPolicy | None = ALL,
    vchannel: str = V0,
    filters: Sequence[wire.DeliverFilter] = (),
) -> bytes:
    wanted = wire.CreateVChannelConsumerRequest(
        vchannel=vchannel, deliver_policy=policy, deliver_filters=list(filters)
    )
    return bytes(wire.ConsumeRequest(create_vchannel_consumer=wanted))


async def opened(peer: Peer, asked: bytes | None = None, term: int = 2) -> PeerStream:
    stream = peer.consume(term)
    await stream.receive()
    await stream.send(asked or request())
    assert scan_consume_response(await stream.receive()) == VChannelCreated(1)
    return stream


async def appended(peer: Peer, *payloads: bytes, **properties: str) -> list[Produced]:
    stream = peer.produce()
    await stream.receive()
    results = []
    for number, payload in enumerate(payloads):
        await stream.send(append(number, payload, **properties))
        result = scan_produce_response(await stream.receive())
        assert isinstance(result, Produced), result
        results.append(result)
    return results


async def received(stream: PeerStream) -> Consumed:
    answer = scan_consume_response(await stream.receive())
    assert isinstance(answer, Consumed), answer
    return answer


def is_tick(found: Consumed) -> bool:
    return found.properties["_t"] == "1"


async def ticks_of_the_term(stream: PeerStream) -> list[int]:
    """Of what still comes until the stream ends, as it does with its term."""
    ticks = []
    try:
        while True:
            ticks.append((await received(stream)).tick)
    except Ended:
        return ticks


async def next_messages(stream: PeerStream, count: int) -> list[Consumed]:
    """The next that are no ticks."""
    found: list[Consumed] = []
    while len(found) < count:
        answer = await received(stream)
        if not is_tick(answer):
            found.append(answer)
    return found


async def up_to_tick(stream: PeerStream, tick: int) -> list[Consumed]:
    """Messages before the first tick that closes `tick`."""
    found: list[Consumed] = []
    while True:
        answer = await received(stream)
        if is_tick(answer) and answer.tick >= tick:
            return found
        if not is_tick(answer):
            found.append(answer)


async def test_a_delivered_message_has_its_payload_and_every_property(peer: Peer) -> None:
    (landed,) = await appended(peer, b"\x00row\xff", mine="ä", _h="CGQSBAgBEAE=")
    (found,) = await next_messages(await opened(peer), 1)
    assert found.message_id == landed.message_id
    assert found.payload == b"\x00row\xff"
    assert found.tick == landed.tick
    assert found.last_confirmed_id == landed.last_confirmed_id
    properties = dict(found.properties)
    assert properties.pop("_tt")
    assert ("_lc" in properties) != ("_lcs" in properties)
    properties.pop("_lc", None)
    properties.pop("_lcs", None)
    assert properties == {
        "_t": "2", "_v": "1", "_h": "CGQSBAgBEAE=", "_vc": V0, "_wt": "2", "mine": "ä",
    }  # fmt: skip


async def test_a_message_without_header_gets_an_empty_one(peer: Peer) -> None:
    stream = peer.produce()
    await stream.receive()
    bare = b"".join(part for part in [insert()] if part).replace(b"\x12\x06\x0a\x02_h\x12\x00", b"")
    await stream.send(produce_request(1, bare))
    await stream.receive()
    (found,) = await next_messages(await opened(peer), 1)
    assert found.properties["_h"] == ""


async def test_what_only_a_server_sets_is_not_taken_from_a_client(peer: Peer) -> None:
    (landed,) = await appended(peer, b"row", _tt="zz", _lc="zz", _wt="zz", _np="")
    (found,) = await next_messages(await opened(peer), 1)
    assert found.tick == landed.tick
    assert found.properties["_wt"] == "2"
    assert "_np" not in found.properties


async def test_messages_come_once_in_tick_order_and_are_closed_by_a_tick(peer: Peer) -> None:
    landed = await appended(peer, *[b"%d" % number for number in range(30)])
    stream = await opened(peer)
    found = await up_to_tick(stream, landed[-1].tick)
    assert [each.payload for each in found] == [b"%d" % number for number in range(30)]
    assert [each.tick for each in found] == [each.tick for each in landed]
    assert [each.message_id for each in found] == [each.message_id for each in landed]


async def test_an_idle_consumer_hears_ticks_in_milvus_form(peer: Peer) -> None:
    stream = await opened(peer, request(LATEST))
    ticks = [await received(stream) for _ in range(4)]
    assert all(is_tick(tick) for tick in ticks)
    assert [tick.tick for tick in ticks] == sorted({tick.tick for tick in ticks})
    for tick in ticks:
        properties = dict(tick.properties)
        assert properties["_v"] == "1"
        assert properties["_h"] == ""
        assert "_vc" not in properties
        body = TimeTickMsg.parse(tick.payload).base
        assert body is not None
        assert (int(body.msg_type), body.timestamp, body.source_id) == (1200, tick.tick, 1)
        if "_np" in properties:
            assert properties["_np"] == ""
            assert tick.message_id == tick.last_confirmed_id
    assert any("_np" in tick.properties for tick in ticks)


async def test_a_tick_that_stands_still_is_told_once() -> None:
    disk = FullDisk()
    often = NodeLimits(tick_interval_s=0.005, pull_wait_s=0.005, probe_s=0.005)
    wal = MemoryWal(fault_of=disk.fault, is_writable=disk.is_writable)
    async with small_broker(wal=wal, node_limits=often) as broker, connected(broker) as peer:
        stream, produce = await opened(peer), peer.produce()
        await produce.receive()
        disk.full = True
        await produce.send(append(1))
        assert not isinstance(scan_produce_response(await produce.receive()), Produced)
        while disk.looks < 50:
            await anyio.lowlevel.checkpoint()
        disk.full = False
        ticks = await ticks_of_the_term(stream)
        assert ticks == sorted(set(ticks))


async def test_latest_begins_after_what_is_there(peer: Peer) -> None:
    await appended(peer, b"old")
    stream = await opened(peer, request(LATEST))
    await appended(peer, b"new")
    assert [found.payload for found in await next_messages(stream, 1)] == [b"new"]


async def test_start_from_is_inclusive_and_start_after_exclusive(peer: Peer) -> None:
    landed = await appended(peer, b"a", b"b", b"c")
    middle = landed[1].message_id
    including = await opened(peer, request(start_from(middle)))
    assert [each.payload for each in await next_messages(including, 2)] == [b"b", b"c"]
    after = wire.DeliverPolicy(start_after=message_id(middle))
    assert [
        each.payload for each in await next_messages(await opened(peer, request(after)), 1)
    ] == [b"c"]


async def test_filters_hold_together(peer: Peer) -> None:
    landed = await appended(peer, b"a", b"b", b"c")
    deleted = await appended(peer, b"gone", _t="3")
    above_first = wire.DeliverFilter(
        time_tick_gt=wire.DeliverFilterTimeTickGt(time_tick=landed[0].tick)
    )
    from_last = wire.DeliverFilter(
        time_tick_gte=wire.DeliverFilterTimeTickGte(time_tick=landed[2].tick)
    )
    inserts = wire.DeliverFilter(
        message_type=wire.DeliverFilterMessageType(message_types=[messages.MessageType(2)])
    )
    last = deleted[0].tick
    for filters, expected in (
        ([above_first], [b"b", b"c", b"gone"]),
        ([above_first, from_last], [b"c", b"gone"]),
        ([inserts, above_first], [b"b", b"c"]),
    ):
        stream = await opened(peer, request(ALL, V0, filters))
        assert [each.payload for each in await up_to_tick(stream, last)] == expected


async def test_a_vchannel_hears_its_own_and_those_of_nobody_and_the_pchannel_hears_all(
    peer: Peer,
) -> None:
    await appended(peer, b"mine")
    await appended(peer, b"theirs", _vc=f"{P0}_200v0")
    landed = await appended(peer, b"everybody's", _vc="")
    own = await up_to_tick(await opened(peer), landed[0].tick)
    assert [each.payload for each in own] == [b"mine", b"everybody's"]
    whole = await up_to_tick(await opened(peer, request(ALL, "")), landed[0].tick)
    assert [each.payload for each in whole] == [b"mine", b"theirs", b"everybody's"]


BAD_REQUESTS: list[tuple[str, bytes, Code]] = [
    ("nothing", b"", Code.INVALID_ARGUMENT),
    ("garbage", b"\xff\xff", Code.INVALID_ARGUMENT),
    ("close", bytes(wire.ConsumeRequest(close=wire.CloseConsumerRequest())), Code.INVALID_ARGUMENT),
    ("no policy", request(None), Code.INVALID_ARGUMENT),
    ("empty policy", request(wire.DeliverPolicy()), Code.INVALID_ARGUMENT),
    ("empty filter", request(ALL, V0, [wire.DeliverFilter()]), Code.INVALID_ARGUMENT),
    ("foreign vchannel", request(ALL, "by-dev-rootcoord-dml_9_1v0"), Code.INVALID_ARGUMENT),
    ("no WAL", request(start_from(1, common.WalName(0))), Code.WAL_NAME_MISMATCH),
    ("Kafka", request(start_from(1, common.WalName(3))), Code.WAL_NAME_MISMATCH),
    (
        "no number",
        request(wire.DeliverPolicy(start_from=common.MessageId(id="-", WAL_name=ROCKSMQ))),
        Code.INVALID_ARGUMENT,
    ),
    ("beyond the end", request(start_from(10**9)), Code.INVALID_ARGUMENT),
]


@pytest.mark.parametrize(
    ("asked", "code"), [row[1:] for row in BAD_REQUESTS], ids=[row[0] for row in BAD_REQUESTS]
)
async def test_a_bad_request_ends_the_stream_with_its_code(
    peer: Peer, asked: bytes, code: Code
) -> None:
    stream = peer.consume()
    await stream.receive()
    await stream.send(asked)
    with pytest.raises(Ended) as caught:
        await stream.receive()
    assert caught.value.error is not None
    assert Code(caught.value.error.code) is code


async def test_close_then_half_close_gets_close_and_ok(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(b"\x22\x00")
    await stream.half_close()
    answer: Any = None
    while answer != Closed():
        answer = scan_consume_response(await stream.receive())
    assert await stream.status() == (0, None)


async def test_requests_after_the_first_mean_nothing(peer: Peer) -> None:
    stream = await opened(peer)
    await stream.send(request(), b"\x22\x00", b"\xff")
    await appended(peer, b"row")
    assert len(await next_messages(stream, 1)) == 1


async def test_a_killed_scanner_is_not_noticed(broker: SmallBroker, peer: Peer) -> None:
    stream = await opened(peer)
    found: list[bytes] = []
    for turn in range(5):
        payloads = [b"%d-%d" % (turn, number) for number in range(20)]
        await appended(peer, *payloads[:10])
        for path in broker.scanner_paths():
            broker.system.kill(path)
        await appended(peer, *payloads[10:])
        found += [each.payload for each in await next_messages(stream, 20)]
    assert found == [b"%d-%d" % (turn, number) for turn in range(5) for number in range(20)]


async def test_a_scanner_that_left_is_replaced_and_nothing_is_lost(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    await appended(peer, b"a", b"b")
    assert [each.payload for each in await next_messages(stream, 2)] == [b"a", b"b"]
    (path,) = broker.scanner_paths()
    broker.system.find(path).tell(CloseScanner())
    await appended(peer, b"c")
    assert [each.payload for each in await next_messages(stream, 1)] == [b"c"]
    assert broker.scanner_paths() != [path]


async def test_a_consumer_whose_log_goes_away_is_told_and_resumes_at_the_next_term(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    await appended(peer, b"a", b"b")
    last = (await next_messages(stream, 2))[-1]
    broker.system.kill(broker.channel_path(P0, "appender"))
    error = (await stream.end()).error
    assert error is not None
    assert Code(error.code) is Code.INNER
    above = wire.DeliverFilter(time_tick_gt=wire.DeliverFilterTimeTickGt(time_tick=last.tick))
    resume = request(start_from(last.last_confirmed_id), V0, [above])
    again = await _opened_when_served(peer, resume, 3)
    producer = peer.produce(3)
    await producer.receive()
    await producer.send(append(1, b"c"))
    assert [each.payload for each in await next_messages(again, 1)] == [b"c"]


async def test_stopping_the_server_ends_consumers_with_shutdown(
    broker: SmallBroker, peer: Peer
) -> None:
    stream = await opened(peer)
    waiting = peer.consume()
    await waiting.receive()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: broker.edge.stop(deadline_s=60.0))
        for each in (stream, waiting):
            error = (await each.end()).error
            assert error is not None
            assert Code(error.code) is Code.ON_SHUTDOWN


async def test_a_consumer_that_stops_reading_slows_nobody(peer: Peer) -> None:
    """It has asked for everything and reads nothing; others get all of it."""
    stalled = peer.consume()
    await stalled.receive()
    await stalled.send(request())
    payloads = [b"%04d" % number + b"x" * 60_000 for number in range(100)]
    await appended(peer, *payloads)
    reading = await opened(peer)
    assert [each.payload for each in await next_messages(reading, 100)] == payloads
    assert scan_consume_response(await stalled.receive()) == VChannelCreated(1)
    assert [each.payload for each in await next_messages(stalled, 100)] == payloads


async def _opened_when_served(peer: Peer, asked: bytes, term: int) -> PeerStream:
    with anyio.fail_after(60):
        while True:
            try:
                return await opened(peer, asked, term)
            except Ended:
                await anyio.lowlevel.checkpoint()
