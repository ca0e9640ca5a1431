"""Lists everything that is measured, in the order of a round.

Each read comes after the append that it reads back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop

from benchmark import disk
from benchmark.batches import Batches
from benchmark.channels import PCHANNELS, Channels
from benchmark.command_line import CommandLine
from benchmark.figures import Round, Series
from benchmark.jetstream import JetStream
from benchmark.latency import Latency
from benchmark.milvus_protocol import MilvusProtocol
from benchmark.pace import Pace
from benchmark.redis_streams import RedisStreams
from benchmark.servers import NATS, REDIS, Server, Servers
from benchmark.transactions import Transactions

RUN_S_MAX = 120
BEFORE = "before answer"
DISK, DISK_LARGE = "bare write + sync, 64 a group", "bare write + sync, 1,000 a group"
DISK_ONE, DISK_STEP = "bare write + sync, 1 KiB", "bare write + sync, 20 KiB"
REDIS_APPEND, REDIS_READ = "Redis XADD, always", "Redis XREAD, 1,000 a call"
APPEND_RATE, READ_RATE = 10_000, 20_000
MANY_VCHANNELS = 5_000
CHANNELS_SHARE = 0.7
"""Share of `messages` that subjects with many vchannels get: each of their batches is a call."""
ROWS_A_MESSAGE = 10

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured: rounds, messages of each rate, seconds at each fixed rate."""

    rounds: int
    messages: int
    seconds: float

    @property
    def times(self) -> int:
        """The number of appends that are measured one by one."""
        return max(50, min(1000, self.messages // 60))


@dataclass(slots=True)
class Subject:
    """One thing that is measured: its results, how to run it once, and on which server."""

    series: Series
    run: Callable[[], Values]
    server: Server | None = None

    def once(self) -> None:
        """Run one round."""
        if self.server is None:
            self.series.rounds.append(Round(self.run()))
            return
        self.server.forget_peak()
        before_s = self.server.cpu_s()
        values = self.run()
        used_s = self.server.cpu_s() - before_s
        self.series.rounds.append(Round(values, used_s, self.server.peak_bytes()))


def everything(folder: Path, servers: Servers, amount: Amount) -> Iterator[Subject]:
    """All subjects of the running servers."""
    ours = servers.there["Tidemark"]
    yield from _disk(folder, amount)
    for name, setting in [(f"Redis {it}", it) for it in REDIS]:
        if name in servers.there:
            yield from _redis(servers.there[name], setting, amount)
    for name, setting in [(f"NATS {it}", it) for it in NATS]:
        if name in servers.there:
            yield from _nats(servers.there[name], setting, amount)
    milvus, batches = MilvusProtocol(ours.address), Batches(ours.address)
    yield from _appends(ours, milvus, batches, amount)
    yield from _reads(ours, milvus, batches, amount)
    yield from _latencies(ours, amount)
    yield from _channels(ours, amount)


def _disk(folder: Path, amount: Amount) -> Iterator[Subject]:
    for name, group in ((DISK, 64), (DISK_LARGE, 1000)):
        run = partial(disk.rate, folder, group, amount.messages)
        yield Subject(Series(name, "append", BEFORE), run)
    for name, group in ((DISK_ONE, 1), (DISK_STEP, 20)):
        run = partial(disk.latency, folder, group, amount.times)
        yield Subject(Series(name, "latency", "each"), run)


def _redis(server: Server, setting: str, amount: Amount) -> Iterator[Subject]:
    streams = RedisStreams(server.address)
    synced = BEFORE if setting == "always" else REDIS[setting]
    series = Series(f"Redis XADD, {setting}", "append", synced, reference=REDIS_APPEND)
    yield Subject(series, partial(streams.append, amount.messages), server)
    if setting == "always":
        series = Series(REDIS_READ, "read", BEFORE, reference=REDIS_READ)
        yield Subject(series, partial(streams.read, amount.messages), server)
    series = Series(f"Redis XADD, {setting}, one by one", "latency", synced, reference=DISK_ONE)
    yield Subject(series, partial(streams.one_by_one, amount.times), server)
    pace = Pace(APPEND_RATE, amount.seconds)
    name = f"Redis XADD, {setting}, {APPEND_RATE:,} msg/s"
    series = Series(name, "latency", synced, reference=DISK_STEP)
    yield Subject(series, _looped(partial(streams.at_pace, pace)), server)


def _nats(server: Server, setting: str, amount: Amount) -> Iterator[Subject]:
    stream = JetStream(server.address)
    synced = BEFORE if setting == "always" else NATS[setting]
    sync = f"sync {setting}"
    series = Series(f"NATS publish, {sync}", "append", synced, reference=REDIS_APPEND)
    yield Subject(series, _looped(partial(stream.append, amount.messages)), server)
    if setting == "always":
        series = Series("NATS push, in order", "read", BEFORE, reference=REDIS_READ)
        yield Subject(series, _looped(partial(stream.read, amount.messages)), server)
    series = Series(f"NATS publish, {sync}, one by one", "latency", synced, reference=DISK_ONE)
    yield Subject(series, _looped(partial(stream.one_by_one, amount.times)), server)
    pace = Pace(APPEND_RATE, amount.seconds)
    name = f"NATS publish, {sync}, {APPEND_RATE:,} msg/s"
    series = Series(name, "latency", synced, reference=DISK_STEP)
    yield Subject(series, _looped(partial(stream.at_pace, pace)), server)


def _appends(
    server: Server, milvus: MilvusProtocol, batches: Batches, amount: Amount
) -> Iterator[Subject]:
    def subject(name: str, run: Callable[[], Awaitable[Values]], synced: str = BEFORE) -> Subject:
        return Subject(
            Series(f"Tidemark {name}", "append", synced, reference=REDIS_APPEND),
            _looped(run),
            server,
        )

    count = amount.messages
    yield subject("Produce, 1,000 in flight", partial(milvus.append, count))
    for size in (100, 10):
        name = f"Produce, 10 % in txns of {size}"
        yield subject(name, partial(milvus.append_mixed, size, count))
    yield subject("append_batch, of 1,000", partial(batches.append, "fsync", count))
    yield subject("append_batch, os", partial(batches.append, "os", count), "after answer")
    yield subject("append_batch, memory", partial(batches.append, "memory", count), "after answer")
    for tasks in (256, 1000):
        name = f"append, {tasks:,} tasks"
        yield subject(name, partial(batches.append_singly, tasks, count // 2))
    yield from _transactions(server, amount)
    rows = count * ROWS_A_MESSAGE
    series = Series("Tidemark append_arrow", "rows", BEFORE, "rows/s")
    yield Subject(series, _looped(partial(batches.append_rows, rows)), server)


def _transactions(server: Server, amount: Amount) -> Iterator[Subject]:
    """Batches with some transactions, beside batches of the same size without any."""
    run = Transactions(server.address)
    for size in (100, 10):
        plain = f"Tidemark append_batch, of {size}"
        series = Series(plain, "append", BEFORE, reference=plain)
        count = amount.messages * size // 100
        yield Subject(series, _looped(partial(run.plain, size, count)), server)
        series = Series(f"{plain}, 10 % in txns", "append", BEFORE, reference=plain)
        yield Subject(series, _looped(partial(run.mixed, size, count)), server)


def _reads(
    server: Server, milvus: MilvusProtocol, batches: Batches, amount: Amount
) -> Iterator[Subject]:
    def subject(name: str, run: Callable[[], Awaitable[Values]]) -> Subject:
        series = Series(f"Tidemark {name}", "read", BEFORE, reference=REDIS_READ)
        return Subject(series, _looped(run), server)

    yield subject("Consume, catching up", partial(milvus.read, amount.messages))
    yield subject("read_batches, catching up", partial(batches.read, amount.messages))
    yield subject("read_batches, as it comes", partial(batches.tail, amount.messages))
    command_line = CommandLine(server.address, batches)
    for form in ("raw", "json"):
        run = partial(command_line.consume, form, amount.messages)
        yield subject(f"consume to a pipe, {form}", run)


def _latencies(server: Server, amount: Amount) -> Iterator[Subject]:
    def subject(
        name: str, run: Callable[[], Awaitable[Values]], beside: str, synced: str = BEFORE
    ) -> Subject:
        series = Series(f"Tidemark {name}", "latency", synced, reference=beside)
        return Subject(series, _looped(run), server)

    latency = Latency(server.address)
    one = partial(latency.one_by_one, "fsync", amount.times)
    yield subject("append, one by one", one, DISK_ONE)
    memory = partial(latency.one_by_one, "memory", amount.times)
    yield subject("append, memory, one by one", memory, DISK_ONE, "after answer")
    for rate in (APPEND_RATE, READ_RATE):
        paced = partial(latency.at_pace, Pace(rate, amount.seconds))
        yield subject(f"append, {rate:,} msg/s", paced, DISK_STEP)
    through = partial(latency.to_a_reader, Pace(READ_RATE, amount.seconds))
    yield subject(f"append to reader, {READ_RATE:,} msg/s", through, DISK_STEP)


def _channels(server: Server, amount: Amount) -> Iterator[Subject]:
    messages = max(MANY_VCHANNELS * 2, int(amount.messages * CHANNELS_SHARE))
    few = Channels(server.address, PCHANNELS, 100_000)
    many = Channels(server.address, MANY_VCHANNELS, 200_000)
    for told in ("as it comes", "catching up"):
        for channels, count in ((few, PCHANNELS), (many, MANY_VCHANNELS)):
            run = channels.tail if told == "as it comes" else channels.catch_up
            series = Series(
                f"Tidemark, {count:,} vchannels, {told}",
                "channels",
                BEFORE,
                reference=f"Tidemark, {PCHANNELS:,} vchannels, {told}",
            )
            yield Subject(series, _looped(partial(run, messages)), server)


def _looped(work: Callable[[], Awaitable[Values]]) -> Callable[[], Values]:
    """Run each call on an event loop of its own. Raises TimeoutError when it takes too long."""

    async def bounded() -> Values:
        async with asyncio.timeout(RUN_S_MAX):
            return await work()

    return lambda: uvloop.run(bounded())
