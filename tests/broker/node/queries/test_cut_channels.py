"""A cut over a real node on virtual time: exact, soon, and through changes of owner."""

import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import anyio
import pytest

from actors import MailboxFull
from actors.testing import run_seeded
from broker.core.time import tso
from broker.edge.rpc.proxies import Proxy
from broker.model.cut import Cut
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.model.message import Appended
from broker.node.appender_messages import CloseTick
from broker.node.directory_messages import Locate, Located
from broker.node.queries.cut_channels import CHANNELS_MAX, CUT_S, close_up_to, cut_channels
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.node.world import DIRECTORY, Reader, World, message, running_node

NAMES = tuple([PChannelName(f"by-dev-rootcoord-dml_{number}") for number in range(3)])
NEWEST = TimeTick(0)


async def cut(world: World, channels: Sequence[str], tick: TimeTick) -> Cut:
    directory = Proxy(lambda: world.system.find(DIRECTORY))

    async def locate(name: PChannelName) -> Located:
        return await directory.demand(Locate(name, None))

    return await cut_channels(locate, known, channels, tick)


async def known(name: PChannelName) -> bool:
    return name in NAMES


async def assign_all(world: World) -> None:
    for name in NAMES:
        await world.assign(name)


async def code_of(world: World, channels: Sequence[str], tick: int = 0) -> StreamingCode:
    with pytest.raises(Refused) as info:
        await cut(world, channels, TimeTick(tick))
    return info.value.refusal.code


async def append_some(world: World, name: PChannelName) -> Appended | Refusal:
    (outcome,) = await world.append(replace(message("x"), vchannel=f"{name}_7v0"), name=name)
    return outcome


async def appended(world: World, name: PChannelName) -> Appended:
    """With room for one batch, it may be refused while an actor of the node appends."""
    while not isinstance(landed := await append_some(world, name), Appended):
        await world.clock.sleep(0.01)
    return landed


def test_a_writer_whose_mailbox_stays_full_is_not_waited_for_without_end() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            found = await world.locate()
            full = replace(found, appender=FullAppender())  # type: ignore[arg-type]
            tick = TimeTick(found.view.offsets().closed_tick + (1 << 40))
            began_s = anyio.current_time()
            with pytest.raises(Refused, match="its writer has too much to do") as caught:
                await close_up_to(full, tick)
            assert caught.value.refusal.code is StreamingCode.INNER
            assert anyio.current_time() - began_s == pytest.approx(CUT_S, abs=0.1)

    run_seeded(41, scenario)


class FullAppender:
    """A writer that takes no request."""

    async def ask(self, _: CloseTick, *, deadline_s: float) -> TimeTick:
        raise MailboxFull("appender", 1)


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_has_every_message_up_to_its_tick_and_none_later(seed: int) -> None:
    """Under load on every pchannel, while Appenders are killed."""
    chance = random.Random(seed)

    async def scenario() -> None:
        acknowledged: dict[PChannelName, list[int]] = {name: [] for name in NAMES}
        stopping = anyio.Event()

        async def load(world: World, name: PChannelName) -> None:
            while not stopping.is_set():
                outcome = await append_some(world, name)
                if isinstance(outcome, Appended):
                    acknowledged[name].append(outcome.tick)
                await world.clock.sleep(chance.expovariate(50))

        async with running_node(oracle_pause_s=lambda: chance.uniform(0, 0.01)) as world:
            await assign_all(world)
            cuts = []
            async with anyio.create_task_group() as tasks:
                for name in NAMES * 2:
                    tasks.start_soon(load, world, name)
                for turn in range(10):
                    await world.clock.sleep(chance.uniform(0, 0.2))
                    before = {name: list(ticks) for name, ticks in acknowledged.items()}
                    if turn % 3 == 2:
                        world.system.kill(world.path("appender", chance.choice(NAMES)))
                    found = await cut(world, NAMES, NEWEST)
                    assert all(tick <= found.tick for ticks in before.values() for tick in ticks)
                    cuts.append(found)
                stopping.set()
            assert [it.tick for it in cuts] == sorted({it.tick for it in cuts})
            for name in NAMES:
                reader = await read_all(world, name)
                for found in cuts:
                    inside = {it.id for it in reader.messages if it.id < found.ends[name]}
                    assert inside == {it.id for it in reader.messages if it.tick <= found.tick}

    run_seeded(seed, scenario)


async def read_all(world: World, name: PChannelName) -> Reader:
    reader = Reader(world)
    opened = await world.open_scanner(name=name)
    assert not isinstance(opened, Refusal)
    reader._opened = opened
    await reader.read_until((await world.offsets(name)).next_id - 1)
    return reader


