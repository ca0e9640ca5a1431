"""Streams over the embedded queue."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from broker.client.errors import BadTarget, ClosedClient
from broker.msgstream import (
    BadPosition,
    ChannelDestroyed,
    MsgPack,
    MsgPosition,
    MsgStream,
    StreamOptions,
    TimeTickMsg,
)
from broker.msgstream.rmq import QueueFailed, RmqMsgStreamFactory
from broker.rocksmq import RocksMQ
from tests.broker.msgstream.memory_streams import at, insert, names, sender_options


async def writer(factory: RmqMsgStreamFactory, *channels: str) -> MsgStream:
    stream = factory.new_msg_stream()
    await stream.as_producer(channels)
    return stream


async def reader(
    factory: RmqMsgStreamFactory, *channels: str, seek: object = None, tt: bool = True
) -> MsgStream:
    stream = factory.new_tt_msg_stream() if tt else factory.new_msg_stream()
    await stream.as_consumer(channels, "readers")
    if seek is not None:
        await stream.seek(seek)  # type: ignore[arg-type]
    await stream.start()
    return stream


async def all_of(stream: MsgStream, count: int) -> tuple[list[str], list[MsgPosition]]:
    found: list[str] = []
    ends: list[MsgPosition] = []
    while len(found) < count:
        pack = await stream.consume(deadline_s=10)
        assert pack is not None
        found += names(pack)
        ends = list(pack.end_positions)
    return sorted(found), ends


async def test_plain_streams_continue_behind_a_message_also_over_a_restart(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as queues:
        factory = RmqMsgStreamFactory(queues)
        stream = await writer(factory, "a", "b")
        await stream.produce(MsgPack([insert((1, b"x")), insert((2, b"y"), key=1)]))
        await stream.broadcast(MsgPack([at(3, "z")]))
        one = await reader(factory, "a", "b", tt=False)
        found, _ = await all_of(one, 4)
        assert found == ["x", "y", "z", "z"]
        await one.close()
        first = await reader(factory, "a", tt=False)
        pack = await first.consume(deadline_s=10)
        assert pack is not None
        assert names(pack) == ["x"]
        position = pack.end_positions[0]
        await first.close()
        await first.close()
    async with await RocksMQ.open(tmp_path) as queues:
        again = await reader(RmqMsgStreamFactory(queues), "a", seek=position, tt=False)
        assert names(await again.consume(deadline_s=10)) == ["z"]
        await again.close()


async def test_windows_by_the_ids_are_exact_and_an_idle_channel_delays_none(
    tmp_path: Path,
) -> None:
    async with await RocksMQ.open(tmp_path) as queues:
        factory = RmqMsgStreamFactory(queues)
        stream = await writer(factory, "a", "b")
        tt = await reader(factory, "a", "b", "idle")
        positions = []
        for number in range(6):
            await stream.produce(MsgPack([insert((number, b"m%d" % number), key=number)]))
            found, ends = await all_of(tt, 1)
            assert found == [f"m{number}"]
            positions.append(ends)
        for number, ends in enumerate(positions[:-1]):
            again = await reader(factory, "a", "b", "idle", seek=ends)
            rest, _ = await all_of(again, 5 - number)
            assert rest == [f"m{it}" for it in range(number + 1, 6)]
            await again.close()
        await tt.close()


async def test_time_ticks_of_senders_end_windows(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as queues:
        factory = RmqMsgStreamFactory(queues, sender_options(warn_s=5, silent_s=10))
        a, b = await writer(factory, "a"), await writer(factory, "b")
        await a.broadcast(MsgPack([at(5, "a5"), TimeTickMsg.at(10), at(25, "a25"), at(15, "a15")]))
        await b.broadcast(MsgPack([at(8, "b8"), TimeTickMsg.at(10), at(12, "b12")]))
        both = await writer(factory, "a", "b")
        await both.broadcast(MsgPack([TimeTickMsg.at(20), TimeTickMsg.at(30)]))
        tt = await reader(factory, "a", "b")
        packs = [await tt.consume(deadline_s=10) for _ in range(3)]
        assert [names(it) for it in packs] == [["a5", "b8"], ["a15", "b12"], ["a25"]]
        assert packs[1] is not None
        again = await reader(factory, "a", "b", seek=packs[1].end_positions)
        assert names(await again.consume(deadline_s=10)) == ["a25"]
        await again.close()
        await tt.close()


async def test_streams_leave_no_groups_behind_that_retention_would_wait_for(
    tmp_path: Path,
) -> None:
    async with await RocksMQ.open(tmp_path) as queues:
        factory = RmqMsgStreamFactory(queues)
        await (await writer(factory, "a")).produce(MsgPack([at(1, "x")]))
        tt = await reader(factory, "a")
        await all_of(tt, 1)
        assert len(queues.describe_channel("a").positions) == 1
        await tt.close()
        assert not queues.describe_channel("a").positions


async def test_readers_of_a_destroyed_channel_and_of_a_closed_folder_end(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as queues:
        factory = RmqMsgStreamFactory(queues)
        plain, other = await reader(factory, "a", tt=False), await reader(factory, "b")
        ended: list[type[Exception]] = []

        async def consume(stream: MsgStream) -> None:
            try:
                await stream.consume()
            except (ChannelDestroyed, ClosedClient) as error:
                ended.append(type(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume, plain)
            tasks.start_soon(consume, other)
            await anyio.wait_all_tasks_blocked()
            await queues.destroy_channel("a")
            await anyio.wait_all_tasks_blocked()
            await queues.close()
        assert ended == [ChannelDestroyed, ClosedClient]
        await plain.close()
        await other.close()


async def test_bad_input_is_refused(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as queues:
        factory = RmqMsgStreamFactory(queues, StreamOptions())
        with pytest.raises(QueueFailed, match="bad/name"):
            await factory.new_msg_stream().as_producer(["bad/name"])
        with pytest.raises(BadPosition, match="no place in a channel of RocksMQ"):
            await reader(factory, "a", seek=MsgPosition("a", b"m" + bytes(16)), tt=False)
        await (await writer(factory, "a")).produce(MsgPack([at(1, "x")]))
        tt = factory.new_tt_msg_stream()
        await tt.as_consumer(["a"], "readers")
        await tt.start()
        pack = await tt.consume(deadline_s=10)
        with pytest.raises(BadTarget, match="nothing in this stream was appended as Arrow rows"):
            pack.rows()  # type: ignore[union-attr]
        offset = await tt.spark_offset(pack)  # type: ignore[arg-type]
        assert offset["ends"] == {"a": offset["tick"] + 1}
        await tt.close()


async def test_a_cancelled_consume_loses_nothing(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as queues:
        factory = RmqMsgStreamFactory(queues)
        stream = await writer(factory, "a", "b")
        for tt in (False, True):
            one = await reader(factory, "a", "b", tt=tt)
            found: list[str] = []

            async def consume(one: MsgStream = one, found: list[str] = found) -> None:
                found.extend(names(await one.consume()))

            before = 0 if not tt else 30
            for number in range(before, before + 30):
                await stream.produce(MsgPack([insert((number, b"m%d" % number), key=number)]))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(consume)
                    for _ in range(number % 7):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
            rest, _ = await all_of(one, before + 30 - len(found))
            assert sorted(found + rest) == sorted(f"m{it}" for it in range(before + 30))
            await one.close()
