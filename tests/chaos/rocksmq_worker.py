"""A process with an embedded queue that is killed; it tells what it was answered, line by line.

Lines: `P <channel> <payload> <id>...` after a produce, `C <channel> <id>...` after a consume,
`K <channel> <position>` after a commit. A line is written before the program goes on.
"""

import asyncio
import os
import random
import sys

from broker.core.rocksmq.page_retention import PageRules
from broker.rocksmq import RocksMQ

CHANNELS = ("kept", "swept")
READER, KEEPER = "reader", "keeper"
"""The keeper never reads, so that nothing of its channel is removed."""
PRODUCERS = 3
RULES = PageRules(page_bytes=2_000, age_ms_max=0, size_bytes_max=None)


def tell(*words: object) -> None:
    """One write for a line, so that a kill leaves it whole or absent."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def prepare(mq: RocksMQ) -> None:
    for name in CHANNELS:
        await mq.create_channel(name, exist_ok=True)
        await mq.create_consumer_group(READER, name, exist_ok=True)
    await mq.create_consumer_group(KEEPER, "kept", exist_ok=True)


async def produce(mq: RocksMQ, life: int, who: int) -> None:
    numbers = random.Random(life * 100 + who)
    count = 0
    while True:
        name = CHANNELS[(who + count) % 2]
        texts = [f"{life}/{who}/{count}/{place}" for place in range(numbers.randrange(1, 6))]
        padding = "." * numbers.choice([0, 100, 3000])
        ids = await mq.produce(name, [(text + " " + padding).encode() for text in texts])
        tell("P", name, f"{life}/{who}/{count}", *ids)
        count += 1


async def consume(mq: RocksMQ, name: str, life: int) -> None:
    numbers = random.Random(life)
    while True:
        await mq.wait(READER, name)
        found = await mq.consume(READER, name, numbers.randrange(1, 10))
        tell("C", name, *(it.msg_id for it in found))
        if numbers.random() < 0.2:
            await mq.commit(READER, name)
            tell("K", name, found[-1].msg_id + 1)


async def sweep(mq: RocksMQ) -> None:
    while True:
        await mq.sweep()
        await asyncio.sleep(0.02)


async def work(folder: str, life: int) -> None:
    async with await RocksMQ.open(folder, rules=RULES) as mq, asyncio.TaskGroup() as tasks:
        await prepare(mq)
        tell("O", life)
        for who in range(PRODUCERS):
            tasks.create_task(produce(mq, life, who))
        for name in CHANNELS:
            tasks.create_task(consume(mq, name, life))
        tasks.create_task(sweep(mq))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))
