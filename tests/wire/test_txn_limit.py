"""The limit of open transactions of an identity, as Milvus's producers meet it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.core.pressure.limit_rules import parsed_limits
from broker.model.failure import StreamingCode as Code
from schemas.wire import Produced, ProduceFailed, scan_produce_response
from tests.wire.peer import Peer, PeerStream, append, connected
from tests.wire.small_broker import SmallBroker, small_broker
from tests.wire.test_barrier_ticks import ahead, barrier
from tests.wire.test_transactions import (
    BEGIN,
    COMMIT,
    DROP_COLLECTION,
    ROLLBACK,
    Txn,
    begun,
    producing,
)


@asynccontextmanager
async def world(limits: str) -> AsyncIterator[tuple[SmallBroker, Peer]]:
    async with small_broker() as broker, connected(broker) as peer:
        broker.edge.limit_rates(parsed_limits(limits))
        yield broker, peer


@pytest.mark.parametrize("end", [COMMIT, ROLLBACK])
async def test_a_begin_beyond_the_limit_is_refused_until_one_has_ended(end: str) -> None:
    async with world("identity:127.0.0.1 transactions=2") as (_, peer):
        first, second = await begun(peer), await begun(peer)
        third = Txn(await producing(peer))
        assert await third.say(BEGIN) is Code.RATE_LIMIT_REJECTED
        assert isinstance(await second.body(b"open ones go on"), Produced)
        assert isinstance(await first.of(end), Produced)
        await third.begin()
        assert await first.say(BEGIN) is Code.RATE_LIMIT_REJECTED


async def test_transactions_that_a_drop_ends_count_no_longer() -> None:
    async with world("identity:* transactions=1") as (_, peer):
        txn = await begun(peer)
        assert await txn.say(BEGIN) is Code.RATE_LIMIT_REJECTED
        assert isinstance(await txn.say(DROP_COLLECTION), Produced)
        await txn.begin()


async def test_a_begin_that_the_log_refuses_takes_no_place() -> None:
    async with world("identity:* transactions=1") as (_, peer):
        txn = Txn(await producing(peer), vchannel="")
        assert await txn.say(BEGIN, _vc="") is not Code.RATE_LIMIT_REJECTED
        txn.vchannel = Txn(txn.stream).vchannel
        await txn.begin()


async def test_without_such_a_limit_any_number_may_be_open() -> None:
    async with world("identity:bob transactions=1; identity:* streams=9") as (_, peer):
        for _ in range(3):
            await begun(peer)


async def test_begins_and_rows_that_wait_for_a_tick_are_held_to_limits_too() -> None:
    async with world("identity:* transactions=1 in_bytes=1") as (_, peer):
        txn = await begun(peer)
        assert await txn.say(BEGIN, _btt=barrier(ahead(0.2))) is Code.RATE_LIMIT_REJECTED
        for number in (1, 2):
            await txn.stream.send(append(number, b"x" * 100, _btt=barrier(ahead(0.2))))
        answers = [await appended(txn.stream), await appended(txn.stream)]
        refused = next(it for it in answers if isinstance(it, ProduceFailed))
        assert (refused.request_id, refused.code) == (2, Code.RATE_LIMIT_REJECTED)
        assert sum(isinstance(it, Produced) for it in answers) == 1, "the burst, and a long debt"


async def appended(stream: PeerStream) -> Produced | ProduceFailed:
    """The next answer to an append, behind frames that tell of limits."""
    while True:
        answer = scan_produce_response(await stream.receive())
        if isinstance(answer, Produced | ProduceFailed):
            return answer
