"""Assigning, removing, locating, and what a Directory that dies leaves behind."""

import asyncio

import anyio
import pytest

from actors import NoSuchActor
from actors.testing import run_seeded
from broker.core.naming import PCHANNELS_MAX
from broker.model.channel import PChannel
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term, TimeTick
from broker.model.message import Appended
from broker.model.position import FromLatest
from broker.node.control import LocalNode
from broker.node.directory_messages import (
    AssignChannel,
    CollectStatus,
    Describe,
    Drain,
    FindScanner,
    LatestMvcc,
    Locate,
    NodeStatus,
    OpenScanner,
    ScannerOpened,
)
from broker.node.scanner_messages import CloseScanner
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.world import (
    DIRECTORY,
    NODE,
    OTHER,
    PCHANNEL,
    Reader,
    World,
    message,
    running_node,
)


def code(answer: object) -> StreamingCode | None:
    return answer.code if isinstance(answer, Refusal) else None


def test_assign_and_remove_follow_the_table() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert await world.assign(term=3) is None
            assert code(await world.assign(term=3)) is StreamingCode.IGNORED_OPERATION
            assert code(await world.assign(term=2)) is StreamingCode.IGNORED_OPERATION
            assert code(await world.remove(term=2)) is StreamingCode.IGNORED_OPERATION
            assert await world.assign(term=5) is None
            assert (await world.locate()).channel.term == 5
            assert await world.remove(term=5) is None
            assert code(await world.remove(term=5)) is StreamingCode.IGNORED_OPERATION
            assert code(await world.assign(term=5)) is StreamingCode.IGNORED_OPERATION
            assert await world.remove(OTHER, term=1) is None
            assert code(await world.assign(term=0)) is StreamingCode.INVALID_ARGUMENT
            assert world.observer.events[-1][0] == "released"
            with pytest.raises(NoSuchActor):
                world.system.find(world.path("appender"))

    run_seeded(1, scenario)


def test_a_remove_that_reaches_nobody_is_not_said_to_be_done() -> None:
    """The coordinator would open the channel elsewhere, and two owners would close ticks."""

    async def scenario() -> None:
        async with running_node() as world:
            assert await world.assign(term=1) is None
            await world.clock.sleep(1.0)
            world.system.kill(f"/root/node/channels/{PCHANNEL}/controller")
            assert code(await world.remove(term=1)) is StreamingCode.INNER
            assert world.node.open_channels.find(PCHANNEL) is not None
            await world.clock.sleep(1.0)
            assert await world.remove(term=1) is None, "it may be asked for again"
            assert world.node.open_channels.find(PCHANNEL) is None

    run_seeded(9, scenario)


@pytest.mark.parametrize("seed", range(20))
def test_an_overtaken_assign_is_refused_and_the_newest_one_serves(seed: int) -> None:
    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            first, second, third = await asyncio.gather(
                world.assign(term=1), world.assign(term=2), world.assign(term=3)
            )
            assert third is None or code(third) is StreamingCode.IGNORED_OPERATION
            assert {code(first), code(second)} <= {
                None, StreamingCode.UNMATCHED_CHANNEL_TERM, StreamingCode.IGNORED_OPERATION,
            }  # fmt: skip
            assert (await world.locate()).channel.term == 3

    run_seeded(seed, scenario)


def test_locate_checks_in_the_documented_order() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert code(await world.ask(Locate(PCHANNEL, Term(1)))) is (
                StreamingCode.CHANNEL_NOT_EXIST
            )
            await world.assign(term=2)
            assert code(await world.ask(Locate(PCHANNEL, Term(1)))) is (
                StreamingCode.UNMATCHED_CHANNEL_TERM
            )
            assert code(await world.ask(Locate(PChannelName(""), None))) is (
                StreamingCode.INVALID_ARGUMENT
            )
            world.system.find(DIRECTORY).tell(Drain())
            for request in (
                Locate(PCHANNEL, Term(2)),
                CollectStatus(),
                OpenScanner(PCHANNEL, None, "", FromLatest()),
            ):
                assert code(await world.ask(request)) is StreamingCode.ON_SHUTDOWN
            assert code(await world.assign(term=3)) is StreamingCode.ON_SHUTDOWN

    run_seeded(2, scenario)


