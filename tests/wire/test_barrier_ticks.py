"""Barrier ticks of a foreign oracle whose clock runs ahead of the broker's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import grpc
import pytest

from actors import SystemClock
from broker.model.failure import StreamingCode as Code
from broker.node.state.node_limits import NodeLimits
from schemas.handshake import CREATE_PRODUCER, CreateHeader
from schemas.properties.keys import BARRIER_TICK
from schemas.wire import Closed, Produced, ProduceFailed, scan_produce_response
from tests.create_headers import create_header
from tests.wire.peer import ANSWER_S, Ended, Peer, PeerStream, append, connected
from tests.wire.small_broker import FIRST_TERM, P0, PRODUCE, V0, SmallBroker, small_broker
from tests.wire.test_consume import ALL, is_tick, opened, request
from tests.wire.test_produce import HALF_CLOSE_REQUEST, answers
from tests.wire.test_produce import opened as produced
from tests.wire.test_transactions import COMMIT, begun, until_tick


def ahead(by_s: float) -> int:
    """A tick of an oracle whose clock is so far ahead of this machine's."""
    return (SystemClock().wall_ms() + round(by_s * 1000)) << 18


def barrier(tick: int) -> str:
    return BARRIER_TICK.encode(tick)


@asynccontextmanager
async def patient_broker() -> AsyncIterator[SmallBroker]:
    """It lets appends wait for as long as a test on a slow machine needs."""
    async with small_broker(node_limits=NodeLimits(barrier_wait_s_max=600.0)) as broker:
        yield broker


async def answer_of(stream: PeerStream) -> Produced | ProduceFailed:
    answer = scan_produce_response(await stream.receive())
    assert isinstance(answer, Produced | ProduceFailed), answer
    return answer


@pytest.mark.parametrize("ahead_s", [0.1, 0.5, 2.0])
async def test_an_append_waits_until_the_oracle_is_there(peer: Peer, ahead_s: float) -> None:
    stream, tick = await produced(peer), ahead(ahead_s)
    await stream.send(append(1, _btt=barrier(tick)))
    answer = await answer_of(stream)
    assert isinstance(answer, Produced)
    assert answer.tick > tick


async def test_later_appends_of_the_same_stream_do_not_wait_for_it() -> None:
    async with patient_broker() as broker, connected(broker) as peer:
        for ahead_s in (3.0, 9.0, 27.0):
            if await later_ones_come_first(peer, ahead_s):
                return
    pytest.fail("the later appends have waited, or the machine needs more than 27 s for them")


async def later_ones_come_first(peer: Peer, ahead_s: float) -> bool:
    """False when the oracle was at the barrier before all of them were appended."""
    stream, tick = await produced(peer), ahead(ahead_s)
    await stream.send(append(1, b"waits", _btt=barrier(tick)))
    await stream.send(*[append(number) for number in range(2, 102)])
    ticks: dict[int, int] = {}
    for each in await answers(stream, 101):
        assert isinstance(each, Produced)
        ticks[each.request_id] = each.tick
    assert set(ticks) == set(range(1, 102))
    assert ticks[1] > tick
    if any(it > tick for number, it in ticks.items() if number > 1):
        return False
    assert list(ticks)[-1] == 1
    return True


@pytest.mark.parametrize("tick", [None, 1 << 62, (1 << 64) - 1])
async def test_a_tick_absurdly_ahead_is_refused_and_the_stream_continues(
    peer: Peer, tick: int | None
) -> None:
    stream, tick = await produced(peer), tick or ahead(3_600)
    await stream.send(append(1, _btt=barrier(tick)))
    refused = await answer_of(stream)
    assert isinstance(refused, ProduceFailed)
    # Milvus's older clients send anything else again at once.
    assert refused.code == Code.UNRECOVERABLE
    for part in (str(tick), "ahead of the oracle", "waits at most 10 s", "nothing was stored"):
        assert part in refused.cause
    await stream.send(append(2))
    assert isinstance(await answer_of(stream), Produced)


async def test_the_setting_bounds_the_wait() -> None:
    limits = NodeLimits(barrier_wait_s_max=0.0)
    async with small_broker(node_limits=limits) as broker, connected(broker) as peer:
        stream = await produced(peer)
        await stream.send(append(1, _btt=barrier(ahead(60.0))))
        refused = await answer_of(stream)
        assert isinstance(refused, ProduceFailed)
        assert "at most 0 s" in refused.cause


async def test_a_producer_may_say_how_long_it_waits(peer: Peer) -> None:
    stream = await produced(peer)
    await stream.send(append(1, _btt=barrier(ahead(60.0)), _btt_wait_ms="1000"))
    refused = await answer_of(stream)
    assert isinstance(refused, ProduceFailed)
    assert "at most 1 s" in refused.cause
    await stream.send(append(2, _btt=barrier(ahead(60.0)), _btt_wait_ms="soon"))
    refused = await answer_of(stream)
    assert isinstance(refused, ProduceFailed)
    assert refused.code == Code.INVALID_ARGUMENT
    assert "'soon'" in refused.cause


