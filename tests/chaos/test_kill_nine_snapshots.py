"""kill -9 amid snapshots: what the next owner finds and reads is what the whole log says.

The broker saves as often as it can, so that many kills fall between two writes of a snapshot. After
each, the folder is copied and read twice: from its snapshot on, and from the first record on.
`--rounds N` says how often it is killed.
"""

import logging
import random
import shutil
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from broker.client import Client, Message, TidemarkError, connect
from broker.client.cluster.targets import NewVChannel
from broker.codec.stored_headers import StoredHeaders
from broker.core.log.log_recovery import RecoveryState
from broker.core.naming import pchannel_names
from broker.core.txn.transactions import Transactions
from broker.meta.sqlite import SqliteMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.ids import Term
from broker.model.message import MessageType
from broker.model.snapshot import SegmentState, Snapshot, VChannelState
from broker.node.recovery.replay import Replay, begin, effect_of, read_through
from broker.node.state.node_limits import NodeLimits
from broker.ports.wal import Log
from broker.wal.segmented import OsFiles, SegmentedSettings, SegmentedWal
from schemas.generated.milvus.proto import messages
from tests.broker_process import BrokerProcess, free_port

(P,) = pchannel_names("by-dev", 1)
WORKERS = 4
STEPS = (10, 50)
STEP_S_MAX = 60.0
LATER = Term(1 << 40)
SETTINGS = {"pchannels": "1", "snapshot_period_s": "0.01", "snapshot_records": "1"}


@dataclass(slots=True)
class Done:
    """Steps that were answered, over all workers."""

    steps: int = 0
    grown: anyio.Event = field(default_factory=anyio.Event)

    def add(self) -> None:
        self.steps += 1
        self.grown.set()

    async def reach(self, steps: int) -> None:
        while self.steps < steps:
            self.grown = anyio.Event()
            await self.grown.wait()


async def test_what_a_kill_leaves_of_a_snapshot_and_the_log_are_the_state_of_the_log(
    tmp_path: Path, rounds: int
) -> None:
    address, rng = f"127.0.0.1:{free_port()}", random.Random(rounds)
    broker = BrokerProcess(tmp_path / "data", address, **SETTINGS)
    read: list[int] = []
    done = Done()
    try:
        async with connect(address) as log, anyio.create_task_group() as load:
            for worker in range(WORKERS):
                load.start_soon(work_for_ever, log, random.Random(worker), done)
            for _ in range(rounds):
                with anyio.fail_after(STEP_S_MAX):
                    await done.reach(done.steps + rng.randint(*STEPS))
                broker.kill()
                read.append(await compare(tmp_path))
                broker = BrokerProcess(tmp_path / "data", address, **SETTINGS)
            load.cancel_scope.cancel()
        assert broker.terminate() == 0
    finally:
        broker.kill()
    read.append(await compare(tmp_path))
    logging.getLogger("tests.chaos").warning(
        "messages read again after each kill, and after the stop: %s", read
    )


async def test_a_snapshot_damaged_on_disk_costs_time_and_no_state(tmp_path: Path) -> None:
    with_snapshot = BrokerProcess(tmp_path / "data", **SETTINGS)
    try:
        async with connect(with_snapshot.address) as log:
            for number in range(40):
                with suppress(TidemarkError):  # some collections are not there yet, or dropped
                    await work(log, random.Random(number))
    finally:
        with_snapshot.kill()
    with sqlite3.connect(tmp_path / "data" / "meta.sqlite") as connection:
        connection.execute("UPDATE entries SET value = x'7b' WHERE key LIKE 'recovery/%'")
    connection.close()
    with BrokerProcess(tmp_path / "data", **SETTINGS) as broker:
        async with connect(broker.address) as log:
            await log.append(NewVChannel(f"{P}_1000v0"), b"it serves")
        assert broker.terminate() == 0
    await compare(tmp_path)