def test_the_newest_data_of_a_vchannel_is_known_where_its_pchannel_serves() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            opened = (await world.offsets()).closed_tick
            first, second = await world.append(message("one"), message("two", shard=1))
            assert isinstance(first, Appended)
            assert await world.ask(LatestMvcc(f"{PCHANNEL}_7v0")) == first.tick
            assert await world.ask(LatestMvcc(f"{PCHANNEL}_7v1")) == second.tick  # type: ignore[union-attr]
            assert await world.ask(LatestMvcc(f"{PCHANNEL}_7v2")) == opened
            elsewhere = await world.ask(LatestMvcc(f"{OTHER}_7v0"))
            assert code(elsewhere) is StreamingCode.CHANNEL_NOT_EXIST
            await world.clock.sleep(1.0)  # a tick is stored, and then only announced ones follow
            status = await world.ask(CollectStatus())
            (found,) = status.channels
            assert second.tick < found.mvcc_tick < found.offsets.closed_tick  # type: ignore[union-attr]
            await world.assign(term=2)
            assert await world.ask(LatestMvcc(f"{PCHANNEL}_7v0")) > first.tick

    run_seeded(5, scenario)


def test_status_and_offsets_say_what_the_log_holds() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await world.assign(OTHER, term=4)
            (outcome,) = await world.append(message("hello"))
            status = await world.ask(CollectStatus())
            assert isinstance(status, NodeStatus)
            assert [(s.channel.name, s.channel.term) for s in status.channels] == [
                (PCHANNEL, 1), (OTHER, 4),
            ]  # fmt: skip
            here, missing = await world.ask(Describe((PCHANNEL, PChannelName("nowhere_0"))))
            assert code(missing) is StreamingCode.CHANNEL_NOT_EXIST
            assert (here.first_id, here.next_id) == (1, outcome.id + 1)  # type: ignore[union-attr]
            assert here.closed_tick >= outcome.tick  # type: ignore[union-attr]
            view = (await world.locate()).view
            assert await view.seek(outcome.tick) == outcome.id  # type: ignore[union-attr]
            assert await view.seek(TimeTick(1 << 63)) == here.next_id
            assert await view.advance(here.first_id, here.next_id, 1) == 2
            with pytest.raises(Refused):
                await view.advance(here.next_id + 5, here.next_id + 9, 1)

    run_seeded(3, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_a_directory_that_dies_closes_no_channel_and_learns_what_is_open(seed: int) -> None:
    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            await world.assign()
            located = await world.locate()
            world.system.kill(DIRECTORY)
            assert (await world.locate()).appender == located.appender
            assert code(await world.assign(term=1)) is StreamingCode.IGNORED_OPERATION
            assert await world.assign(term=2) is None
            assert (await world.locate()).channel.term == 2

    run_seeded(seed, scenario)


def test_a_killed_scanner_is_found_again_and_a_closed_one_is_gone() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            opened = await world.open_scanner()
            assert isinstance(opened, ScannerOpened)
            world.system.kill(opened.scanner.path)
            found = await world.ask(FindScanner(opened.scanner.path))
            assert code(found) in (StreamingCode.INNER, None)  # or it is there again already
            await world.clock.sleep(0.1)
            found = await world.ask(FindScanner(opened.scanner.path))
            assert (found.path, found.term) == (opened.scanner.path, opened.scanner.term + 1)
            found.tell(CloseScanner())
            await world.clock.sleep(0.1)
            assert code(await world.ask(FindScanner(found.path))) is (
                StreamingCode.CHANNEL_NOT_EXIST
            )

    run_seeded(4, scenario)


def test_a_scanner_without_pulls_stops() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            opened = await world.open_scanner()
            assert isinstance(opened, ScannerOpened)
            reader = Reader(world)
            for _ in range(10_000):
                await reader.pull()
                if world.clock.monotonic_s() > 1_000:
                    break
            assert code(await world.ask(FindScanner(opened.scanner.path))) is (
                StreamingCode.CHANNEL_NOT_EXIST
            )
            await reader.pull()
            assert await scanners(world) == 1

    run_seeded(5, scenario)


async def scanners(world: World) -> int:
    return sum("/scanner-" in each.path for each in world.system.statistics())


def test_a_node_can_be_asked_through_its_port() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            node = LocalNode(NODE, "127.0.0.1:1", lambda: world.system.find(DIRECTORY))
            assert (node.node_id, node.address) == (NodeId(1), "127.0.0.1:1")
            await node.assign(PChannel(PCHANNEL, Term(3)))
            assert [(c.channel.name, c.channel.term) for c in await node.status()] == [
                (PCHANNEL, 3)
            ]
            with pytest.raises(Refused):
                await node.assign(PChannel(PCHANNEL, Term(3)))
            await node.remove(PCHANNEL, Term(3))
            assert list(await node.status()) == []
            world.system.kill(DIRECTORY)
            with pytest.raises(Refused):
                await node.status()

    run_seeded(6, scenario)


def test_a_consumer_that_comes_while_the_channel_reopens_is_refused_or_served() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            for term in range(1, 20):
                await world.locate(term=term)
                pending = asyncio.get_running_loop().create_task(world.open_scanner())
                await world.clock.sleep(0.001 * term)
                world.system.kill(world.path("scanners" if term % 2 else "appender"))
                if term % 2:
                    world.system.kill(world.path("appender"))
                answer = await pending
                assert isinstance(answer, ScannerOpened) or answer.code in (
                    StreamingCode.ON_SHUTDOWN, StreamingCode.CHANNEL_NOT_EXIST,
                )  # fmt: skip

    run_seeded(9, scenario)


def test_a_channel_that_another_node_took_over_is_not_reopened() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            world.terms.owned = False
            world.system.kill(world.path("appender"))
            await world.clock.sleep(5)
            assert code(await world.ask(Locate(PCHANNEL, None))) is (
                StreamingCode.CHANNEL_NOT_EXIST
            )
            assert ("closed", PCHANNEL, 1) in world.observer.events
            world.terms.owned = True
            world.terms.newest[PCHANNEL] = 5
            assert code(await world.assign(term=4)) is StreamingCode.IGNORED_OPERATION
            assert await world.assign(term=6) is None

    run_seeded(7, scenario)


def test_a_pchannel_is_reopened_when_the_supervisor_of_all_restarts() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert await world.assign(term=1) is None
            world.system.kill("/root/node/channels")
            while world.node.open_channels.all():
                await world.clock.sleep(0.01)
            assert await world.assign(term=5) is None
            assert (await world.locate()).channel.term == 5
            await world.append(message("x"))

    run_seeded(31, scenario)


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "x" * 300, "nul\0", "blank "])
def test_a_pchannel_name_that_is_no_folder_name_is_refused_and_the_directory_lives(
    name: str,
) -> None:
    async def scenario() -> None:
        async with running_node() as world:
            directory = world.system.find(DIRECTORY)
            assert code(await world.assign(PChannelName(name))) is StreamingCode.INVALID_ARGUMENT
            assert code(await world.remove(PChannelName(name))) is StreamingCode.INVALID_ARGUMENT
            assert world.system.find(DIRECTORY) == directory

    run_seeded(33, scenario)


