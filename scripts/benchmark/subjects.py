"""Lists everything that is measured, in the order of a round.

Each read comes after the append that it reads back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import uvloop

from benchmark import names
from benchmark.baselines import disk
from benchmark.baselines.jetstream import JetStream
from benchmark.baselines.kafka_server import NAME as KAFKA
from benchmark.baselines.kafka_topics import FLUSH, KafkaTopic
from benchmark.baselines.rabbitmq_server import NAME as RABBITMQ
from benchmark.baselines.rabbitmq_stream import BATCH, RabbitMQStream
from benchmark.baselines.redis_streams import RedisStreams
from benchmark.load.pace import Pace
from benchmark.measures.announced import Announced
from benchmark.measures.batches import Batches
from benchmark.measures.channels import PCHANNELS, Channels
from benchmark.measures.command_line import CommandLine
from benchmark.measures.groups import GroupTakes
from benchmark.measures.grpc_go_clients import GoClients
from benchmark.measures.idle import Idle
from benchmark.measures.idle_groups import IdleGroups
from benchmark.measures.latency import Latency
from benchmark.measures.master.together import Together, Values
from benchmark.measures.memory import Memory
from benchmark.measures.milvus_protocol import MilvusProtocol
from benchmark.measures.properties import Properties
from benchmark.measures.rebalances import Rebalances
from benchmark.measures.streams import Streams
from benchmark.measures.transactions import Transactions
from benchmark.processes import Server
from benchmark.results.figures import Series
from benchmark.results.questions import (
    ANNOUNCED,
    AS_IT_COMES,
    CATCHING_UP,
    FRAMES,
    GROUPS,
    GROUPS_ONE,
    IDLE_READER,
    IDLE_SERVER,
    MEMORY,
    ONE_BY_ONE,
    PACED,
    PROPERTIES,
    STREAM_READS,
    STREAM_SENDS,
    many_channels,
    txns_of,
)
from benchmark.servers import NATS, REDIS, Servers
from benchmark.subject import Amount, Subject
from benchmark.subjects_apart import apart
from broker.client import Durability

R = TypeVar("R")
RUN_S_MAX = 120
BEFORE, AFTER, BY_SYSTEM = "before answer", "after answer", "by the system"
APPEND_RATE, READ_RATE = 10_000, 20_000
MANY_VCHANNELS = 5_000
CHANNELS_SHARE = 0.7
"""Share of `messages` that subjects with many vchannels get: each of their batches is a call."""
ROWS_A_MESSAGE = 10
NATS_SHARE = 4
"""NATS takes so many messages fewer: it syncs each one when they are published."""
TXN_SIZES = (100, 10)


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
    if KAFKA in servers.there:
        yield from _kafka(servers.there[KAFKA], amount)
    if RABBITMQ in servers.there:
        yield from _rabbitmq(servers.there[RABBITMQ], amount)
    milvus, batches = MilvusProtocol(ours.address), Batches(ours.address)
    go = GoClients(ours.address)
    yield from _latencies(ours, amount)
    yield from _frames(ours, milvus, go, amount)
    yield from _appends(ours, batches, amount)
    yield from _frame_reads(ours, milvus, go, amount)
    yield from _reads(ours, batches, amount)
    yield from _groups(ours, servers, batches, amount)
    yield from _properties(ours, amount)
    yield from _announced(ours, amount)
    yield from _transactions(ours, amount)
    yield from _channels(ours, amount)
    yield from _streams(ours, amount)
    memory = Memory(servers.there)
    for server in servers.there.values():
        yield Subject(Series(server.name, MEMORY), partial(memory.now, server.name))
    yield from _idle(folder, servers, amount)
    yield from _idle_groups(folder, amount)
    later = partial(memory.later, ours.name)
    yield Subject(Series(names.TIDEMARK_LATER, MEMORY), later)
    # Last, on brokers of their own: the subjects above are measured as if these were not there.
    yield from apart(folder, amount)


def _disk(folder: Path, amount: Amount) -> Iterator[Subject]:
    for name, group in ((names.DISK, 64), (names.DISK_LARGE, 1000)):
        run = partial(disk.rate, folder, group, amount.messages)
        yield Subject(Series(name, "append", BEFORE), run)
    for name, group, kind in ((names.DISK_ONE, 1, ONE_BY_ONE), (names.DISK_STEP, 20, PACED)):
        run = partial(disk.latency, folder, group, amount.times)
        yield Subject(Series(name, kind, "each"), run)


def _redis(server: Server, setting: str, amount: Amount) -> Iterator[Subject]:
    streams = RedisStreams(server.address)
    synced = BEFORE if setting == "always" else REDIS[setting]
    one_by_one = partial(streams.one_by_one, amount.times)
    name = f"Redis XADD, {setting}"
    yield Subject(Series(f"{name}, one by one", ONE_BY_ONE, synced), one_by_one, server)
    append = partial(streams.append, amount.messages)
    yield Subject(Series(name, "append", synced), append, server)
    if setting == "always":
        read = partial(streams.read, amount.messages)
        yield Subject(Series(names.REDIS_READ, "read", BEFORE), read, server)
    paced = _looped(partial(streams.at_pace, Pace(APPEND_RATE, amount.seconds)))
    yield Subject(Series(f"{name}, {APPEND_RATE:,} msg/s", PACED, synced), paced, server)


def _nats(server: Server, setting: str, amount: Amount) -> Iterator[Subject]:
    stream = JetStream(server.address)
    synced = BEFORE if setting == "always" else NATS[setting]
    name = f"NATS publish, sync {setting}"
    one_by_one = _looped(partial(stream.one_by_one, amount.times))
    yield Subject(Series(f"{name}, one by one", ONE_BY_ONE, synced), one_by_one, server)
    append = _looped(partial(stream.append, amount.messages))
    yield Subject(Series(name, "append", synced), append, server)
    if setting == "always":
        read = _looped(partial(stream.read, amount.messages))
        yield Subject(Series("NATS push, in order", "read", BEFORE), read, server)
    paced = _looped(partial(stream.at_pace, Pace(APPEND_RATE, amount.seconds)))
    yield Subject(Series(f"{name}, {APPEND_RATE:,} msg/s", PACED, synced), paced, server)


def _kafka(server: Server, amount: Amount) -> Iterator[Subject]:
    for flush in FLUSH:
        topic = KafkaTopic(server.address, flush)
        synced = BY_SYSTEM if flush == "default" else BEFORE
        name = f"Kafka, {flush}"
        one_by_one = partial(topic.one_by_one, amount.times)
        yield Subject(Series(f"{name}, one by one", ONE_BY_ONE, synced), one_by_one, server)
        append = partial(topic.append, amount.messages)
        yield Subject(Series(name, "append", synced), append, server)
        if flush == "default":
            read = partial(topic.read, amount.messages)
            yield Subject(Series("Kafka consume", "read", synced), read, server)


def _rabbitmq(server: Server, amount: Amount) -> Iterator[Subject]:
    """RabbitMQ has one level: its confirms never wait for a sync."""
    stream = RabbitMQStream(server.address)
    name, pace = "RabbitMQ stream", Pace(APPEND_RATE, amount.seconds)
    for told, kind, run in (
        ("one by one", ONE_BY_ONE, partial(stream.one_by_one, amount.times)),
        ("1,000 in flight", "append", partial(stream.append, 1, amount.messages)),
        (f"batches of {BATCH}", "append", partial(stream.append, BATCH, amount.messages)),
        ("read", "read", partial(stream.read, amount.messages)),
        (f"{APPEND_RATE:,} msg/s", PACED, partial(stream.at_pace, pace)),
    ):
        yield Subject(Series(f"{name}, {told}", kind, BY_SYSTEM), _looped(run), server)


def _ours(
    server: Server, kind: str, name: str, run: Callable[[], Awaitable[Values]], synced: str = BEFORE
) -> Subject:
    return Subject(Series(name, kind, synced), _looped(run), server)


def _frames(
    server: Server, milvus: MilvusProtocol, go: GoClients, amount: Amount
) -> Iterator[Subject]:
    for name, run in ((names.PRODUCE, milvus.append), (names.PRODUCE_GO, go.produce)):
        yield _ours(server, FRAMES, name, partial(run, amount.messages))
    for size in TXN_SIZES:
        name = f"Tidemark Produce, 10 % in txns of {size}"
        mixed = partial(milvus.append_mixed, size, amount.messages)
        yield _ours(server, FRAMES, name, mixed)


def _appends(server: Server, batches: Batches, amount: Amount) -> Iterator[Subject]:
    levels: tuple[tuple[str, Durability, str], ...] = (
        ("of 1,000", "fsync", BEFORE),
        ("os", "os", AFTER),
        ("memory", "memory", AFTER),
    )
    for name, durability, synced in levels:
        run = partial(batches.append, durability, amount.messages)
        yield _ours(server, "append", f"Tidemark append_batch, {name}", run, synced)
    for tasks in (256, 1000):
        run = partial(batches.append_singly, tasks, amount.messages // 2)
        yield _ours(server, "append", f"Tidemark append, {tasks:,} tasks", run)
    rows = partial(batches.append_rows, amount.messages * ROWS_A_MESSAGE)
    series = Series("Tidemark append_arrow", "rows", BEFORE, "rows/s")
    yield Subject(series, _looped(rows), server)


def _frame_reads(
    server: Server, milvus: MilvusProtocol, go: GoClients, amount: Amount
) -> Iterator[Subject]:
    for name, run in ((names.CONSUME, milvus.read), (names.CONSUME_GO, go.consume)):
        yield _ours(server, "read", name, partial(run, amount.messages))


def _reads(server: Server, batches: Batches, amount: Amount) -> Iterator[Subject]:
    catching_up = _ours(server, "read", names.CATCHING_UP, partial(batches.read, amount.long))
    catching_up.warm = _looped(partial(batches.warm, amount.long))
    yield catching_up
    yield _ours(server, "read", names.LIVE, partial(batches.tail, amount.messages))
    command_line = CommandLine(server.address, batches)
    for form in ("raw", "json"):
        run = partial(command_line.consume, form, amount.messages)
        yield _ours(server, "read", f"Tidemark consume to a pipe, {form}", run)


def _groups(
    server: Server, servers: Servers, batches: Batches, amount: Amount
) -> Iterator[Subject]:
    """Of one member; each beside the same work of the baselines, on what they appended."""
    takes = GroupTakes(server.address, batches)
    all_taken = _ours(server, GROUPS, names.GROUP, partial(takes.take_all, amount.long))
    all_taken.warm = _looped(partial(batches.warm, amount.long))
    yield all_taken
    redis = servers.there.get("Redis always")
    if redis is not None:
        streams = RedisStreams(redis.address)
        run = partial(streams.take_all, amount.messages)
        yield Subject(Series(names.REDIS_GROUP, GROUPS, BEFORE), run, redis)
    nats = servers.there.get("NATS always")
    if nats is not None:
        pull = _looped(partial(JetStream(nats.address).take_all, amount.messages // NATS_SHARE))
        yield Subject(Series(names.NATS_GROUP, GROUPS, BEFORE), pull, nats)
    yield _ours(server, GROUPS_ONE, names.GROUP_ONE, partial(takes.one_by_one, amount.times))
    if redis is not None:
        run = partial(streams.take_one_by_one, amount.times)
        yield Subject(Series(names.REDIS_GROUP_ONE, GROUPS_ONE, BEFORE), run, redis)


def _idle_groups(folder: Path, amount: Amount) -> Iterator[Subject]:
    """On a broker of its own."""
    idle = Together(IdleGroups(folder, amount.idle_seconds).measure)
    for name in (names.IDLE_GROUPS, names.IDLE_MEMBERS):
        yield Subject(Series(name, IDLE_SERVER), partial(idle.take, name))
    yield Subject(Series(names.REBALANCE, names.REBALANCE), Rebalances(folder).measure)


def _properties(server: Server, amount: Amount) -> Iterator[Subject]:
    appends = Properties(server.address)
    for name, distinct in ((names.PLAIN_TASKS, False), (names.DISTINCT_TASKS, True)):
        run = partial(appends.append, amount.messages // 4, distinct=distinct)
        yield _ours(server, PROPERTIES, name, run)


def _announced(server: Server, amount: Amount) -> Iterator[Subject]:
    appends = Announced(server.address)
    for name, announced in ((names.UNANNOUNCED, False), (names.ANNOUNCED, True)):
        run = partial(appends.append, amount.messages, announced=announced)
        yield _ours(server, ANNOUNCED, name, run)


def _transactions(server: Server, amount: Amount) -> Iterator[Subject]:
    """Batches beside transactions of the same size, and beside both."""
    appends = Transactions(server.address)
    for size in TXN_SIZES:
        count = amount.messages * size // 100
        for name, run in (
            (names.plain_batches(size), appends.plain),
            (names.some_txns(size), appends.mixed),
            (names.all_txns(size), appends.each),
            (names.message_txns(size), appends.each_of_messages),
        ):
            yield _ours(server, txns_of(size), name, partial(run, size, count))


def _latencies(server: Server, amount: Amount) -> Iterator[Subject]:
    latency = Latency(server.address)
    one = partial(latency.one_by_one, "fsync", amount.times)
    yield _ours(server, ONE_BY_ONE, names.ONE, one)
    memory = partial(latency.one_by_one, "memory", amount.times)
    yield _ours(server, ONE_BY_ONE, "Tidemark append, memory, one by one", memory, AFTER)
    for rate in (APPEND_RATE, READ_RATE):
        paced = partial(latency.at_pace, Pace(rate, amount.seconds))
        yield _ours(server, PACED, f"Tidemark append, {rate:,} msg/s", paced)
    through = partial(latency.to_a_reader, Pace(READ_RATE, amount.seconds))
    yield _ours(server, PACED, f"Tidemark append to reader, {READ_RATE:,} msg/s", through)


def _channels(server: Server, amount: Amount) -> Iterator[Subject]:
    messages = max(MANY_VCHANNELS * 2, int(amount.messages * CHANNELS_SHARE))
    few = Channels(server.address, PCHANNELS, 100_000)
    many = Channels(server.address, MANY_VCHANNELS, 200_000)
    for told in (AS_IT_COMES, CATCHING_UP):
        for channels, count in ((few, PCHANNELS), (many, MANY_VCHANNELS)):
            run = channels.tail if told == AS_IT_COMES else channels.catch_up
            name = names.channels(count, told)
            yield _ours(server, many_channels(told), name, partial(run, messages))


def _idle(folder: Path, servers: Servers, amount: Amount) -> Iterator[Subject]:
    watched = [it for it in servers.there.values() if it.name != "Tidemark"]
    idle = Idle(folder, amount.idle_seconds, watched)
    yield Subject(Series(names.IDLE_BROKER, IDLE_SERVER), idle.broker)
    for it in watched:
        series = Series(f"{it.name}, idle", IDLE_SERVER)
        yield Subject(series, partial(idle.baseline, it.name))
    for name, protocol in ((names.IDLE_BATCHES, "batches"), (names.IDLE_CONSUME, "Consume")):
        yield Subject(Series(name, IDLE_READER), partial(idle.reader, protocol))


def _streams(server: Server, amount: Amount) -> Iterator[Subject]:
    together = Together(Streams(server.address, amount.messages).measure)
    for name, kind in (
        (names.ARROW_READS, STREAM_READS),
        (names.ARROW_PACKS, STREAM_READS),
        (names.BODY_APPENDS, STREAM_SENDS),
        (names.BODY_PACKS, STREAM_SENDS),
    ):
        yield Subject(Series(name, kind), partial(together.take, name), server)


def _looped(work: Callable[[], Awaitable[R]]) -> Callable[[], R]:
    """Run each call on an event loop of its own. Raises TimeoutError when it takes too long."""

    async def bounded() -> R:
        async with asyncio.timeout(RUN_S_MAX):
            return await work()

    return lambda: uvloop.run(bounded())