def test_idle_channels_are_not_waited_for_and_nothing_is_written() -> None:
    async def scenario() -> None:
        async with running_node(limits=NodeLimits(tick_interval_s=60.0)) as world:
            await assign_all(world)
            await world.clock.sleep(100)
            landed = await append_some(world, NAMES[1])
            assert isinstance(landed, Appended)
            before = [await world.offsets(name) for name in NAMES]
            began_s = world.clock.monotonic_s()
            found = await cut(world, NAMES, NEWEST)
            assert world.clock.monotonic_s() - began_s < 0.1
            assert found.tick == landed.tick
            after = [await world.offsets(name) for name in NAMES]
            assert all(it.closed_tick >= found.tick for it in after)
            assert [it.next_id for it in after] == [it.next_id for it in before]

    run_seeded(1, scenario)


def test_vchannels_have_the_end_of_their_pchannel_and_repeats_do_no_harm() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await assign_all(world)
            landed = await append_some(world, NAMES[0])
            assert isinstance(landed, Appended)
            channels = [f"{NAMES[0]}_7v0", f"{NAMES[0]}_8v1", NAMES[0], NAMES[0]]
            found = await cut(world, channels, NEWEST)
            assert found.ends == dict.fromkeys(channels, landed.id + 1)

    run_seeded(2, scenario)


def test_the_cut_at_a_tick_is_the_same_whenever_it_is_asked_for() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await assign_all(world)
            ticks = []
            for name in NAMES * 2:
                outcome = await append_some(world, name)
                assert isinstance(outcome, Appended)
                ticks.append(outcome.tick)
            first = [await cut(world, NAMES, tick) for tick in ticks]
            for name in NAMES:
                await append_some(world, name)
            assert [await cut(world, NAMES, tick) for tick in ticks] == first
            assert [it.tick for it in first] == ticks
            for before, after in itertools.pairwise(first):
                assert sum(after.ends.values()) == sum(before.ends.values()) + 1

    run_seeded(3, scenario)


def test_bad_questions_have_their_code() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await assign_all(world)
            invalid = StreamingCode.INVALID_ARGUMENT
            assert await code_of(world, []) is invalid
            assert await code_of(world, [""]) is invalid
            assert await code_of(world, ["x"] * (CHANNELS_MAX + 1)) is invalid
            future = tso.compose(world.clock.wall_ms() + 60_000, 0)
            assert await code_of(world, NAMES, future) is invalid
            assert await code_of(world, NAMES, (1 << 64) - 1) is invalid
            missing = await code_of(world, [*NAMES, "by-dev-rootcoord-dml_99_1v0"])
            assert missing is StreamingCode.CHANNEL_NOT_EXIST

    run_seeded(4, scenario)


def test_while_there_are_no_ticks_nobody_is_told_that_theirs_lies_in_the_future() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await assign_all(world)
            world.oracle.broken = True
            await world.clock.sleep(1.0)
            newest = (await cut(world, NAMES[:1], NEWEST)).tick
            assert await code_of(world, NAMES[:1], newest + 1) is StreamingCode.INNER
            world.oracle.broken = False
            assert (await cut(world, NAMES[:1], TimeTick(newest + 1))).tick == newest + 1

    run_seeded(8, scenario)


def test_a_channel_that_nobody_serves_is_waited_for_but_not_for_ever() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await assign_all(world)
            await world.remove(NAMES[2])
            began_s = world.clock.monotonic_s()
            assert await code_of(world, NAMES) is StreamingCode.INNER
            assert world.clock.monotonic_s() - began_s < CUT_S + 0.1

    run_seeded(5, scenario)


def test_a_channel_that_writes_no_more_is_cut_at_old_ticks_only() -> None:
    async def scenario() -> None:
        full = False
        wal = MemoryWal(
            fault_of=lambda name, _: Fault.LOST if full and name == NAMES[0] else None,
            is_writable=lambda: not full,
        )
        async with running_node(wal) as world:
            await assign_all(world)
            before = await cut(world, NAMES, NEWEST)
            full = True
            await append_some(world, NAMES[0])
            assert await cut(world, NAMES, before.tick) == before
            await append_some(world, NAMES[1])  # the newest tick is another channel's
            assert await code_of(world, NAMES) is StreamingCode.ON_SHUTDOWN
            full = False
            assert (await cut_when_mended(world)).tick > before.tick

    run_seeded(6, scenario)


async def cut_when_mended(world: World) -> Cut:
    await world.locate(NAMES[0], 2)
    return await cut(world, NAMES, NEWEST)


def test_a_full_mailbox_delays_a_cut_and_does_not_fail_it() -> None:
    async def scenario() -> None:
        async with running_node(limits=NodeLimits(backlog_batches_max=1)) as world:
            await assign_all(world)
            appender = (await world.locate(NAMES[0])).appender
            for _ in range(20):
                landed = await appended(world, NAMES[1])
                with suppress(MailboxFull):
                    while True:
                        appender.tell(CloseTick())
                assert (await cut(world, NAMES, NEWEST)).tick >= landed.tick

    run_seeded(7, scenario)
