"""Micro-batches of transfers while broker and driver are killed in turn; then each is judged.

It owns the kills and the judgement: a micro-batch is whole when its sum is 0, the same when made
again, and holds all that the log has up to its end. Afterwards, while the transfers go on, the same
query reads the same log with an offset for each vchannel: that is what a cut is compared with.
"""

import bisect
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from broker.client import Client, connect
from tests.broker_process import BrokerProcess, free_port
from tests.spark.driver import Driver
from tests.spark.transfers.load import NAMES, VCHANNELS, Transfers
from tests.spark.transfers.made import Made
from tests.spark.transfers.query import EACH, ONE

KINDS = ("broker", "driver")
WORKERS = 8
PAUSE_S = 0.6
"""Of each worker, so that Spark keeps up and most micro-batches end where the log does."""
PROGRESS_S_MAX = 300.0
READ_S_MAX = 300.0
ENDS_MAX = 3
"""So often the driver may end by itself, without a micro-batch in between."""
LOOK_S = 0.2
TOLD_EVERY = 20


class Watched:
    """A query in its driver, and the micro-batches it makes."""

    def __init__(self, offsets: str, server: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.driver = Driver(Path(__file__).with_name("query.py"), server, folder, offsets)
        self.made = Made(folder)

    async def progress(self, wanted: int, say: Callable[[str], None]) -> None:
        """Until there are so many micro-batches; the driver is started again when it ended.

        Raises TimeoutError when none comes, RuntimeError when the driver cannot stay.
        """
        last_s, ended = anyio.current_time(), 0
        while len(self.made.batches) < wanted:
            before = len(self.made.batches)
            if self.made.look():
                last_s, ended = anyio.current_time(), 0
                self._tell(before, say)
            elif anyio.current_time() - last_s > PROGRESS_S_MAX:
                raise TimeoutError(f"no micro-batch for {PROGRESS_S_MAX} s: see {self.driver.log}")
            if not self.driver.alive:
                ended += 1
                if ended > ENDS_MAX:
                    raise RuntimeError(f"the driver ends again and again: see {self.driver.log}")
                say("the driver ended by itself; another one is started")
                self.driver.start()
            await anyio.sleep(LOOK_S)

    def _tell(self, before: int, say: Callable[[str], None]) -> None:
        now = len(self.made.batches)
        if now // TOLD_EVERY > before // TOLD_EVERY:
            say(f"{now} micro-batches, the sum changed in {len(self.made.broken)}")


@dataclass(slots=True)
class Report:
    """What was done and what came of it."""

    whole: Made
    by_channel: Made
    kills: Counter[str] = field(default_factory=Counter)
    transfers: dict[str, int] = field(default_factory=dict)
    """How many, by how they were made, while the first query ran."""
    incomplete: list[int] = field(default_factory=list)
    """Micro-batches that lack what the log has."""

    @property
    def good(self) -> bool:
        return self.whole.rows > 0 and not (
            self.whole.broken or self.whole.changed or self.incomplete
        )


class Run:
    """One broker, two queries one after the other, and what happens to the first."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._say = say
        self._listen = f"127.0.0.1:{free_port()}"
        self._whole = Watched(ONE, self._listen, folder / "one-offset")
        self._by_channel = Watched(EACH, self._listen, folder / "an-offset-each")
        self._broker: BrokerProcess | None = None
        self.report = Report(self._whole.made, self._by_channel.made)

    async def run(self, batches: int, kills: int, compared: int) -> Report:
        """`compared`: micro-batches of the other query.

        Raises TimeoutError or RuntimeError when a query makes no progress. Nothing is left running.
        """
        await self._start_broker()
        try:
            async with connect(self._listen) as log:
                transfers = Transfers(log, "transfers")
                await transfers.open_accounts()
                async with anyio.create_task_group() as tasks:
                    for worker in range(WORKERS):
                        tasks.start_soon(transfers.work, worker, PAUSE_S)
                    await self._under_kills(batches, kills)
                    self.report.transfers = dict(transfers.done)
                    await self._beside(compared)
                    tasks.cancel_scope.cancel()
                with anyio.fail_after(READ_S_MAX):
                    await self._compare(log)
        finally:
            self._whole.driver.kill()
            self._by_channel.driver.kill()
            if self._broker is not None:
                self._broker.kill()
        return self.report

    async def _under_kills(self, batches: int, kills: int) -> None:
        self._say("money moves; Spark starts, which takes from 15 s to minutes on a busy machine")
        self._whole.driver.start()
        for number in range(kills):
            await self._whole.progress(batches * (number + 1) // (kills + 1), self._say)
            await anyio.sleep(self._random.uniform(0, 1))
            await self._strike(KINDS[number % len(KINDS)])
        await self._whole.progress(batches, self._say)
        await run_sync(self._whole.driver.kill)
        self._whole.made.look()

    async def _beside(self, compared: int) -> None:
        if compared:
            self._say("now the same query with an offset for each vchannel")
            self._by_channel.driver.start()
            await self._by_channel.progress(compared, self._say)
            await run_sync(self._by_channel.driver.kill)

    async def _strike(self, kind: str) -> None:
        self.report.kills[kind] += 1
        made = len(self._whole.made.batches)
        self._say(f"kill {self.report.kills.total()}: {kind}, after {made} micro-batches")
        if kind == "driver":
            await run_sync(self._whole.driver.kill)
            self._whole.driver.start()
        else:
            assert self._broker is not None
            await run_sync(self._broker.kill)
            await self._start_broker()

    async def _start_broker(self) -> None:
        listen, data = self._listen, self._folder / "data"
        start = lambda: BrokerProcess(data, listen, pchannels=str(VCHANNELS))  # noqa: E731
        self._broker = await run_sync(start)

    async def _compare(self, log: Client) -> None:
        """With what the log holds between the last rows of one micro-batch and of the next.

        A row too many is no loss: of two copies after a crash, a later reader sees the second too.
        """
        made = sorted(self._whole.made.batches.items())
        ends = [it.tick for _, it in made]
        held = [0] * len(made)
        async for batch in log.read_batches(NAMES, until=ends[-1]):
            for tick in batch.ticks:
                held[bisect.bisect_left(ends, tick)] += 1
        self.report.incomplete = [
            number for (number, it), rows in zip(made, held, strict=True) if it.rows < rows
        ]
