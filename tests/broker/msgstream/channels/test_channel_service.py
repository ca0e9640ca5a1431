"""Channels of an owner over a real broker: all of a request or nothing, also when a call dies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.client import Client, connect
from broker.client.errors import BadTarget, OutcomeUnknown, TidemarkError
from broker.msgstream import ChannelDestroyed, MsgPack, TidemarkMsgStreamFactory
from broker.msgstream.channels.channel_service import ChannelService
from broker.msgstream.channels.owned_channels import (
    PREFIX,
    ChannelState,
    CreateChannelRequest,
    DescribeChannelRequest,
    DestoryChannelRequest,
    DestroyChannelRequest,
    NoSuchChannel,
    OwnerDescription,
    record_of,
)
from tests.broker.msgstream.memory_streams import at, names
from tests.local_broker import local_broker

PROXY = OwnerDescription("proxy", "10.0.0.1:19530", "results of searches")
NODE = OwnerDescription("query-node", "10.0.0.2:21123")


@asynccontextmanager
async def logged(folder: Path) -> AsyncIterator[Client]:
    async with local_broker(folder, pchannels=3) as broker, connect(broker.address) as log:
        yield log


async def create(log: Client, owner: OwnerDescription, count: int) -> list[str]:
    made = await ChannelService(log).create_channels(CreateChannelRequest(owner, count))
    return list(made.channel_names)


async def describe(log: Client, *channels: str) -> list[tuple[str, OwnerDescription]]:
    found = await ChannelService(log).describe_channels(DescribeChannelRequest(channels))
    return [(it.channel_name, it.owner) for it in found.descriptions]


async def left(log: Client) -> list[ChannelState]:
    return [record_of(it).state for it in await log.config.get_by_prefix(PREFIX)]


async def test_channels_are_fresh_have_their_owner_and_survive_a_restart(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        first, second = await create(log, PROXY, 2)
        (third,) = await create(log, NODE, 1)
        assert first.startswith("proxy-")
        assert third.startswith("query-node-")
        assert len({first, second, third}) == 3
    async with logged(tmp_path) as log:
        # In the order of the request; one that is named twice counts once.
        assert await describe(log, third, first, third) == [(third, NODE), (first, PROXY)]
        stream = TidemarkMsgStreamFactory(log).new_msg_stream()
        await stream.as_producer([first, third])
        await stream.as_consumer([first, third], "readers")
        await stream.start()
        await stream.produce(MsgPack([at(1, "x")]))
        assert names(await stream.consume(deadline_s=10)) == ["x"]
        await stream.close()


async def test_destroyed_channels_are_gone_and_their_readers_end(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        first, second, third = await create(log, PROXY, 3)
        stream = TidemarkMsgStreamFactory(log).new_tt_msg_stream()
        await stream.as_consumer([first], "readers")
        await stream.start()
        await ChannelService(log).destroy_channels(DestroyChannelRequest([first, second, first]))
        for name in (first, second):
            with pytest.raises(NoSuchChannel, match=name):
                await describe(log, third, name)
        with anyio.fail_after(20), pytest.raises(ChannelDestroyed):
            await consume_for_ever(stream)
        await stream.close()
        assert [it.name async for it in log.collections.each()] == [third]
        assert await left(log) == [ChannelState.READY]
        await ChannelService(log).destory_channels(DestoryChannelRequest([third]))
        assert await left(log) == []


async def consume_for_ever(stream: Any) -> None:
    while True:
        await stream.consume()


async def test_one_unknown_name_and_nothing_is_destroyed(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        (name,) = await create(log, PROXY, 1)
        for unknown in ("proxy-1", "By Hand"):
            with pytest.raises(NoSuchChannel, match=unknown):
                await ChannelService(log).destroy_channels(DestroyChannelRequest([name, unknown]))
        assert await describe(log, name) == [(name, PROXY)]


@pytest.mark.parametrize(
    ("owner", "count", "why"),
    [
        (PROXY, 0, "num_channels is 0; it must be from 1 to 1024"),
        (PROXY, 1025, "num_channels is 1025"),
        (PROXY, True, "num_channels is True"),
        (OwnerDescription(""), 1, "the role '' cannot begin"),
        (OwnerDescription("Proxy"), 1, "the role 'Proxy' cannot begin"),
        (OwnerDescription("proxy", "x" * 1025), 1, "the address has 1025 characters"),
        (OwnerDescription("proxy", "", "x" * 1025), 1, "the description has 1025 characters"),
    ],
)
async def test_a_bad_request_is_refused_with_its_value(
    owner: OwnerDescription, count: int, why: str, tmp_path: Path
) -> None:
    async with logged(tmp_path) as log:
        with pytest.raises(BadTarget, match=why):
            await create(log, owner, count)
        with pytest.raises(BadTarget, match="the request has 0 channels"):
            await describe(log)
        assert await left(log) == []


class DyingService(ChannelService):
    """Ends with an error at one step, as a process that is killed there; undoes nothing."""

    def __init__(self, log: Client, step: int, *, dead: bool) -> None:
        super().__init__(log)
        self.left = step
        self.dead = dead

    def step(self) -> None:
        self.left -= 1
        if self.left <= 0 and (self.dead or self.left == 0):
            raise TidemarkError("killed here")

    async def _store(self, records: Any) -> int:
        self.step()
        return await super()._store(records)

    async def _create(self, name: str) -> None:
        self.step()
        await super()._create(name)

    async def _drop(self, name: str) -> None:
        self.step()
        await super()._drop(name)


@pytest.mark.parametrize("step", range(1, 6))
async def test_a_creation_that_fails_at_any_step_leaves_nothing(step: int, tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        with pytest.raises(TidemarkError, match="killed here"):
            await DyingService(log, step, dead=False).create_channels(
                CreateChannelRequest(PROXY, 3)
            )
        assert [it.name async for it in log.collections.each()] == []
        assert await left(log) == []


@pytest.mark.parametrize("step", range(1, 6))
async def test_what_a_creation_that_died_has_left_is_invisible_and_cleared_later(
    step: int, tmp_path: Path
) -> None:
    async with logged(tmp_path) as log:
        with pytest.raises(TidemarkError, match="killed here"):
            await DyingService(log, step, dead=True).create_channels(CreateChannelRequest(PROXY, 3))
        assert set(await left(log)) <= {ChannelState.CREATING}
        for entry in await log.config.get_by_prefix(PREFIX):
            with pytest.raises(NoSuchChannel, match="it is creating"):
                await describe(log, record_of(entry).name)
        after = ChannelService(log, left_over_ms=0)
        made = await after.create_channels(CreateChannelRequest(NODE, 1))
        assert [it.name async for it in log.collections.each()] == list(made.channel_names)
        assert await left(log) == [ChannelState.READY]


@pytest.mark.parametrize("step", range(1, 5))
async def test_a_destruction_that_died_has_happened_or_not_and_is_finished_by_a_repeat(
    step: int, tmp_path: Path
) -> None:
    async with logged(tmp_path) as log:
        doomed = await create(log, PROXY, 3)
        request = DestroyChannelRequest(doomed)
        with pytest.raises(TidemarkError, match="killed here"):
            await DyingService(log, step, dead=True).destroy_channels(request)
        if step == 1:
            assert len(await describe(log, *doomed)) == 3
        else:
            for name in doomed:
                with pytest.raises(NoSuchChannel, match="it is destroying"):
                    await describe(log, name)
        await ChannelService(log).destroy_channels(request)
        assert await left(log) == []
        assert [it.name async for it in log.collections.each()] == []
        with pytest.raises(NoSuchChannel):
            await ChannelService(log).destroy_channels(request)


async def test_two_destructions_at_once_destroy_once(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        one, two, three = await create(log, PROXY, 3)
        outcomes: list[object] = []

        async def destroy(*channels: str) -> None:
            try:
                await ChannelService(log).destroy_channels(DestroyChannelRequest(channels))
                outcomes.append(channels)
            except (NoSuchChannel, OutcomeUnknown) as error:
                outcomes.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(destroy, one, two)
            tasks.start_soon(destroy, two, three)
        assert [it for it in outcomes if isinstance(it, tuple)]
        # Whatever came first: the channels of a refused request are all there.
        gone = {name for it in outcomes if isinstance(it, tuple) for name in it}
        assert {record_of(it).name for it in await log.config.get_by_prefix(PREFIX)} == {
            one,
            two,
            three,
        } - gone


async def test_a_key_that_describes_no_channel_is_an_error_with_its_value(tmp_path: Path) -> None:
    async with logged(tmp_path) as log:
        await log.config.set(f"{PREFIX}proxy-5", "by hand")
        with pytest.raises(NoSuchChannel, match="holds 'by hand', which describes no channel"):
            await describe(log, "proxy-5")
