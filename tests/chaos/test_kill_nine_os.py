"""A broker is killed (kill -9) having answered what only the operating system had: all is kept."""

import asyncio
from contextlib import suppress
from pathlib import Path

from broker.client import Client, TidemarkError, connect
from broker.client.cluster.targets import NewVChannel
from tests.broker_process import BrokerProcess

V = NewVChannel("by-dev-rootcoord-dml_0_1v0")
TASKS = 8
ANSWERS = 60


async def append_until_gone(
    log: Client, task: int, answered: dict[int, bytes], enough: asyncio.Event
) -> None:
    number = 0
    with suppress(TidemarkError):
        while True:
            payload = f"{task}-{number}".encode()
            landed = await log.append_batch(V, [payload] * 3, durability="os")
            assert landed.durability == "os"
            answered |= {landed.id + at: payload for at in range(3)}
            number += 1
            if len(answered) >= ANSWERS:
                enough.set()


async def answered_before_the_kill(broker: BrokerProcess) -> dict[int, bytes]:
    answered: dict[int, bytes] = {}
    enough = asyncio.Event()
    async with connect(broker.address) as log, asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        appending = [
            tasks.create_task(append_until_gone(log, task, answered, enough))
            for task in range(TASKS)
        ]
        await enough.wait()
        broker.kill()
        for each in appending:
            each.cancel()
    return answered


async def stored(broker: BrokerProcess) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    async with connect(broker.address) as log, asyncio.timeout(120):
        async for batch in log.read_batches(V, until="now"):
            found |= dict(zip(batch.ids, batch.payloads, strict=True))
    return found


async def test_what_the_operating_system_has_survives_the_death_of_the_broker(
    tmp_path: Path,
) -> None:
    everything: dict[int, bytes] = {}
    for _ in range(2):
        broker = BrokerProcess(tmp_path)
        try:
            found = await stored(broker)
            assert everything.items() <= found.items()
            everything |= await answered_before_the_kill(broker)
        finally:
            broker.kill()
    broker = BrokerProcess(tmp_path)
    try:
        assert everything.items() <= (await stored(broker)).items()
    finally:
        broker.terminate()
