"""A proxy: inserts and deletes flights, and promises how far it has come.

Its tick T promises that it sends no message with a timestamp up to T any more.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from broker.client import Client
from broker.client.master import ProxyMember, TickOrigin
from broker.msgstream import DeleteMsg, InsertMsg, MsgPack, MsgStream, TidemarkMsgStreamFactory

COLLECTION: Final = "flights"
PORT: Final = 19_530
DELETED_EVERY: Final = 10
IDLE_S: Final = 0.1

Batches = Iterator[Sequence[dict[str, Any]]]


async def join(log: Client, proxy: int) -> None:
    """Make the proxy known to the master."""
    await log.master.add_proxy(ProxyMember(proxy, "127.0.0.1", PORT + proxy))


async def load(log: Client, proxy: int, batches: Batches, done: asyncio.Event) -> None:
    """Send all batches that are left; then go on promising until `done` is set."""
    stream = TidemarkMsgStreamFactory(log).new_msg_stream()
    await stream.as_producer([COLLECTION])
    for rows in batches:
        first = int(await log.master.alloc_timestamp(2 * len(rows)))
        await _insert(stream, rows, first)
        await _delete(stream, rows, first + len(rows))
        # All that this proxy has taken a timestamp for is durable.
        await log.master.report_time_tick(TickOrigin.PROXIES, proxy, first + 2 * len(rows) - 1)
    while not done.is_set():
        tick = await log.master.alloc_timestamp()
        await log.master.report_time_tick(TickOrigin.PROXIES, proxy, tick)
        await asyncio.sleep(IDLE_S)
    await stream.close()


async def _insert(stream: MsgStream, rows: Sequence[dict[str, Any]], first: int) -> None:
    numbers = [row["number"] for row in rows]
    msg = InsertMsg.of_rows(
        [json.dumps(row).encode() for row in rows],
        row_ids=numbers,
        timestamps=range(first, first + len(rows)),
        hash_keys=numbers,
        collection_name=COLLECTION,
    )
    await stream.produce(MsgPack([msg]))


async def _delete(stream: MsgStream, rows: Sequence[dict[str, Any]], first: int) -> None:
    doomed = [row["number"] for row in rows if is_deleted(row["number"])]
    if not doomed:
        return
    timestamps = range(first, first + len(doomed))
    msg = DeleteMsg.of_keys(
        doomed, timestamps=timestamps, hash_keys=doomed, collection_name=COLLECTION
    )
    await stream.produce(MsgPack([msg]))


def is_deleted(number: int) -> bool:
    """Whether this flight is deleted again."""
    return number % DELETED_EVERY == 0
