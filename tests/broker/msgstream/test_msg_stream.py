"""Plain streams, in memory."""

import logging
from itertools import product
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from broker.client.errors import BadTarget, ClosedClient, DeadlineExceeded
from broker.msgstream import (
    BadPosition,
    ChannelDestroyed,
    EncodedMsg,
    MemMsgStreamFactory,
    MemoryBackend,
    MsgPack,
    MsgPosition,
    MsgStream,
    RepackFailed,
    SearchMsg,
    StreamOptions,
    TimeTickMsg,
    WrongOrder,
)
from schemas.generated.tidemark import v1
from tests.broker.msgstream.memory_streams import (
    at,
    consumer,
    insert,
    names,
    producer,
    send,
)


@pytest.fixture(params=["objects", "encoded"])
def factory(request: pytest.FixtureRequest) -> MemMsgStreamFactory:
    return MemMsgStreamFactory(encoded=request.param == "encoded")


async def test_each_message_is_a_pack_of_its_own_with_its_position(
    factory: MemMsgStreamFactory,
) -> None:
    await send(factory, "a", at(5, "x"), at(7, "y"))
    stream = await consumer(factory, "a", tt=False)
    first, second = await stream.consume(), await stream.consume()
    assert names(first) + names(second) == ["x", "y"]
    assert first is not None
    assert first.start_positions == first.end_positions == [first.msgs[0].position]
    position = first.end_positions[0]
    assert (position.channel_name, position.msg_group, position.timestamp) == ("a", "readers", 5)
    assert (first.begin_ts, first.end_ts) == (0, 0)
    await stream.close()


async def test_seeking_a_message_continues_with_the_one_behind_it(
    factory: MemMsgStreamFactory,
) -> None:
    await send(factory, "a", at(5, "x"), at(7, "y"), at(9, "z"))
    await send(factory, "b", at(6, "v"), at(8, "w"))
    stream = await consumer(factory, "a", "b", tt=False)
    at_name = {
        names(pack)[0]: pack.end_positions[0]
        for pack in [await stream.consume() for _ in range(5)]
        if pack
    }
    again = await consumer(factory, "a", "b", seek=[at_name["x"], at_name["v"]], tt=False)
    assert sorted([names(await again.consume())[0] for _ in range(3)]) == ["w", "y", "z"]
    single = await consumer(factory, "a", seek=at_name["y"], tt=False)
    assert names(await single.consume()) == ["z"]


async def test_a_pack_is_spread_over_the_channels_in_the_order_of_its_messages(
    factory: MemMsgStreamFactory,
) -> None:
    stream = await producer(factory, "zero", "one")
    await stream.produce(MsgPack([insert((5, b"r5"), (6, b"r6")), insert((7, b"r7"), key=1)]))
    await stream.produce(None)
    await stream.produce(MsgPack())
    await stream.broadcast(MsgPack())
    zero, one = [await consumer(factory, it, tt=False) for it in ("zero", "one")]
    assert names(await zero.consume()) + names(await zero.consume()) == ["r5", "r6"]
    assert names(await one.consume()) == ["r7"]


async def test_a_broadcast_is_in_every_channel(factory: MemMsgStreamFactory) -> None:
    stream = await producer(factory, "a", "b", "a")
    await stream.broadcast(MsgPack([TimeTickMsg.at(9)]))
    for name in ("a", "b"):
        reader = await consumer(factory, name, tt=False)
        pack = await reader.consume()
        assert pack is not None
        assert pack.msgs == [TimeTickMsg.at(9)]
        with pytest.raises(DeadlineExceeded):  # once, also where a channel was named twice
            await reader.consume(deadline_s=0.01)


async def test_a_rule_of_the_program_spreads_packs(factory: MemMsgStreamFactory) -> None:
    stream = await producer(factory, "a", "b")
    stream.set_repack_func(lambda msgs, _: {1: MsgPack(msgs)})
    await stream.produce(MsgPack([at(5, "x")]))
    assert names(await (await consumer(factory, "b", tt=False)).consume()) == ["x"]
    stream.set_repack_func(None)
    with pytest.raises(RepackFailed, match="SEARCH"):
        await stream.produce(MsgPack([SearchMsg(v1.SearchBody())]))


async def test_a_chan_ends_when_the_stream_is_closed(factory: MemMsgStreamFactory) -> None:
    await send(factory, "a", at(5, "x"))
    stream = await consumer(factory, "a", tt=False)
    found = []
    async for pack in stream:
        found.append(names(pack))
        await stream.close()
        await stream.close()
    assert found == [["x"]]
    assert await stream.consume() is None


