"""A proxy: takes timestamps and ids, appends flights to the partition of their month, says how far.

Its tick T promises that it appends no flight with a timestamp up to T any more.
"""

import asyncio
import time

from broker.client import Client
from broker.client.master import ProxyMember, TickOrigin
from runs.master_demo.flights import as_rows, partition_of
from runs.master_demo.flow import Flow

COLLECTION = "flights"
PORT = 19_530


async def join(log: Client, proxy: int) -> None:
    """Make the proxy known to the master."""
    await log.master.add_proxy(ProxyMember(proxy, "127.0.0.1", PORT + proxy))


async def load(log: Client, proxy: int, flow: Flow, batches_a_s: float) -> None:
    """Append batches until none are left, at most so many a second."""
    due_s = time.monotonic()
    while (work := flow.take()) is not None:
        await flow.until_partitioned(work.month)
        count = work.rows.num_rows
        first_at = await log.master.alloc_timestamp(count)
        rows = as_rows(work.rows, await log.master.ids.alloc(count), first_at, speed=flow.speed)
        await log.append_arrow(COLLECTION, rows, key="flight", partition=partition_of(work.month))
        await log.master.report_time_tick(TickOrigin.PROXIES, proxy, first_at + count - 1)
        await flow.appended(count)
        due_s = max(due_s + 1 / batches_a_s, time.monotonic() - 1)
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def keep_promising(log: Client, proxy: int) -> None:
    """Report ticks without appending anything, until cancelled: an idle proxy holds nobody up."""
    while True:
        tick = await log.master.alloc_timestamp()
        await log.master.report_time_tick(TickOrigin.PROXIES, proxy, tick)
        await asyncio.sleep(0.2)