async def compare(tmp_path: Path) -> int:
    """How many messages the snapshot leaves to be read; fails when that gives another state."""
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "data", copy)
    try:
        store = await SqliteMetaStore.open(copy / "meta.sqlite")
        log = await SegmentedWal(OsFiles(copy / "wal"), SegmentedSettings()).open(P, LATER)
        try:
            return await compare_in(store, log)
        finally:
            await log.close()
            await store.close()
    finally:
        shutil.rmtree(copy)


async def compare_in(store: SqliteMetaStore, log: Log) -> int:
    limits = NodeLimits()
    claim = await StoredRecovery(store).claim(P, LATER)
    assert claim.damage == ()
    resumed = begin(P, claim, log.bounds(), StoredHeaders(), limits)
    from_id = resumed.next_id
    await read_through(resumed, log, Transactions(limits.txns))
    state = RecoveryState(Snapshot(), effect_of(StoredHeaders()), limits.txns, limits.producers)
    whole = Replay(state, log.bounds().first_id)
    await read_through(whole, log, Transactions(limits.txns))
    assert whole.state.objects.vchannels
    assert living(resumed.state) == living(whole.state)
    assert resumed.state.finished.all() == whole.state.finished.all()
    assert resumed.state.checkpoint == whole.state.checkpoint
    return log.bounds().next_id - from_id


def living(state: RecoveryState) -> tuple[object, object]:
    vchannels = {it for it in state.objects.vchannels.values() if it.state is VChannelState.NORMAL}
    segments = {it for it in state.objects.segments.values() if it.state is SegmentState.GROWING}
    return vchannels, segments


async def work_for_ever(log: Client, rng: random.Random, done: Done) -> None:
    while True:
        try:
            await work(log, rng)
            done.add()
        except TidemarkError:  # killed, or dropped: what is stored is compared, not what is told
            await anyio.sleep(0.01)


async def work(log: Client, rng: random.Random) -> None:
    """One step in the lives of some collections."""
    collection = rng.randint(1, 30)
    vchannel = NewVChannel(f"{P}_{collection}v0")
    with anyio.fail_after(STEP_S_MAX):
        match rng.randrange(20):
            case 0:
                dropped = messages.DropCollectionMessageHeader(collection_id=collection)
                await log.raw_append(vchannel, typed(MessageType.DROP_COLLECTION, bytes(dropped)))
            case 1 | 2 | 3 | 4 | 5:
                created = messages.CreateCollectionMessageHeader(
                    collection_id=collection, partition_ids=[1, 2]
                )
                await log.raw_append(vchannel, typed(MessageType.CREATE_COLLECTION, bytes(created)))
            case 6:
                flush = messages.ManualFlushMessageHeader(collection_id=collection, flush_ts=1)
                await log.raw_append(vchannel, typed(MessageType.MANUAL_FLUSH, bytes(flush)))
            case 7 | 8 | 9:
                await log.append_messages(
                    vchannel, [insert(rng, collection), insert(rng, collection)]
                )
            case 10 | 11 | 12:
                await batch(log, rng, vchannel)
            case 13:
                async with log.txn(vchannel) as txn:
                    await txn.append_batch([b"of", b"both"])
                    await txn.append_batch([b"or", b"neither"])
            case _:
                await log.raw_append(vchannel, insert(rng, collection))


async def batch(log: Client, rng: random.Random, vchannel: NewVChannel) -> None:
    """Payloads of a program, which says nothing of collections."""
    payloads = [b"payload"] * rng.randint(1, 200)
    keys = [b"key"] * len(payloads) if rng.random() < 0.5 else None
    await log.append_batch(vchannel, payloads, keys=keys)


def insert(rng: random.Random, collection: int) -> Message:
    header = messages.InsertMessageHeader(
        collection_id=collection,
        partitions=[
            messages.PartitionSegmentAssignment(
                partition_id=rng.choice((1, 2)), rows=rng.randint(1, 9), binary_size=100
            )
        ],
    )
    return typed(MessageType.INSERT, bytes(header))


def typed(kind: MessageType, header: bytes) -> Message:
    return Message(b"", type=kind, header=header)
