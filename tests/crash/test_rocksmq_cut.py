"""RocksDB's log of an embedded queue, cut where a kill or a power cut may end it."""

import random
import shutil
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

from broker.core.rocksmq.page_retention import PageRules
from broker.core.rocksmq.queue_table import QueueTable
from broker.rocksmq import RocksMQ
from broker.rocksmq.opened_queue import OpenedQueue

RULES = PageRules(page_bytes=500, age_ms_max=0, size_bytes_max=None)
CUTS = 120


@dataclass(frozen=True)
class Moment:
    """After a call was acknowledged: the size of the log, and what is stored."""

    log_bytes: int
    channels: dict[str, object]
    messages: list[tuple[bytes, bytes]]


def log_of(folder: Path) -> Path:
    (log,) = (folder / "store").glob("*.log")
    return log


def moment(folder: Path, opened: OpenedQueue) -> Moment:
    messages = opened.store.scan(b"data/", b"data0", limit=100_000, bytes_max=1 << 30)
    return Moment(log_of(folder).stat().st_size, channels(opened.table), messages)


def channels(table: QueueTable) -> dict[str, object]:
    return dict(table.channels)


async def lived(folder: Path, image: Path) -> list[Moment]:
    """The moments of one life, one after each write; `image`: its folder as a kill leaves it."""
    numbers, moments = random.Random(3), []
    async with await RocksMQ.open(folder, rules=RULES) as mq:

        async def call(done: Awaitable[object]) -> None:
            await done
            moments.append(moment(folder, mq._opened))

        for name in ("a", "b"):
            await call(mq.create_channel(name))
            await call(mq.create_consumer_group("workers", name))
        for turn in range(25):
            name = numbers.choice("ab")
            sizes = [numbers.randrange(400) for _ in range(4)]
            await call(mq.produce(name, [numbers.randbytes(size) for size in sizes]))
            await mq.consume("workers", name, 3)
            await call(mq.commit("workers", name))
            if turn == 15:
                await call(mq.destroy_channel("b"))
                await call(mq.create_channel("b"))
                await call(mq.create_consumer_group("workers", "b"))
        shutil.copytree(folder, image)
    return moments


async def test_a_log_cut_anywhere_is_what_was_acknowledged_up_to_there(tmp_path: Path) -> None:
    moments = await lived(tmp_path / "life", tmp_path / "image")
    sizes = [it.log_bytes for it in moments]
    assert sizes == sorted(set(sizes)), "each call is one write"
    log = log_of(tmp_path / "image")
    whole = log.read_bytes()[: sizes[-1]]
    chosen = random.Random(5)
    ends = chosen.sample(sizes[1:], 20)
    cuts = {*ends, *(it - 1 for it in ends), *(it + 1 for it in ends if it < sizes[-1])}
    cuts |= {chosen.randrange(sizes[0], sizes[-1]) for _ in range(CUTS - len(cuts))}
    for cut in sorted(cuts):
        folder = tmp_path / "cut"
        shutil.copytree(tmp_path / "image", folder)
        log_of(folder).write_bytes(whole[:cut])
        opened = OpenedQueue.open(folder, 1)
        try:
            wanted = max((it for it in moments if it.log_bytes <= cut), key=lambda it: it.log_bytes)
            found = opened.store.scan(b"data/", b"data0", limit=100_000, bytes_max=1 << 30)
            assert channels(opened.table) == wanted.channels
            assert found == wanted.messages
        finally:
            opened.close()
            shutil.rmtree(folder)
