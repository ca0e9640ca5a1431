"""Measures queues that are embedded in the process, beside a bare loop of synced write batches.

In slices that take turns, so that all see the same load of the machine. Every batch is durable
before the next one of its producer begins.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import rocksdict
import uvloop

from benchmark import names
from benchmark.baselines.disk import BODY
from benchmark.measures.master.together import Values
from benchmark.results.figures import RATE
from broker.rocksmq import RocksMQ

SLICES = 8
TASKS = 8
CONSUME = 1_000
ID_BYTES = 8
RUN_S_MAX = 300

Slice = Callable[[int], Awaitable[None]]
"""Handles so many batches."""


class EmbeddedQueues:
    """Each round has queues of its own, below `folder`."""

    def __init__(self, folder: Path, size: int, batches: int) -> None:
        """`batches` of `size` messages."""
        self._folder, self._size, self._batches = folder, size, batches

    def measure(self) -> Mapping[str, Values]:
        """Messages a second of each."""
        with TemporaryDirectory(dir=self._folder) as place:
            run = asyncio.wait_for(self._measured(Path(place)), RUN_S_MAX)
            return uvloop.run(run)

    async def _measured(self, place: Path) -> dict[str, Values]:
        each = max(1, self._batches // SLICES)
        took_s: dict[str, float] = {}
        async with _queues(place, self._size) as queues:
            for _ in range(SLICES):
                for name, run in queues.items():
                    began_s = time.perf_counter()
                    await run(each)
                    took_s[name] = took_s.get(name, 0.0) + time.perf_counter() - began_s
        messages = each * SLICES * self._size
        return {name: {RATE: messages / it} for name, it in took_s.items()}


@asynccontextmanager
async def _queues(place: Path, size: int) -> AsyncIterator[dict[str, Slice]]:
    payloads = [BODY] * size
    with closing(_bare(place / "bare")) as bare, closing(_sqlite(place / "sqlite")) as table:
        async with await RocksMQ.open(place / "rocksmq") as mq:
            await mq.create_channel("one")
            await mq.create_consumer_group("workers", "one")
            await mq.create_channel("many")
            yield {
                names.bare_batches(size): BareLoop(bare, payloads).write,
                names.rocksmq(size): RocksMQLoad(mq, payloads).produce,
                names.rocksmq_tasks(size): RocksMQLoad(mq, payloads).produce_by_tasks,
                names.rocksmq_reads(size): RocksMQLoad(mq, payloads).consume,
                names.sqlite_queue(size): SqliteQueue(table, payloads).write,
            }


def _bare(folder: Path) -> rocksdict.Rdict:
    return rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))


def _sqlite(path: Path) -> sqlite3.Connection:
    table = sqlite3.connect(path, isolation_level=None)
    table.execute("PRAGMA journal_mode=WAL")
    table.execute("PRAGMA synchronous=FULL")
    table.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB)")
    return table


class BareLoop:
    """Write batches of RocksDB with the same payloads under counted keys, each one synced."""

    def __init__(self, store: rocksdict.Rdict, payloads: list[bytes]) -> None:
        self._store, self._payloads, self._next = store, payloads, 0
        self._synced = rocksdict.WriteOptions()
        self._synced.sync = True

    async def write(self, batches: int) -> None:
        """Blocks the loop: nothing else runs."""
        for _ in range(batches):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for number, payload in enumerate(self._payloads, self._next):
                batch.put(b"data/" + number.to_bytes(ID_BYTES, "big"), payload)
            self._next += len(self._payloads)
            self._store.write(batch, self._synced)


class SqliteQueue:
    """Inserts into a table, in a transaction for each batch, with `synchronous=FULL`."""

    def __init__(self, table: sqlite3.Connection, payloads: list[bytes]) -> None:
        self._table, self._rows = table, [(it,) for it in payloads]

    async def write(self, batches: int) -> None:
        """Blocks the loop, as the bare loop."""
        for _ in range(batches):
            self._table.execute("BEGIN IMMEDIATE")
            self._table.executemany("INSERT INTO queue (payload) VALUES (?)", self._rows)
            self._table.execute("COMMIT")


class RocksMQLoad:
    """Producers and a consumer of an embedded RocksMQ."""

    def __init__(self, mq: RocksMQ, payloads: list[bytes]) -> None:
        self._mq, self._payloads = mq, payloads

    async def produce(self, batches: int, channel: str = "one") -> None:
        """One producer, which awaits each batch."""
        for _ in range(batches):
            await self._mq.produce(channel, self._payloads)

    async def produce_by_tasks(self, batches: int) -> None:
        """So many producers at once, which share the batches, and syncs."""
        async with asyncio.TaskGroup() as tasks:
            for it in range(TASKS):
                share = batches // TASKS + (it < batches % TASKS)
                tasks.create_task(self.produce(share, "many"))

    async def consume(self, batches: int) -> None:
        """Take what the one producer has produced in this slice."""
        left = batches * len(self._payloads)
        while left:
            left -= len(await self._mq.consume("workers", "one", min(left, CONSUME)))
