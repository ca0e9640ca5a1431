"""The limit of open streams of an identity, as readers meet it."""

from collections.abc import Awaitable, Callable

import pytest

from broker.core.pressure.limit_rules import parsed_limits
from broker.model.failure import StreamingCode as Code
from schemas.generated.tidemark import v1
from tests.wire.peer import Peer, PeerStream, connected
from tests.wire.small_broker import V0, SmallBroker, small_broker
from tests.wire.test_consume import request
from tests.wire.test_read import reading


async def read(peer: Peer) -> PeerStream:
    return await reading(peer, v1.ReadOpen(vchannels=[V0]))


async def consume(peer: Peer) -> PeerStream:
    stream = peer.consume()
    await stream.receive()
    await stream.send(request())
    return stream


def scanners(broker: SmallBroker) -> list[str]:
    return [it.path for it in broker.system.statistics() if "/scanner" in it.path]


@pytest.mark.parametrize("opened", [read, consume])
async def test_a_reader_beyond_the_limit_is_refused_and_leaves_no_scanner(
    opened: Callable[[Peer], Awaitable[PeerStream]],
) -> None:
    async with small_broker() as broker, connected(broker) as peer:
        first = await opened(peer)
        await first.receive()
        before = scanners(broker)
        assert before
        broker.edge.limit_rates(parsed_limits("identity:* streams=1"))
        for _ in range(3):
            _, error = await (await opened(peer)).status()
            assert error is not None
            assert error.code == Code.RATE_LIMIT_REJECTED
            assert "has 1 streams open, which is its limit" in error.cause
        assert scanners(broker) == before
