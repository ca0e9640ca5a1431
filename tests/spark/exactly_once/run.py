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
from tests.spark.driver import Driver
from tests.spark.exactly_once.query import COUNTS, LATE, NUMBERS, SCHEMA, SHARDS, WINDOW

KINDS = ("task", "driver", "broker")
PROGRESS_S_MAX = 600.0
"""A driver that is killed is back in half a minute; on a machine with much else to do, in two."""
SAID_BYTES = 2_000
CHUNK = 200
CHUNKS_PER_S = 10
KEYS = 7
LOOK_S = 0.1

Row = tuple[int, str, int, int]
"""A window, its key, how many numbers, and their sum."""


class NoProgress(Exception):
    """The query has committed no micro-batch for too long; the text has what is known of it."""


@dataclass(slots=True)
class Kill:
    """What was killed, behind how many micro-batches; `back_s` until the next was there."""

    kind: str
    batches: int
    back_s: float = 0.0


@dataclass(slots=True)
class Report:
    """What was done and what came of it."""

    kills: list[Kill] = field(default_factory=list)
    drivers: int = 0
    batches: int = 0
    numbers: int = 0
    asked: int = 0
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
        self._driver = Driver(Path(__file__).with_name("query.py"), self._listen, folder)
        self._broker: BrokerProcess | None = None
        self._fed = 0
        self._feeding = True
        self.report = Report()

    async def run(self, kills: int) -> Report:
        """Raises NoProgress when the query does not come back after a kill."""
        await self._start_broker()
        try:
            async with connect(self._listen) as log:
                await log.collections.create(NUMBERS, shards=SHARDS)
                await log.collections.create(COUNTS, shards=SHARDS, schema=SCHEMA)
                self._driver.start()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._feed, log)
                    await self._progress(log)
                    for number in range(kills):
                        await anyio.sleep(self._random.uniform(0, 1.5))
                        await self._strike(log, number, KINDS[number % len(KINDS)])
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
        """Until the query has committed one more micro-batch than the report knows of.

        It is started again when it has ended.
        """
        before = self.report.batches
        with anyio.move_on_after(PROGRESS_S_MAX):
            while self.report.batches <= before:
                if not self._driver.alive:
                    self._say("the driver has ended; another one is started")
                    self._driver.start()
                await anyio.sleep(LOOK_S)
                await self._look(log)
            return
        said = self._driver.log.read_bytes()[-SAID_BYTES:].decode(errors="replace")
        raise NoProgress(
            f"micro-batch {before + 1} was not committed within {PROGRESS_S_MAX:.0f} s;"
            f" the last that the driver said:\n{said}"
        )

    async def _look(self, log: Client) -> None:
        """How many micro-batches the broker has committed."""
        try:
            apps = await log.commits.list()
        except TidemarkError as error:
            self._say(f"the broker does not say how far the query is: {error}")
        else:
            self.report.batches = max(
                [it.batch + 1 for it in apps if it.batch is not None], default=0
            )

    async def _strike(self, log: Client, number: int, kind: str) -> None:
        """Kill one; then wait for what comes behind what was committed by then."""
        if kind == "task":
            await self._kill_a_task()
        elif kind == "driver":
            await run_sync(self._driver.kill)
            self._driver.start()
        else:
            assert self._broker is not None
            await run_sync(self._broker.kill)
            await self._start_broker()
        await self._look(log)
        began_s = anyio.current_time()
        kill = Kill(kind, self.report.batches)
        self.report.kills.append(kill)
        await self._progress(log)
        kill.back_s = anyio.current_time() - began_s
        self._say(
            f"kill {number + 1}: {kind}, after {kill.batches} micro-batches;"
            f" the next one came {kill.back_s:.1f} s later"
        )

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
        self.report.numbers = sum(row[2] for row in expected)
        self.report.asked = expected.total()
        self._say(f"the last of {self.report.numbers:,} numbers; {self.report.asked:,} rows wanted")
        try:
            await self._all_found(log, self.report.asked)
            await run_sync(self._driver.kill)
            await self._look(log)
            await log.append(NUMBERS, b"%d" % ahead, key="end")
            self._say("the driver is killed once more: it must write nothing a second time")
            self._driver.start()
            await self._progress(log)
        except NoProgress as failure:  # what is missing tells more
            self._say(str(failure))
        found = await _found(log)
        self.report.rows = found.total()
        self.report.missing = sorted((expected - found).elements())
        self.report.too_many = sorted((found - expected).elements())

    async def _all_found(self, log: Client, rows: int) -> None:
        """Until so many have come out; they are counted after each micro-batch, not all the time:
        the driver needs the processor."""
        await self._look(log)
        while (found := (await _found(log)).total()) < rows:
            self._say(f"{found:,} of {rows:,} rows are there")
            await self._progress(log)
        self._say(f"{found:,} of {rows:,} rows are there")


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
