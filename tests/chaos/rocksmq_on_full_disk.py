"""An embedded queue on a disk that is filled, freed, and filled again; says `done` at the end.

Runs in a process of its own, whose folder is a small tmpfs that only it sees. With `--die` it kills
itself while the disk is full; the next one, without, finds what was acknowledged.
"""

# ruff: noqa: ASYNC240 - nothing else of the process runs while it fills a disk

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from broker.rocksmq import RocksMQ, RocksMQFull

PAYLOAD = bytes(20_000)
HEAL_S_MAX = 90.0


def fill(path: Path) -> None:
    """Take all space that is left, to the last byte."""
    filler = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for size in (1 << 16, 1 << 12, 1):
        with suppress(OSError):
            while True:
                os.write(filler, bytes(size))
    os.close(filler)


async def all_ids(mq: RocksMQ) -> list[int]:
    await mq.seek("workers", "orders", -1)
    return [it.msg_id for it in await mq.consume("workers", "orders", 10_000)]


async def until_refused(mq: RocksMQ, ids: list[int]) -> RocksMQFull:
    """What was allocated before may still be filled."""
    for _ in range(10_000):
        try:
            ids += await mq.produce("orders", [PAYLOAD] * 3)
        except RocksMQFull as error:
            return error
    raise AssertionError("the disk is not full")


async def fill_and_heal(mq: RocksMQ, filler: Path, ids: list[int], *, die: bool) -> None:
    fill(filler)
    error = await until_refused(mq, ids)
    assert "No space left" in str(error), error
    try:
        await mq.create_channel("more")
    except RocksMQFull:
        assert mq.channels() == ["orders"]
    found = [it.msg_id for it in await mq.consume("reader", "orders", 10_000)]
    assert found == ids, "reads go on, and nothing of a refused call is there"
    await mq.rewind("reader", "orders")
    await refuse_a_new_folder(filler.with_name("another"))
    if die:
        Path(filler.parent.parent, "ids.json").write_text(json.dumps(ids))
        os.kill(os.getpid(), signal.SIGKILL)
    filler.unlink()
    async with asyncio.timeout(HEAL_S_MAX):
        while True:
            try:
                ids += await mq.produce("orders", [b"healed"])
                break
            except RocksMQFull:
                await asyncio.sleep(0.1)
    assert await all_ids(mq) == ids
    async with await RocksMQ.open(filler.with_name("another")) as another:
        await another.create_channel("orders", exist_ok=True)


async def refuse_a_new_folder(folder: Path) -> None:
    """Or open it, where a few bytes were left."""
    try:
        mq = await RocksMQ.open(folder)
    except RocksMQFull:
        return
    await mq.close()


async def main(disk: Path, *, die: bool) -> None:
    filler, told = disk / "filler", disk.parent / "ids.json"
    ids: list[int] = json.loads(told.read_text()) if told.exists() else []
    filler.unlink(missing_ok=True)
    async with await RocksMQ.open(disk / "queues") as mq:
        await mq.create_channel("orders", exist_ok=True)
        for group in ("workers", "reader"):
            await mq.create_consumer_group(group, "orders", exist_ok=True)
        assert await all_ids(mq) == ids
        for _ in range(2):
            await fill_and_heal(mq, filler, ids, die=die)
    async with await RocksMQ.open(disk / "queues") as mq:
        assert await all_ids(mq) == ids
    sys.stdout.write(f"done {len(ids)}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), die="--die" in sys.argv))
