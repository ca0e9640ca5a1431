"""Everybody who reads a log while it is compacted by key: groups, Milvus, Spark, and a backup."""

import asyncio
import pickle
from base64 import b64decode
from pathlib import Path
from typing import Any

import anyio
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker.client import Client, Message, connect
from broker.client.groups.leased_batch import LeasedBatch
from broker.spark.source.source_options import parse
from broker.spark.source.stream_reader import StreamReader
from broker.spark.source.subscribed import Subscribed, declared
from schemas.generated.google.protobuf import Empty
from schemas.generated.milvus.proto import streaming as wire
from schemas.handshake import CREATE_CONSUMER, CreateHeader
from schemas.wire import Consumed, VChannelCreated, scan_consume_response
from tests.broker_process import BrokerProcess
from tests.chaos.test_backup import tidemark
from tests.chaos.test_compaction import KEYS, PAYLOAD, SETTINGS, read_table
from tests.chaos.test_space import until_below
from tests.create_headers import create_header
from tests.wire.peer import Peer
from tests.wire.small_broker import CONSUME

TURNS = 60
ONE = SETTINGS | {"pchannels": "1", "tail_age_s": "0.5"}
GUARD_S = 120.0


async def filled(log: Client, **created: Any) -> dict[bytes, bytes]:
    """Updates of few keys, every fifth turn in a transaction; the table that they make."""
    await log.collections.create("table", shards=1, cleanup="compact", **created)
    for turn in range(TURNS):
        await update(log, turn)
    return {b"%d" % it: b"%d " % (TURNS - 1) + PAYLOAD for it in range(KEYS)}


