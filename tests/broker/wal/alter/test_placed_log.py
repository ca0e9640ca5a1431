"""A log that is held for a switch keeps all that it has, and says so."""

from collections.abc import Awaitable, Callable

import pytest

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.retention.dead import Dead
from broker.model.retention.policy import Retention
from broker.ports.wal import LogMoves
from broker.wal.alter.placed_log import PlacedLog
from broker.wal.memory_wal import MemoryWal
from tests.broker.wal.some_records import record

CHANNEL = PChannelName("c")


async def two_segments() -> PlacedLog:
    log = PlacedLog(await MemoryWal(segment_bytes=1000).open(CHANNEL, Term(1)), "here")
    for id in (1, 2):
        await log.append([record(id, size=2000)])
    return log


ASKED: dict[str, Callable[[PlacedLog], Awaitable[object]]] = {
    "contents": lambda log: log.contents(None),
    "give_back": lambda log: log.give_back(log.driver.segments()[0], Dead()),
    "look": lambda log: log.look(log.driver.segments()[0], lambda _: True),
    "thin": lambda log: log.thin(log.driver.segments()[0], lambda _: ()),
}


@pytest.mark.parametrize("asked", ASKED)
async def test_while_it_is_held_nothing_is_read_or_rewritten(asked: str) -> None:
    log = await two_segments()
    await log.hold()
    with pytest.raises(LogMoves):
        await ASKED[asked](log)
    log.release()
    await ASKED[asked](log)
    await log.close()


async def test_while_it_is_held_retention_removes_nothing() -> None:
    log = await two_segments()
    await log.hold()
    assert await log.truncate(MessageId(2), Retention(bytes_max=1), 0) == 1
    log.release()
    assert await log.truncate(MessageId(2), Retention(bytes_max=1), 0) == 2
    await log.close()
