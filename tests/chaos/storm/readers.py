"""Who reads during a storm: from before it on, or from somewhere in its middle, until its end.

As messages, as batches, as rows, and as packs of a stream.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from broker.client import Client, Cut, Received, TidemarkError
from broker.client.read.batch_start import BatchStart
from broker.client.read.row_scanner import MESSAGE_ID, TIME_TICK
from broker.model.message import MessageType
from schemas.properties.keys import WAL_TERM
from tests.chaos.storm.history import Reading, Seen
from tests.chaos.storm.pack_readers import Packed, PackReader
from tests.chaos.storm.patience import patient
from tests.chaos.storm.recorder import Recorder
from tests.chaos.storm.rows import NAME, schema_of_rows

OPEN_S = 30.0
AMID_EVERY_S = 2.0
AMID_MAX = 24
BOUNDED_S = 60.0
MESSAGES, BATCHES, ROWS, PACKS = "messages", "batches", "rows", "packs"
"""The forms that one can read in."""


class Source(Protocol):
    """What the three forms have in common."""

    @property
    def closed_tick(self) -> int: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def __aiter__(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody begins to read. `until`: no further than that."""

    name: str
    vchannel: str
    form: str
    start: BatchStart
    until: Cut | None = None


@dataclass(slots=True)
class Readers:
    """`amid`: readers that begin while all is going on. `of_rows`: vchannels that have rows."""

    log: Client
    recorder: Recorder
    vchannels: tuple[str, ...]
    of_rows: tuple[str, ...]
    seed: int
    running: dict[str, anyio.CancelScope] = field(default_factory=dict)
    opening: int = 0
    enough: bool = False

    async def start(self, tasks: TaskGroup) -> None:
        """For each vchannel and form one, from its first message on; and, in a while, others."""
        for vchannel in self.vchannels:
            for form in self._forms(vchannel):
                wanted = Wanted(f"all {form} {vchannel}", vchannel, form, "all")
                tasks.start_soon(self._read, wanted)
        tasks.start_soon(self._begin_amid, tasks)

    def _forms(self, vchannel: str) -> list[str]:
        return [MESSAGES, BATCHES, PACKS, *([ROWS] if vchannel in self.of_rows else [])]

    async def _begin_amid(self, tasks: TaskGroup) -> None:
        """The oldest of them leave when there are too many: what they saw is judged, too."""
        chosen, amid = random.Random(self.seed), list[str]()
        number = 0
        while not self.enough:
            await anyio.sleep(AMID_EVERY_S)
            number += 1
            vchannel = chosen.choice(self.vchannels)
            form = chosen.choice(self._forms(vchannel))
            start: BatchStart = chosen.choice(["all", "latest"])
            until: Cut | None = None
            if (what := chosen.choice(["cut", "until", ""])) != "":
                try:
                    cut = await self.log.cut(vchannel)
                except TidemarkError:
                    continue
                start, until = (cut, None) if what == "cut" else ("all", cut)
            if form == PACKS:  # from its first message or a cut on, without an end
                start, until = (start if isinstance(start, Cut) else "all"), None
            name = f"amid {number} {form}"
            tasks.start_soon(self._read, Wanted(name, vchannel, form, start, until))
            if until is None:
                amid.append(name)
            if len(amid) > AMID_MAX:
                scope = self.running.pop(amid.pop(0), None)
                if scope is not None:
                    scope.cancel()

    async def _read(self, wanted: Wanted) -> None:
        start = wanted.start
        after = start.tick if isinstance(start, Cut) else (0 if start == "all" else None)
        with anyio.CancelScope() as scope:
            if wanted.until is None:
                self.running[wanted.name] = scope
            reader = await self._opened(wanted)
            if reader is None:
                self.running.pop(wanted.name, None)
                return
            reading = Reading(wanted.name, wanted.vchannel, after, anyio.current_time())
            reading.only = ROWS if wanted.form == ROWS else ""
            reading.bare = wanted.form != MESSAGES
            self.recorder.history.readings.append(reading)
            try:
                async for batch in reader:
                    if isinstance(batch, Packed):
                        reading = self._life(reading, batch)
                    self._take(reading, batch, reader.closed_tick)
                assert wanted.until is not None
                reading.until_tick, reading.to_the_end = wanted.until.tick, True
            except TidemarkError as error:
                if wanted.until is None or not error.retriable:  # one with an end may give up
                    reading.error = f"{type(error).__name__}: {error}"
            finally:
                await reader.close()

    def _take(self, reading: Reading, batch: Any, closed_tick: int) -> None:
        """What came, and which tick is closed by all that came."""
        came = seen_rows(batch) if reading.only else seen(batch.messages)
        if reading.bare:
            came = [it._replace(term=0) for it in came]
        reading.seen += [self.recorder.one(it) for it in came]
        if closed_tick and (not reading.closed or reading.closed[-1][1] < closed_tick):
            reading.closed.append((len(reading.seen), closed_tick))

    def _life(self, reading: Reading, pack: Packed) -> Reading:
        """The reading that the messages of the pack belong to: each life of a reader is one."""
        if pack.after_tick == reading.after_tick or not seen(pack.messages):
            return reading
        following = reading.continued(pack.after_tick)
        self.recorder.history.readings.append(following)
        return following

    def _source(self, wanted: Wanted) -> Source:
        vchannel, start, until = wanted.vchannel, wanted.start, wanted.until
        match wanted.form:
            case "messages":
                return self.log.read(vchannel, start=start, until=until)
            case "batches":
                return self.log.read_batches(vchannel, start=start, until=until)
            case "packs":
                return PackReader(self.log, vchannel, start, self.seed)
            case _:
                schema = schema_of_rows()
                return self.log.read_arrow(vchannel, start=start, until=until, schema=schema)

    async def _opened(self, wanted: Wanted) -> Source | None:
        """None when the storm is over before there was somebody to ask where it begins."""
        self.opening += 1
        try:
            while not self.enough:
                reader = self._source(wanted)
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

    async def reach(self, markers: dict[str, int]) -> None:
        """Until each that still reads has come as far as these ticks; who has not is told so."""

        def behind() -> list[Reading]:
            readings = [it for it in self.recorder.history.readings if it.name in self.running]
            for it in readings:
                it.to_the_end = True
            return [it for it in readings if not it.seen or it.seen[-1].tick < markers[it.vchannel]]

        with patient() as patience:
            while left := behind():
                patience.saw(tuple([(it.name, len(it.seen)) for it in left]))
                await anyio.sleep(0.05)
        for reading in behind():
            last = reading.seen[-1].tick if reading.seen else 0
            text = f"at tick {last} and not at the end, {markers[reading.vchannel]}"
            reading.error = reading.error or f"{text}, {patience.waited}"


def seen(messages: Iterable[Received]) -> list[Seen]:
    """What programs have sent; a row is known by its name."""
    return [
        Seen(_named(it.payload), it.id, it.tick, int(it.tags.get(WAL_TERM.key, "0"), 36))
        for it in messages
        if it.type == MessageType.INSERT
    ]


def seen_rows(rows: Any) -> list[Seen]:
    """The rows of a RecordBatch as `read_arrow` gives it."""
    columns = [rows.column(it).to_pylist() for it in (NAME, MESSAGE_ID, TIME_TICK)]
    return [Seen(name.encode(), id, tick, 0) for name, id, tick in zip(*columns, strict=True)]


def _named(payload: bytes) -> bytes:
    if not payload.startswith(b"{"):
        return payload
    name: str = json.loads(payload)[NAME]
    return name.encode()