async def update(log: Client, turn: int) -> None:
    rows = [Message(b"%d " % turn + PAYLOAD, key=b"%d" % it) for it in range(KEYS)]
    if turn % 5 == 2:
        async with log.txn("table") as txn:
            for row in rows[: KEYS // 2]:
                await txn.append(row.payload, key=row.key)
            await log.append_messages("table", rows[KEYS // 2 :])
    else:
        await log.append_messages("table", rows)


async def compacted(data: Path) -> None:
    """A pass may run while the log grows: what was appended counts, and not what is stored."""
    await until_below(data, TURNS * KEYS * len(PAYLOAD) / 3)


async def test_a_group_gets_the_newest_and_settles_leases_of_what_is_gone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, **ONE) as broker:
        async with connect(broker.address) as log, asyncio.timeout(GUARD_S):
            group = log.group("workers")
            await log.collections.create("table", shards=1, cleanup="compact")
            await group.create("table", deliveries_max=5, lease_s=GUARD_S)
            async with group.join("table", prefetch_bytes=1) as member:
                kept: list[LeasedBatch] = []
                for turn in range(4):
                    # Before the later ones come, so that no lease has what will be the newest.
                    await update(log, turn)
                    kept.append(await member.__anext__())
                for turn in range(4, TURNS):
                    await update(log, turn)
                await compacted(data)
                await kept[0].ack()
                await kept[1].nack()
                await kept[2].reject("cannot be read")
                await kept[3].nack()
                table: dict[bytes, bytes] = {}
                wanted = {b"%d" % it: b"%d " % (TURNS - 1) + PAYLOAD for it in range(KEYS)}
                while table != wanted:
                    batch = await member.__anext__()
                    for it in batch.messages:
                        assert it.key is not None
                        table[it.key] = it.payload
                    await batch.ack()
                await update(log, 1000)
                while any(not it.startswith(b"1000 ") for it in table.values()):
                    batch = await member.__anext__()
                    table.update({it.key: it.payload for it in batch.messages if it.key})
                    await batch.ack()
                while True:
                    (view,) = await group.describe("table")
                    lag = [it.messages for it in (await group.lag("table")).values()]
                    if lag == [0] and not view.group.acked and not view.group.dying:
                        break
                    await anyio.sleep(0.2)
            letters = await group.dead()
            assert len({it.message.id for it in letters}) == len(letters)


async def test_an_ordered_group_goes_on_when_what_it_gave_back_is_gone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    wanted = {b"%d" % it: b"%d " % (TURNS - 1) + PAYLOAD for it in range(KEYS)}
    with BrokerProcess(data, **ONE) as broker:
        async with connect(broker.address) as log, asyncio.timeout(GUARD_S):
            group = log.group("workers", mode="ordered", by="key")
            await log.collections.create("table", shards=1, cleanup="compact")
            await group.create("table", lease_s=GUARD_S)
            for turn in range(TURNS):
                await update(log, turn)
            async with group.join("table", prefetch_bytes=1) as member:
                first = await member.__anext__()
                await compacted(data)
                await first.nack()
                table: dict[bytes, bytes] = {}
                while table != wanted:
                    batch = await member.__anext__()
                    for it in batch.messages:
                        assert it.key is not None
                        turn = int(it.payload.split()[0])
                        assert turn >= int(table.get(it.key, b"0 ").split()[0]), "in order"
                        table[it.key] = it.payload
                    await batch.ack()
                while True:
                    (view,) = await group.describe("table")
                    lag = [it.messages for it in (await group.lag("table")).values()]
                    if lag == [0] and not view.group.acked:
                        break
                    await anyio.sleep(0.2)


async def test_a_backup_of_a_compacted_log_is_restored_and_compacted_on(tmp_path: Path) -> None:
    data, taken, new = tmp_path / "data", tmp_path / "backup", tmp_path / "new"
    with BrokerProcess(data, **ONE) as broker:
        async with connect(broker.address) as log, asyncio.timeout(GUARD_S):
            table = await filled(log)
            await compacted(data)
            for turn in range(TURNS, TURNS + 20):
                await update(log, turn)
            done = await anyio.to_thread.run_sync(
                lambda: tidemark("backup", str(taken), server=broker.address)
            )
            assert done.returncode == 0, done.stderr
            table, _ = await read_table(log)
    assert tidemark("backup", str(taken), "--verify").returncode == 0
    assert any(it.stem.count("-") > 1 for it in taken.rglob("*.log")), "no segment was rewritten"
    restored = tidemark("restore", str(taken), "--data-dir", str(new))
    assert restored.returncode == 0, restored.stderr
    for _ in range(2):
        with BrokerProcess(new, **ONE) as broker:
            async with connect(broker.address) as log, asyncio.timeout(GUARD_S):
                found, count = await read_table(log)
                assert found == table
                assert count < (TURNS + 20) * KEYS
                for turn in range(TURNS):
                    await update(log, turn)
                table, _ = await read_table(log)
                await compacted(new)


async def test_milvus_reads_a_compacted_log_in_order(tmp_path: Path) -> None:
    import grpc.aio  # noqa: PLC0415 - as tests of the wire do

    data = tmp_path / "data"
    with BrokerProcess(data, **ONE) as broker:
        async with connect(broker.address) as log:
            table = await filled(log)
            await compacted(data)
            broker.terminate()
    with BrokerProcess(data, **ONE) as broker:
        async with connect(broker.address) as log, asyncio.timeout(GUARD_S):
            (vchannel,) = (await log.collections.get("table")).vchannels
            (assigned,) = await log.admin.channels()
            await log.append("table", b"end", key=b"end")
        async with grpc.aio.insecure_channel(broker.address) as channel:
            header = create_header(CreateHeader(assigned.name, assigned.term))
            stream = Peer(channel).open(CONSUME, {CREATE_CONSUMER: header})
            await stream.receive()
            wanted = wire.CreateVChannelConsumerRequest(
                vchannel=vchannel, deliver_policy=wire.DeliverPolicy(all=Empty())
            )
            await stream.send(bytes(wire.ConsumeRequest(create_vchannel_consumer=wanted)))
            assert scan_consume_response(await stream.receive()) == VChannelCreated(1)
            found: dict[bytes, bytes] = {}
            count = tick = 0
            while b"end" not in found:
                answer = scan_consume_response(await stream.receive())
                assert isinstance(answer, Consumed), answer
                assert answer.tick >= tick
                tick = answer.tick
                if answer.properties["_t"] == "2":
                    count += 1
                    found[b64decode(answer.properties["tidemark.key"])] = answer.payload
            del found[b"end"]
            assert found == table
            assert count < TURNS * KEYS / 2


async def test_spark_reads_a_micro_batch_again_behind_a_pass(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, **ONE) as broker:
        async with connect(broker.address) as log:
            await log.collections.create("table", shards=1)

            def reader() -> StreamReader:
                given = {"server": broker.address, "subscribe": "table"}
                parsed = parse(given | {"startingOffsets": "earliest"}, streaming=True)
                return StreamReader(Subscribed(parsed, declared(parsed)))

            def rows(start: Any, end: Any) -> list[tuple[bytes, bytes]]:
                it = reader()
                parts = it.partitions(start, end)
                read = [r for part in parts for r in it.read(pickle.loads(pickle.dumps(part)))]
                return [(row["key"], row["value"]) for r in read for row in r.to_pylist()]

            run = anyio.to_thread.run_sync
            start = await run(lambda: reader().initialOffset())
            for turn in range(TURNS):
                await update(log, turn)
            middle = await run(lambda: reader().latestOffset(start, ReadAllAvailable()))
            before = await run(rows, start, middle)
            assert len(before) == TURNS * KEYS
            await log.collections.alter("table", cleanup="compact")
            await compacted(data)
            broker.terminate()
    with BrokerProcess(data, listen=broker.listen, **ONE) as again:
        assert again.address == broker.address
        found = await anyio.to_thread.run_sync(rows, start, middle)
        assert len(found) < len(before) / 2
        assert set(found) <= set(before)
        assert dict(found) == dict(before), "of each key the newest"