def test_a_term_too_large_to_be_followed_by_another_is_refused() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert code(await world.assign(term=(1 << 63) - 1)) is StreamingCode.INVALID_ARGUMENT
            assert await world.assign(term=1) is None

    run_seeded(34, scenario)


def test_a_node_limits_the_number_of_its_pchannels() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert await world.assign() is None
            for number in range(PCHANNELS_MAX - 1):
                assert await world.remove(PChannelName(f"made-up-{number}")) is None
            got = await world.assign(OTHER)
            assert code(got) is StreamingCode.RESOURCE_ACQUIRED
            assert await world.assign(term=2) is None

    run_seeded(35, scenario)


@pytest.mark.parametrize("seed", range(30))
def test_a_consumer_that_leaves_while_its_scanner_starts_leaves_no_scanner_behind(
    seed: int,
) -> None:
    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            await world.assign()
            await world.open_scanner()
            with anyio.CancelScope() as leaving:
                world.clock.call_later(seed * 1e-9, leaving.cancel)
                await world.open_scanner()
                leaving.cancel()
            kept = 2 if not leaving.cancelled_caught else 1
            await world.clock.sleep(1.0)
            paths = [each.path for each in world.system.statistics()]
            assert sum("/scanner-" in path for path in paths) == kept

    run_seeded(seed, scenario)


class SlowWal(MemoryWal):
    """A log with a long end to read before it is open."""

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        await asyncio.sleep(250.0)
        return await super().open(channel, term)


def test_an_opening_may_take_minutes() -> None:
    async def scenario() -> None:
        async with running_node(SlowWal()) as world:
            assign = AssignChannel(PChannel(PCHANNEL, Term(1)))
            assert await world.ask(assign, deadline_s=290.0) is None
            await world.clock.sleep(60.0)
            assert (await world.locate()).channel.term == 1

    run_seeded(32, scenario)
