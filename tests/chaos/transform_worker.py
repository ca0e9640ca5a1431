"""A member process that consumes, transforms and produces, until a test kills it.

    python tests/chaos/transform_worker.py SERVER

It works for two groups: one has outputs in another collection, by staged batches; the other on the
vchannel of its inputs, by transactions.
"""

import sys

import anyio

from broker.client import Client, TidemarkError, connect

STAGED, INLINE = "staged", "inline"
INPUTS, OUTPUTS = "inputs", "outputs"
MADE = b"made from "
"""Begins what the second group appends, which it then gets as well."""
LEASE_S, KEEPALIVE_S = 4.0, 3.0
PREFETCH_BYTES = 400
"""Of each vchannel: so that every batch is small, and many are under way at each kill."""


async def stage(log: Client) -> None:
    group = log.group(STAGED)
    async with group.join(INPUTS, lease_s=LEASE_S, prefetch_bytes=PREFETCH_BYTES) as member:
        async for batch in member:
            inputs = [it for it in batch.messages if not it.payload.startswith(MADE)]
            try:
                async with log.staged(keepalive_s=KEEPALIVE_S) as out:
                    for message in inputs:
                        await out.append(OUTPUTS, MADE + message.payload, key=message.payload)
                    await out.ack(batch)
            except TidemarkError:
                continue  # whole, or it comes again


async def append_beside(log: Client) -> None:
    group = log.group(INLINE)
    async with group.join(INPUTS, lease_s=LEASE_S, prefetch_bytes=PREFETCH_BYTES) as member:
        async for batch in member:
            inputs = [it for it in batch.messages if not it.payload.startswith(MADE)]
            try:
                async with log.txn(batch.vchannel, keepalive_s=KEEPALIVE_S) as txn:
                    await txn.ack(batch)
                    for message in inputs:
                        await txn.append(MADE + message.payload)
            except TidemarkError:
                continue


async def work(server: str) -> None:
    while True:
        try:
            async with connect(server) as log, anyio.create_task_group() as tasks:
                tasks.start_soon(stage, log)
                tasks.start_soon(append_beside, log)
        except* TidemarkError:
            await anyio.sleep(0.1)  # no coordinator to ask who owns what


if __name__ == "__main__":
    anyio.run(work, sys.argv[1])