async def test_closing_ends_a_consume_that_waits(factory: MemMsgStreamFactory) -> None:
    stream = await consumer(factory, "a", "b", tt=False)
    found: list[object] = []

    async def consume() -> None:
        found.append(await stream.consume())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(WrongOrder, match="two tasks consume one stream"):
            await stream.consume()
        await stream.close()
    assert found == [None]


async def test_a_cancelled_consume_loses_nothing(factory: MemMsgStreamFactory) -> None:
    stream = await consumer(factory, "a", "b", tt=False)
    found: list[str] = []

    async def consume() -> None:
        found.extend(names(await stream.consume()))

    for number in range(40):
        await send(factory, "ab"[number % 2], at(number + 1, f"m{number}"))
        # Cancelled after some steps of the loop, each time at another moment.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            for _ in range(number % 7):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    while len(found) < 40:
        found += names(await stream.consume(deadline_s=5))
    assert sorted(found) == sorted(f"m{number}" for number in range(40))


async def test_calls_at_the_wrong_moment_are_refused(factory: MemMsgStreamFactory) -> None:
    await send(factory, "a", at(5, "x"))
    stream = await consumer(factory, "a", tt=False)
    pack = await stream.consume()
    assert pack is not None
    with pytest.raises(WrongOrder, match="seek after start"):
        await stream.seek(pack.end_positions[0])
    with pytest.raises(WrongOrder, match="as_consumer after start"):
        await stream.as_consumer(["b"], "readers")
    await stream.start()  # a second time it does nothing
    with pytest.raises(WrongOrder, match="call as_producer first"):
        await stream.produce(pack)
    with pytest.raises(WrongOrder, match="call as_producer first"):
        await stream.broadcast(pack)
    fresh = factory.new_msg_stream()
    with pytest.raises(WrongOrder, match="consume before start"):
        await fresh.consume()
    await fresh.as_producer(["a"])
    await fresh.start()
    with pytest.raises(WrongOrder, match="reads no channel"):
        await fresh.consume()
    await fresh.produce(MsgPack([at(6, "y")]))
    with pytest.raises(WrongOrder, match="as_producer after produce"):
        await fresh.as_producer(["b"])
    await fresh.close()
    for refused in (
        fresh.as_producer(["b"]),
        fresh.as_consumer(["b"], "readers"),
        fresh.produce(pack),
        fresh.broadcast(pack),
        fresh.start(),
        fresh.seek(pack.end_positions[0]),
    ):
        with pytest.raises(ClosedClient, match="the stream is closed"):
            await refused


async def test_more_channels_can_be_produced_to_before_the_first_pack(
    factory: MemMsgStreamFactory,
) -> None:
    stream = await producer(factory, "a")
    await stream.as_producer("b")
    await stream.produce(MsgPack([insert((1, b"x"), key=1)]))
    assert names(await (await consumer(factory, "b", tt=False)).consume()) == ["x"]


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (MsgPosition("b", b"m" + bytes(8)), "does not read b, but a"),
        (MsgPosition("a", b""), "has no msg_id: to read from the beginning, call as_consumer"),
        (MsgPosition("a", b"t" + bytes(8)), "of a time tick stream by the clock of the log"),
        (MsgPosition("a", b"s\x00"), "of a time tick stream by the clock of the senders"),
        (MsgPosition("a", b"x"), "of no stream of ours"),
        (MsgPosition("a", b"m" + bytes(16)), "no place in the memory of a process"),
        ([MsgPosition("a", b"m" + bytes(8)), "a"], "'a' is no MsgPosition"),
        ("no json", "is no offset"),
        ("[]", "which is a mapping"),
        ({"tick": "5", "ends": {}}, 'needs "tick" and "ends"'),
        ({"tick": 5, "ends": {"b": 1}}, "different channels, for example"),
        ({"tick": 5, "ends": {"a": 1}, "ahead": {"a": None}}, "has no tick for .'a'., but None"),
        ({"tick": 5, "ends": {"a": 1}, "ahead": {"a": True}}, "has no tick for .'a'., but True"),
    ],
)
async def test_positions_that_are_not_of_this_stream_are_refused(position: Any, why: str) -> None:
    factory = MemMsgStreamFactory()
    await send(factory, "a", at(5, "x"))
    stream = factory.new_msg_stream()
    await stream.as_consumer(["a"], "readers")
    with pytest.raises(BadPosition, match=why):
        await stream.seek(position)
    await stream.start()  # nothing was changed
    assert names(await stream.consume()) == ["x"]


