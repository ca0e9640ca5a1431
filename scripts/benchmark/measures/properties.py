"""Measures appends from 50 tasks, with properties that differ in each message and without any."""

import asyncio
import time

from benchmark.baselines.disk import BODY
from benchmark.results.figures import RATE
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_3_5v0")
TASKS = 50


class Properties:
    """Appends to one server with the Python client, which gathers batches."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def append(self, messages: int, *, distinct: bool) -> dict[str, float]:
        """Append from tasks that each await one message."""
        each = messages // TASKS
        async with connect(self._address) as log:
            await log.append(VCHANNEL, BODY)
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for task in range(TASKS):
                    numbers = range(task * each, (task + 1) * each)
                    group.create_task((_distinct if distinct else _plain)(log, numbers))
            sent = each * TASKS
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}


async def _plain(log: Client, numbers: range) -> None:
    for _ in numbers:
        await log.append(VCHANNEL, BODY)


async def _distinct(log: Client, numbers: range) -> None:
    for number in numbers:
        await log.append(VCHANNEL, BODY, properties={"trace": f"trace-{number:012}"})
