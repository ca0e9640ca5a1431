"""From a source to a sink through state, while task, driver and broker are killed; then compared.

It owns the kills: each comes some time after a micro-batch was committed since the last one. What
must have come out is worked out from the log alone, naively.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from broker.client import Client, Message, TidemarkError, connect
from tests.broker_process import BrokerProcess, free_port
from tests.spark.exactly_once.driver import Driver
from tests.spark.exactly_once.query import COUNTS, LATE, NUMBERS, SCHEMA, SHARDS, WINDOW

KINDS = ("task", "driver", "broker")
PROGRESS_S_MAX = 600.0
CHUNK = 200
CHUNKS_PER_S = 10
KEYS = 7
LOOK_S = 0.1

Row = tuple[int, str, int, int]
"""A window, its key, how many numbers, and their sum."""


@dataclass(slots=True)
class Report:
    """What was done and what came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    batches: int = 0
    numbers: int = 0
    rows: int = 0
    missing: list[Row] = field(default_factory=list)
    too_many: list[Row] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.rows > 0 and not (self.missing or self.too_many)


class Run:
    """One broker, one query, and what happens to them."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._say = say
        self._listen = f"127.0.0.1:{free_port()}"
        self._driver = Driver(self._listen, folder)
        self._broker: BrokerProcess | None = None
        self._fed = 0
        self._feeding = True
        self.report = Report()

    async def run(self, kills: int) -> Report:
        """Raises TimeoutError when the query makes no progress."""
        await self._start_broker()
        try:
            async with connect(self._listen) as log:
                await log.collections.create(NUMBERS, shards=SHARDS)
                await log.collections.create(COUNTS, shards=SHARDS, schema=SCHEMA)
                self._driver.start()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._feed, log)
                    for number in range(kills):
                        await self._progress(log)
                        await anyio.sleep(self._random.uniform(0, 1.5))
                        await self._strike(number, KINDS[number % len(KINDS)])
                    await self._progress(log)
                    self._feeding = False
                await self._compare(log)
        finally:
            self._driver.kill()
            if self._broker is not None:
                await run_sync(self._broker.kill)
        self.report.drivers = self._driver.started
        return self.report

    async def _feed(self, log: Client) -> None:
        """Numbers in their order, as fast as one can follow."""
        while self._feeding:
            chunk = range(self._fed, self._fed + CHUNK)
            messages = [Message(b"%d" % it, key=f"k{it % KEYS}") for it in chunk]
            try:
                await log.append_messages(NUMBERS, messages, atomic=False, deadline_s=120)
            except TidemarkError as error:
                self._say(f"{CHUNK} numbers from {self._fed} on are in doubt: {error}")
            self._fed += CHUNK
            await anyio.sleep(1 / CHUNKS_PER_S)

    async def _progress(self, log: Client) -> None:
        """Until the query has committed one more micro-batch; it is started again when it ended."""
        before: int | None = None
        with anyio.fail_after(PROGRESS_S_MAX):
            while before is None or self.report.batches <= before:
                if not self._driver.alive:
                    self._say("another driver is started")
                    self._driver.start()
                try:
                    apps = await log.committed_batches()
                    self.report.batches = max([1 + (it.batch or 0) for it in apps], default=0)
                    before = self.report.batches if before is None else before
                except TidemarkError as error:
                    self._say(f"the broker does not say how far the query is: {error}")
                await anyio.sleep(LOOK_S)

    async def _strike(self, number: int, kind: str) -> None:
        match kind:
            case "task":
                await self._kill_a_task()
            case "driver":
                await run_sync(self._driver.kill)
                self._driver.start()
            case _:
                assert self._broker is not None
                await run_sync(self._broker.kill)
                await self._start_broker()
        self.report.kills[kind] += 1
        self._say(f"kill {number + 1}: {kind}, after micro-batch {self.report.batches}")

    async def _kill_a_task(self) -> None:
        """They are there for a moment in each micro-batch, and longer once Spark keeps them."""
        with anyio.fail_after(PROGRESS_S_MAX):
            killed = False
            while not killed:
                killed = self._driver.kill_a_task()
                await anyio.sleep(LOOK_S / 10)

    async def _start_broker(self) -> None:
        start = lambda: BrokerProcess(self._folder / "data", self._listen)  # noqa: E731
        self._broker = await run_sync(start)

    async def _compare(self, log: Client) -> None:
        """A number far ahead closes all windows before it; then everything must come out.

        Then the driver begins once more: what it might write a second time is there after that.
        """
        ahead = self._fed + LATE + 10 * WINDOW
        await log.append(NUMBERS, b"%d" % ahead, key="end")
        expected = await _expected(log, ahead)
        found: Counter[Row] = Counter()
        with anyio.move_on_after(PROGRESS_S_MAX):
            while found.total() < expected.total():
                if not self._driver.alive:
                    self._driver.start()
                await anyio.sleep(LOOK_S)
                found = await _found(log)
        await run_sync(self._driver.kill)
        await log.append(NUMBERS, b"%d" % ahead, key="end")
        await self._progress(log)
        found = await _found(log)
        self.report.numbers, self.report.rows = sum(row[2] for row in expected), found.total()
        self.report.missing = sorted((expected - found).elements())
        self.report.too_many = sorted((found - expected).elements())


async def _expected(log: Client, ahead: int) -> Counter[Row]:
    """Each window of each key with what the log has of it."""
    windows: dict[tuple[int, str], list[int]] = {}
    async for batch in log.read_batches(NUMBERS, until="now"):
        for key, payload in zip(batch.keys, batch.payloads, strict=True):
            number = int(payload)
            if number != ahead:
                place = number // WINDOW * WINDOW, (key or b"").decode()
                windows.setdefault(place, []).append(number)
    return Counter((first, key, len(it), sum(it)) for (first, key), it in windows.items())


async def _found(log: Client) -> Counter[Row]:
    found: Counter[Row] = Counter()
    async for batch in log.read_arrow(COUNTS, until="now"):
        columns = [batch.column(name).to_pylist() for name in ("first", "key", "rows", "total")]
        found.update(zip(*columns, strict=True))
    return found