async def test_bad_names_are_refused() -> None:
    stream = MemMsgStreamFactory().new_msg_stream()
    for names_, sub in product(([], [""], ""), ("readers",)):
        with pytest.raises(BadTarget, match="no names of channels"):
            await stream.as_consumer(names_, sub)
    with pytest.raises(BadTarget, match="a subscription needs a name"):
        await stream.as_consumer(["a"], "")
    with pytest.raises(BadTarget, match="at most 4096 channels"):
        await stream.as_consumer([f"c{number}" for number in range(4097)], "readers")


async def test_what_cannot_be_a_message_is_passed_over_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    factory = MemMsgStreamFactory(encoded=True)
    flush = EncodedMsg(b"\x0a\x03\x08\x92\x03", hash_keys=[0])
    stream = await producer(factory, "a")
    await stream.produce(MsgPack([flush, flush, SearchMsg(v1.SearchBody(), hash_keys=[0])]))
    await factory.memory.send("a", [b"no message", b"either"], 1)
    await send(factory, "a", at(5, "x"))
    reader = await consumer(factory, "a", tt=False)
    with caplog.at_level(logging.WARNING, "tidemark.msgstream"):
        kinds = [
            pack.msgs[0].type.name
            for pack in [await reader.consume(), await reader.consume()]
            if pack
        ]
    assert kinds == ["SEARCH", "INSERT"]
    assert (reader.counters.no_template, reader.counters.undecodable) == (2, 2)
    told = [it.getMessage() for it in caplog.records]
    assert len(told) == 2
    assert "no template for messages of type FLUSH (402)" in told[0]
    assert "has no header" in told[1]


async def test_readers_of_a_destroyed_channel_get_what_it_had_and_then_its_error(
    factory: MemMsgStreamFactory,
) -> None:
    await send(factory, "a", at(5, "x"))
    stream = await consumer(factory, "a", "b", tt=False)
    factory.memory.destroy("a")
    with pytest.raises(BadTarget, match="no channel 'a' in memory"):
        factory.memory.destroy("a")
    assert names(await stream.consume()) == ["x"]
    with pytest.raises(ChannelDestroyed, match="channel a was destroyed"):
        await stream.consume()
    writer = await producer(factory, "c")
    factory.memory.destroy("c")
    with pytest.raises(ChannelDestroyed, match="channel c was destroyed"):
        await writer.produce(MsgPack([at(6, "y")]))


async def test_one_channel_that_fails_does_not_undo_the_others() -> None:
    factory = MemMsgStreamFactory()
    stream = await producer(factory, "a", "b")
    factory.memory.destroy("b")
    with pytest.raises(ChannelDestroyed):
        await stream.produce(MsgPack([insert((1, b"x")), insert((2, b"y"), key=1)]))
    assert names(await (await consumer(factory, "a", tt=False)).consume()) == ["x"]


async def test_a_full_channel_makes_its_sender_wait_for_the_slowest_reader() -> None:
    factory = MemMsgStreamFactory(MemoryBackend(messages_max=2), StreamOptions(deadline_s=0.05))
    stream = await producer(factory, "a")
    reader = await consumer(factory, "a", tt=False)
    await stream.produce(MsgPack([at(1, "v"), at(2, "w")]))
    with pytest.raises(DeadlineExceeded, match="a holds 2 messages, and its slowest reader"):
        await stream.produce(MsgPack([at(3, "x")]))
    with pytest.raises(BadTarget, match="3 messages at once"):
        await stream.broadcast(MsgPack([at(3, "x")] * 3))

    async with anyio.create_task_group() as tasks:

        async def consume() -> None:
            assert names(await reader.consume()) == ["v"]

        tasks.start_soon(consume)
        await stream.produce(MsgPack([at(3, "x")]), deadline_s=5)
    assert [names(await reader.consume()) for _ in range(2)] == [["w"], ["x"]]
    await reader.close()


async def test_parameters_set_the_options_of_later_streams() -> None:
    factory = MemMsgStreamFactory()
    factory.set_params({"ReceiveBufSize": 64, "clock": "sender", "silent_s": 3})
    assert (factory.options.clock, factory.options.silent_s) == ("sender", 3)
    for bad, why in (
        ({"clock": "sundial"}, '"log" or "sender", not \'sundial\''),
        ({"silent_s": 0}, "silent_s must be a positive number, not 0"),
        ({"buffer_bytes": "many"}, "buffer_bytes must be a positive number, not 'many'"),
        ([], "parameters are a mapping, not list"),
    ):
        with pytest.raises(BadTarget, match=why):
            factory.set_params(bad)  # type: ignore[arg-type]
    assert factory.options.silent_s == 3
    assert isinstance(factory.new_msg_stream(), MsgStream)
