"""Streams over a real broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from anyio.abc import TaskStatus

from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import (
    BadTarget,
    NoSuchCollection,
    OutdatedTarget,
    TidemarkError,
    Unrecoverable,
)
from broker.model.master.tenancy import ProxyMember
from broker.model.master.time_ticks import TickOrigin
from broker.msgstream import (
    BadPosition,
    ChannelDestroyed,
    DeleteMsg,
    EncodedMsg,
    InsertMsg,
    MsgPack,
    MsgPosition,
    MsgStream,
    StreamOptions,
    TidemarkMsgStreamFactory,
    TimeTickMsg,
    TtMsgStream,
)
from tests.broker.msgstream.memory_streams import at, insert, names
from tests.local_broker import local_broker

SENDER = StreamOptions(clock="sender")
NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@asynccontextmanager
async def logged(folder: Path, **given: Any) -> AsyncIterator[Client]:
    async with local_broker(folder, pchannels=4, **given) as broker, connect(broker.address) as log:
        yield log


async def reader_of(
    log: Client, *channels: str, seek: Any = None, options: StreamOptions | None = None
) -> TtMsgStream:
    stream = TidemarkMsgStreamFactory(log, options or StreamOptions()).new_tt_msg_stream()
    await stream.as_consumer(channels, "readers")
    if seek is not None:
        await stream.seek(seek)
    await stream.start()
    return stream


async def until(stream: TtMsgStream, count: int) -> list[MsgPack]:
    """Packs until there are so many messages in them."""
    found: list[MsgPack] = []
    while sum(len(it.msgs) for it in found) < count:
        pack = await stream.consume(deadline_s=20)
        assert pack is not None
        found.append(pack)
    return found


def all_names(packs: list[MsgPack]) -> list[str]:
    return sorted(name for it in packs for name in names(it))


async def test_packs_by_the_log_resume_from_any_end_also_over_a_restart_of_the_broker(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=3)
        writer = TidemarkMsgStreamFactory(log).new_msg_stream()
        await writer.as_producer(["rows"])
        stream = await reader_of(log, "rows")
        found: list[MsgPack] = []
        for number in range(0, 30, 3):
            rows = [(it, b"m%d" % it) for it in range(number, number + 3)]
            await writer.produce(MsgPack([insert(row, key=row[0]) for row in rows]))
            if number % 2:
                found += await until(stream, 1)
        found += await until(stream, 30 - sum(len(it.msgs) for it in found))
        await stream.close()
    assert all_names(found) == sorted(f"m{it}" for it in range(30))
    async with logged(tmp_path) as log:
        for index, pack in enumerate(found):
            suffix = all_names(found[index + 1 :])
            again = await reader_of(log, "rows", seek=pack.end_positions)
            assert all_names(await until(again, len(suffix))) == suffix
            await again.close()


async def test_the_messages_of_a_transaction_are_in_one_pack_with_either_clock(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=1)
        (vchannel,) = (await log.collections.get("rows")).vchannels
        late = at(5, "in the transaction"), at(6, "too")
        async with log.txn(vchannel) as txn:
            await txn.append(late[0].marshal())
            await log.append(vchannel, at(4, "outside").marshal())
            await txn.append(late[1].marshal())
        await log.append(vchannel, TimeTickMsg.at(10).marshal())
        for options in (StreamOptions(), SENDER):
            stream = await reader_of(log, "rows", options=options)
            found = await until(stream, 3)
            assert all_names(found) == ["in the transaction", "outside", "too"]
            await stream.close()
            last = await reader_of(log, "rows", seek=found[-1].end_positions, options=options)
            await log.append(vchannel, at(15, "next").marshal())
            await log.append(vchannel, TimeTickMsg.at(20).marshal())
            assert all_names(await until(last, 1)) == ["next"]
            await last.close()
            break  # the messages after it are in the way of the second clock
        stream = await reader_of(log, "rows", options=SENDER)
        first = await stream.consume()
        assert names(first) == ["outside", "in the transaction", "too"]
        assert first is not None
        again = await reader_of(log, "rows", seek=first.end_positions, options=SENDER)
        assert names(await again.consume()) == ["next"]
        await again.close()
        await stream.close()


async def test_a_broadcast_is_whole_in_every_channel_and_never_in_one_alone(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=3)
        vchannels = (await log.collections.get("rows")).vchannels
        writer = TidemarkMsgStreamFactory(log).new_msg_stream()
        await writer.as_producer(vchannels)
        await writer.broadcast(MsgPack([at(1, "x"), TimeTickMsg.at(5)]))
        found = [batch async for batch in log.read_batches("rows", until="now") if len(batch)]
        assert sorted(it.vchannel for it in found) == sorted(vchannels)
        assert {len(it) for it in found} == {2}
        cut = await log.cut("rows")
        assert cut.tick >= max(tick for it in found for tick in it.ticks)


async def test_a_broadcast_that_cannot_reach_one_channel_reaches_none(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        for name in ("one", "two"):
            await log.collections.create(name, shards=1)
        writer = TidemarkMsgStreamFactory(log).new_msg_stream()
        await writer.as_producer(["one", "two"])
        await log.collections.drop("two")
        with pytest.raises(TidemarkError):
            await writer.broadcast(MsgPack([TimeTickMsg.at(5)]), deadline_s=5)
        assert not [it async for it in log.read_batches("one", until="now") if len(it)]


async def test_time_ticks_of_the_master_end_the_windows_of_the_senders(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=2)
        vchannels = (await log.collections.get("rows")).vchannels
        for peer in (1, 2):
            await log.master.add_proxy(ProxyMember(peer, "127.0.0.1", 9000 + peer))
        await log.master.set_time_ticks(TickOrigin.PROXIES, [1, 2], vchannels, interval_ms=1)
        writer = TidemarkMsgStreamFactory(log).new_msg_stream()
        await writer.as_producer(["rows"])
        stamp = int(await log.master.alloc_timestamp())
        await writer.produce(MsgPack([insert((1, b"x"), timestamps=[stamp])]))
        await writer.produce(MsgPack([DeleteMsg.of_keys([1], timestamps=[stamp], hash_keys=[1])]))
        tick = await log.master.alloc_timestamp()
        for peer in (1, 2):
            await log.master.report_time_tick(TickOrigin.PROXIES, peer, tick)
        stream = await reader_of(log, "rows", options=SENDER)
        pack = await stream.consume(deadline_s=20)
        assert pack is not None
        assert pack.end_ts == tick
        assert sorted(it.type.name for it in pack.msgs) == ["DELETE", "INSERT"]
        await stream.close()


async def test_readers_of_a_dropped_collection_get_all_of_it_and_then_its_error(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=2)
        writer = TidemarkMsgStreamFactory(log).new_msg_stream()
        await writer.as_producer(["rows"])
        await writer.produce(MsgPack([at(1, "x")]))
        factory = TidemarkMsgStreamFactory(log)
        plain = factory.new_msg_stream()
        await plain.as_consumer(["rows"], "readers")
        await plain.start()
        streams: list[MsgStream] = [
            plain,
            await reader_of(log, "rows"),
            await reader_of(log, "rows", options=SENDER),
        ]
        assert names(await plain.consume()) == ["x"]
        assert all_names(await until(streams[1], 1)) == ["x"]  # type: ignore[arg-type]
        await log.collections.drop("rows")
        for stream in streams:
            with anyio.fail_after(20), pytest.raises(ChannelDestroyed, match="was destroyed"):
                await consume_for_ever(stream)
            await stream.close()
        with pytest.raises(OutdatedTarget):
            await writer.produce(MsgPack([at(2, "y")]))
        with pytest.raises(NoSuchCollection):
            await plain_reader(log, "rows")


async def consume_for_ever(stream: MsgStream) -> None:
    while True:
        await stream.consume()


async def plain_reader(log: Client, *channels: str) -> None:
    await TidemarkMsgStreamFactory(log).new_msg_stream().as_consumer(channels, "readers")


async def test_a_pack_gives_its_rows_as_arrow_in_its_window_and_only_once(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("numbers", shards=2, schema=NUMBERS)
        rows = pa.table({"n": list(range(1000))}, schema=NUMBERS)
        for first in range(0, 1000, 100):
            await log.append_arrow("numbers", rows.slice(first, 100), key="n")
        stream = await reader_of(log, "numbers")
        tables: list[pa.Table] = []
        packs = []
        while sum(it.num_rows for it in tables) < 1000:
            pack = await stream.consume(deadline_s=20)
            assert pack is not None
            # Rows are no message objects; the creation of the collection is one.
            assert {it.type.name for it in pack.msgs} <= {"CREATE_COLLECTION"}
            packs.append(pack)
            tables.append(pack.rows())  # type: ignore[attr-defined]
        for pack, table in zip(packs, tables, strict=True):
            ticks = table["_time_tick"].to_pylist()
            assert all(pack.begin_ts < tick <= pack.end_ts for tick in ticks)
        assert sorted(pa.concat_tables(tables)["n"].to_pylist()) == list(range(1000))
        assert tables[0].schema.names == ["n", "_vchannel", "_message_id", "_time_tick"]
        offset = await stream.spark_offset(packs[0])
        rest = await reader_of(log, "numbers", seek=offset)
        count = sum(it.num_rows for it in tables[1:])
        while count:
            pack = await rest.consume(deadline_s=20)
            count -= pack.rows().num_rows  # type: ignore[union-attr]
        await rest.close()
        await stream.close()


async def test_messages_are_no_arrow_rows(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=1)
        await log.append("rows", at(1, "x").marshal())
        stream = await reader_of(log, "rows")
        pack = (await until(stream, 1))[-1]
        with pytest.raises(BadTarget, match="nothing in this stream was appended as Arrow rows"):
            pack.rows()  # type: ignore[attr-defined]
        await stream.close()


async def test_the_end_of_a_pack_is_a_cut_behind_which_other_readers_continue(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=2)
        writer = TidemarkMsgStreamFactory(log).new_msg_stream()
        await writer.as_producer(["rows"])
        await writer.produce(MsgPack([insert((it, b"m%d" % it), key=it) for it in range(6)]))
        stream = await reader_of(log, "rows")
        found = await until(stream, 6)
        await writer.produce(MsgPack([insert((6, b"m6"), key=6), insert((7, b"m7"), key=7)]))
        cut = await stream.cut(found[-1])
        behind = [
            InsertMsg.unmarshal(it).rows[0]
            async for batch in log.read_batches("rows", start=cut, until="now")
            for it in batch.payloads
        ]
        assert sorted(behind) == [b"m6", b"m7"]
        await stream.close()


async def test_positions_of_other_logs_are_refused(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=1)
        (vchannel,) = (await log.collections.get("rows")).vchannels
        with pytest.raises(BadPosition, match="no place in a Tidemark log"):
            await reader_of(log, "rows", seek=MsgPosition(vchannel, b"t" + bytes(8)))


async def test_a_position_whose_messages_were_purged_is_an_error_and_no_gap(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=1)
        await log.append("rows", at(1, "x").marshal())
        stream = await reader_of(log, "rows")
        pack = (await until(stream, 1))[-1]
        await stream.close()
        await log.append("rows", at(2, "y").marshal())
        cut = await log.cut("rows")
        await log.purge("rows", upto=cut.tick)
        rest = await reader_of(log, "rows", seek=pack.end_positions)
        with pytest.raises(Unrecoverable, match="removed by a purge"):
            await rest.consume(deadline_s=10)
        await rest.close()


async def test_many_encoded_messages_go_in_batches_that_the_broker_accepts(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path) as log:
        await log.collections.create("rows", shards=1)
        writer = TidemarkMsgStreamFactory(log).new_msg_stream()
        await writer.as_producer(["rows"])
        raw = at(1, "x").marshal()
        await writer.produce(MsgPack([EncodedMsg(raw, hash_keys=[0]) for _ in range(20_000)]))
        large = insert((1, bytes(3 << 20)))
        await writer.produce(MsgPack([EncodedMsg(large.marshal(), hash_keys=[0])] * 4))
        sizes = [len(it) async for it in log.read_batches("rows", until="now") if len(it)]
        assert sum(sizes) == 20_004
        assert max(sizes) <= 16_384


async def test_nobody_reads_a_channel_before_the_master_has_said_whether_it_is_of_a_collection(
    tmp_path: Path,
) -> None:
    """One of no collection, taken for one, would seem to be destroyed once the master is back."""
    channel = "by-dev-rootcoord-dml_0_7v0"
    ended, gone = anyio.Event(), anyio.Event()

    async def serve(*, task_status: TaskStatus[str]) -> None:
        async with local_broker(tmp_path, pchannels=1) as broker:
            task_status.started(broker.address)
            await ended.wait()
        gone.set()

    async with anyio.create_task_group() as tasks:
        address = await tasks.start(serve)
        async with connect(address) as log:
            await log.append(NewVChannel(channel), at(1, "x").marshal())
            stream = await reader_of(log, channel)
            await stream.close()
            ended.set()
            await gone.wait()
            log.master._changes._deadline_s = 0.5  # only now: no answer comes any more
            with pytest.raises(TidemarkError) as caught:
                await reader_of(log, channel)
    assert caught.value.retriable
