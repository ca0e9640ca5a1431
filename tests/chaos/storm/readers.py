"""Who reads during a storm: from before it on, or from somewhere in its middle, until its end.

Next: tests/chaos/storm/run.py
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from broker.client import Batch, Client, Cut, Received, Scanner, TidemarkError
from broker.client.start import Start
from schemas.properties import WAL_TERM
from tests.chaos.storm.history import Reading, Seen
from tests.chaos.storm.recorder import Recorder

OPEN_S = 30.0
AMID_EVERY_S = 4.0
AMID_MAX = 24


@dataclass(slots=True)
class Readers:
    """`amid`: readers that begin while all is going on."""

    log: Client
    recorder: Recorder
    vchannels: tuple[str, ...]
    seed: int
    running: dict[str, anyio.CancelScope] = field(default_factory=dict)
    opening: int = 0
    enough: bool = False

    async def start(self, tasks: TaskGroup) -> None:
        """One for each vchannel, from its first message on; and, in a while, others."""
        for vchannel in self.vchannels:
            tasks.start_soon(self._read, f"all {vchannel}", vchannel, "all")
        tasks.start_soon(self._begin_amid, tasks)

    async def _begin_amid(self, tasks: TaskGroup) -> None:
        """The oldest of them leave when there are too many: what they saw is judged, too."""
        chosen, amid = random.Random(self.seed), list[str]()
        number = 0
        while not self.enough:
            await anyio.sleep(AMID_EVERY_S)
            number += 1
            vchannel = chosen.choice(self.vchannels)
            start: Start = chosen.choice(["all", "latest"])
            if chosen.random() < 0.5:
                try:
                    start = await self.log.cut(vchannel)
                except TidemarkError:
                    continue
            name = f"amid {number}"
            tasks.start_soon(self._read, name, vchannel, start)
            amid.append(name)
            if len(amid) > AMID_MAX:
                scope = self.running.pop(amid.pop(0), None)
                if scope is not None:
                    scope.cancel()

    async def _read(self, name: str, vchannel: str, start: Start) -> None:
        after = start.tick if isinstance(start, Cut) else (0 if start == "all" else None)
        with anyio.CancelScope() as scope:
            self.running[name] = scope
            reader = await self._opened(vchannel, start)
            if reader is None:
                self.running.pop(name, None)
                return
            reading = Reading(name, vchannel, after, anyio.current_time())
            self.recorder.history.readings.append(reading)
            try:
                async for batch in reader:
                    take(reading, batch)
            except TidemarkError as error:
                reading.error = f"{type(error).__name__}: {error}"
            finally:
                await reader.close()

    async def _opened(self, vchannel: str, start: Start) -> Scanner | None:
        """None when the storm is over before there was somebody to ask where it begins."""
        self.opening += 1
        try:
            while not self.enough:
                reader = self.log.read(vchannel, start=start)
                try:
                    with anyio.fail_after(OPEN_S):
                        await reader.open()
                    return reader
                except (TidemarkError, TimeoutError):
                    await reader.close()
                    await anyio.sleep(0.1)
            return None
        finally:
            self.opening -= 1

    async def stop_opening(self, within_s: float) -> None:
        """Nobody begins to read any more when this returns."""
        self.enough = True
        with anyio.fail_after(within_s):
            while self.opening:  # noqa: ASYNC110 - a few readers, looked at now and then
                await anyio.sleep(0.05)

    async def reach(self, markers: dict[str, int], within_s: float) -> None:
        """Until each that still reads has come as far as these ticks; who has not is told so."""

        def behind() -> list[Reading]:
            readings = [it for it in self.recorder.history.readings if it.name in self.running]
            for it in readings:
                it.to_the_end = True
            return [it for it in readings if not it.seen or it.seen[-1].tick < markers[it.vchannel]]

        with anyio.move_on_after(within_s):
            while behind():  # noqa: ASYNC110 - as above
                await anyio.sleep(0.05)
        for reading in behind():
            reading.error = reading.error or f"not at the end {within_s} s after all was healed"


def take(reading: Reading, batch: Batch) -> None:
    """What came, and which tick is closed by it."""
    reading.seen += seen(batch.messages)
    if batch.closed_tick and (not reading.closed or reading.closed[-1][1] < batch.closed_tick):
        reading.closed.append((len(reading.seen), batch.closed_tick))


def seen(messages: Iterable[Received]) -> list[Seen]:
    return [
        Seen(it.payload, it.id, it.tick, int(it.tags.get(WAL_TERM.key, "0"), 36)) for it in messages
    ]
