"""Queues that implement `broker/ports/queues/message_queue.py`: each can be closed and opened."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from broker.client import connect
from broker.client.group_queue import GroupQueue
from broker.ports.queues.message_queue import MessageQueue
from broker.rocksmq import RocksMQ, RocksQueue
from tests.local_broker import local_broker

Opened = AbstractAsyncContextManager[MessageQueue]


@asynccontextmanager
async def rocksmq(folder: Path) -> AsyncIterator[MessageQueue]:
    async with await RocksMQ.open(folder / "queues") as mq:
        await mq.create_channel("orders", exist_ok=True)
        yield RocksQueue(mq, "orders")


@asynccontextmanager
async def tidemark(folder: Path) -> AsyncIterator[MessageQueue]:
    async with local_broker(folder, pchannels=2) as broker, connect(broker.address) as log:
        if not [it for it in await log.collections.list() if it.name == "orders"]:
            await log.collections.create("orders", shards=1)
        yield GroupQueue(log, "orders")


DRIVERS: dict[str, Callable[[Path], Opened]] = {"rocksmq": rocksmq, "tidemark": tidemark}
