"""Opens queues for tests, on a faulty store in memory or on RocksDB."""

from pathlib import Path

from actors.clock import Clock, SystemClock
from broker.core.rocksmq.page_retention import PageRules
from broker.rocksmq import IDAllocator, RocksMQ
from broker.rocksmq.opened_queue import OpenedQueue
from tests.broker.rocksmq.faulty_store import FaultyStore


def open_on(
    store: FaultyStore,
    folder: Path,
    *,
    clock: Clock | None = None,
    rules: PageRules | None = None,
    ids: IDAllocator | None = None,
) -> RocksMQ:
    """A queue over this store; the folder has the lock alone."""
    clock = clock or SystemClock()
    opened = OpenedQueue.open(folder, clock.wall_ms(), store.opener())
    return RocksMQ(opened, rules or PageRules(), clock, ids)


async def with_group(mq: RocksMQ, channel: str = "orders", group: str = "workers") -> RocksMQ:
    """The queue, with this channel and this group on it."""
    await mq.create_channel(channel)
    await mq.create_consumer_group(group, channel)
    return mq


async def payloads(mq: RocksMQ, channel: str = "orders", group: str = "workers") -> list[bytes]:
    """All that is left for the group."""
    found: list[bytes] = []
    while batch := await mq.consume(group, channel, 1000):
        found += [message.payload for message in batch]
    return found