async def test_a_half_close_waits_for_it(peer: Peer) -> None:
    stream, tick = await produced(peer), ahead(1.0)
    await stream.send(append(1, _btt=barrier(tick)), HALF_CLOSE_REQUEST)
    await stream.half_close()
    answer = await answer_of(stream)
    assert isinstance(answer, Produced)
    assert answer.tick > tick
    assert scan_produce_response(await stream.receive()) == Closed()
    assert await stream.status() == (0, None)


async def test_a_producer_that_leaves_during_the_wait_has_stored_nothing() -> None:
    async with patient_broker() as broker:
        for ahead_s in (1.0, 4.0, 16.0, 48.0):
            waits, tick = b"waits %d" % ahead_s, ahead(ahead_s)
            if await left_while_it_waits(broker, waits, tick):
                break
        else:
            pytest.fail("the broker keeps who has left, or the machine needs more than 48 s")
        async with connected(broker) as peer:
            stream = await produced(peer)
            await stream.send(append(1, b"last", _btt=barrier(tick + (200 << 18))))
            last = await answer_of(stream)
            assert isinstance(last, Produced)
            found = await until_tick(await opened(peer, request(ALL, vchannel=V0)), last.tick)
            payloads = [it.payload for it in found if not is_tick(it)]
            assert waits not in payloads
            assert payloads[-2:] == [b"first", b"last"]


async def left_while_it_waits(broker: SmallBroker, waits: bytes, tick: int) -> bool:
    """Whether the producer was gone before the oracle was at the tick that `waits` waits for."""
    async with connected(broker) as peer:
        stream = await produced(peer)
        await stream.send(append(1, waits, _btt=barrier(tick)), append(2, b"first"))
        assert isinstance(await answer_of(stream), Produced)
        stream.call.cancel()
    with anyio.fail_after(ANSWER_S):
        while broker.edge.open_calls:
            await anyio.lowlevel.checkpoint()
    return ahead(0.0) < tick


async def test_a_call_whose_deadline_passes_during_the_wait_has_stored_nothing(peer: Peer) -> None:
    for timeout_s in (1.0, 4.0, 16.0):
        tick = ahead(timeout_s + 3.0)
        if await cut_off_while_it_waits(peer, tick, timeout_s):
            break
    else:
        pytest.fail("the machine needs more than 16 s for one append")
    stream = await produced(peer)
    await stream.send(append(1, b"last", _btt=barrier(tick + 1)))
    last = await answer_of(stream)
    assert isinstance(last, Produced)
    found = await until_tick(await opened(peer, request(ALL, vchannel=V0)), last.tick)
    payloads = [it.payload for it in found if not is_tick(it)]
    assert b"waits" not in payloads
    assert payloads[-2:] == [b"first", b"last"]


async def cut_off_while_it_waits(peer: Peer, tick: int, timeout_s: float) -> bool:
    """Whether the call's deadline passed during the wait, not before it, as on a busy machine."""
    header = create_header(CreateHeader(P0, FIRST_TERM))
    call = peer.channel.stream_stream(PRODUCE)(
        metadata=((CREATE_PRODUCER, header),), timeout=timeout_s
    )
    stream = PeerStream(call)
    try:
        await stream.receive()
        await stream.send(append(1, b"waits", _btt=barrier(tick)), append(2, b"first"))
        assert isinstance(await answer_of(stream), Produced)
    except Ended as late:
        if late.code != grpc.StatusCode.DEADLINE_EXCEEDED.value[0]:
            raise
        return False
    with pytest.raises(Ended) as ended:
        await stream.receive()
    assert ended.value.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
    return True


async def test_a_server_that_stops_refuses_what_waits() -> None:
    async with patient_broker() as broker, connected(broker) as peer:
        stream = await produced(peer)
        await stream.send(append(1, _btt=barrier(ahead(300.0))), append(2))
        assert isinstance(await answer_of(stream), Produced)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: broker.edge.stop(deadline_s=60.0))
            refused = await answer_of(stream)
    assert isinstance(refused, ProduceFailed)
    assert refused.code == Code.ON_SHUTDOWN
    assert "nothing was stored" in refused.cause


async def test_a_transaction_is_committed_above_its_barrier(peer: Peer) -> None:
    tick = ahead(1.0)
    txn = await begun(peer, V0)
    assert isinstance(await txn.body(b"a"), Produced)
    committed = await txn.of(COMMIT, _btt=barrier(tick))
    assert isinstance(committed, Produced)
    assert committed.tick > tick
