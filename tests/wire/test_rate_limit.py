"""Milvus's rate limit on a Produce stream, and code 16, as the memory of the node gets short."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from broker.core.pressure.limit_rules import parsed_limits
from broker.core.pressure.watermarks import FASTEST_BYTES_S
from broker.edge.rpc import own_limit
from broker.model.failure import StreamingCode as Code
from broker.node.state.node_limits import NodeLimits, PressureMarks
from broker.node.state.pressure import marks_of
from schemas.generated.milvus.proto.streaming import ProduceResponse, WalRateLimitState
from schemas.wire import Produced, ProduceFailed, scan_produce_response
from tests.broker.node.world import MemoryFake
from tests.wire.peer import PeerStream, append, connected
from tests.wire.small_broker import V0, SmallBroker, small_broker

LIMITS = NodeLimits(marks=PressureMarks(memory=marks_of(80, 90, 95)))


@asynccontextmanager
async def short_of_memory(memory: MemoryFake) -> AsyncIterator[SmallBroker]:
    memory.total = 1000
    async with small_broker(memory=memory, node_limits=LIMITS) as broker:
        yield broker


def limit(frame: bytes) -> tuple[WalRateLimitState, int]:
    told = ProduceResponse.parse(frame).rate_limit
    assert told is not None, frame
    return told.state, told.rate


async def test_a_producer_is_told_of_slowdown_rejection_and_the_end_of_both() -> None:
    memory = MemoryFake()
    async with short_of_memory(memory) as broker, connected(broker) as peer:
        stream = peer.produce()
        await stream.receive()
        memory.process = 910
        assert limit(await stream.receive()) == (WalRateLimitState.SLOWDOWN, FASTEST_BYTES_S >> 1)
        await stream.send(append(1))
        assert isinstance(scan_produce_response(await stream.receive()), Produced), "only slower"
        memory.process = 960
        assert limit(await stream.receive()) == (WalRateLimitState.REJECT, 0)
        await stream.send(append(2))
        refused = scan_produce_response(await stream.receive())
        assert isinstance(refused, ProduceFailed)
        assert refused.code == Code.RATE_LIMIT_REJECTED
        assert "memory watermark REFUSE: the process uses 960 of 1000 bytes" in refused.cause
        memory.process = 100
        assert limit(await stream.receive()) == (WalRateLimitState.NORMAL, 0)
        await stream.send(append(3))
        assert isinstance(scan_produce_response(await stream.receive()), Produced)


async def test_a_stream_opened_while_appends_are_slowed_is_told_first() -> None:
    memory = MemoryFake(process=910)
    async with short_of_memory(memory) as broker, connected(broker) as peer:
        other = peer.produce()
        await other.receive()
        await other.receive()
        stream = peer.produce()
        await stream.receive()
        assert limit(await stream.receive())[0] is WalRateLimitState.SLOWDOWN


@pytest.mark.parametrize("later", ["", "collection:100 in_bytes=2KiB"])
async def test_an_idle_producer_is_told_that_its_own_limit_slows_it_no_longer(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_limit, "OWN_LIMIT_S", 0.1)
    async with small_broker() as broker, connected(broker) as peer:
        broker.edge.limit_rates(parsed_limits("collection:100 in_bytes=2KiB"))
        stream = peer.produce()
        await stream.receive()
        assert await until_told(stream) == (WalRateLimitState.SLOWDOWN, 2048)
        broker.edge.limit_rates(parsed_limits(later))
        while isinstance(scan_produce_response(frame := await stream.receive()), Produced):
            pass
        assert limit(frame) == (WalRateLimitState.NORMAL, 0)


async def until_told(stream: PeerStream) -> tuple[WalRateLimitState, int]:
    """Append until a limit is told, at a rate that the machine surely reaches some time."""
    for number in range(1, 1000):
        await stream.send(append(number, b"x" * 2000))
        frame = await stream.receive()
        if not isinstance(scan_produce_response(frame), Produced):
            return limit(frame)
    raise AssertionError("nothing was told")


async def test_a_collection_beyond_its_limit_of_storage_is_refused_alone() -> None:
    rules = parsed_limits("collection:100 storage=2000")
    async with (
        small_broker(node_limits=NodeLimits(storage=rules)) as broker,
        connected(broker) as peer,
    ):
        broker.edge.limit_rates(rules)
        stream = peer.produce()
        await stream.receive()
        number = 0
        with anyio.fail_after(60):
            while True:
                number += 1
                await stream.send(append(number, b"x" * 1000))
                answer = scan_produce_response(await stream.receive())
                if isinstance(answer, ProduceFailed):
                    break
                assert isinstance(answer, Produced), "no `rate_limit` frame: it is of the stream"
                await anyio.sleep(0.3)
        assert (answer.request_id, answer.code) == (number, Code.RATE_LIMIT_REJECTED)
        assert "collection '100' has" in answer.cause
        assert "its limit of storage is 2000" in answer.cause
        await stream.send(append(number + 1, b"x", _vc=V0.replace("100", "101")))
        assert isinstance(scan_produce_response(await stream.receive()), Produced)
        assert broker.edge.meters.limit_refused == 1
