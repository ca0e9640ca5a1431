"""One append and one read, from end to end on fakes."""

from dataclasses import replace

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import ClosedTick
from broker.node.scanner_messages import Delivery
from tests.broker.node.world import PCHANNEL, Reader, appended, message, running_node


def test_what_is_appended_is_delivered_once_in_order() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert await world.assign() is None
            outcomes = appended(await world.append(message("a"), message("b", 1), message("c")))
            reader = Reader(world)
            await reader.read_until(outcomes[-1].id)
            assert sorted(each.body for each in reader.messages) == [b"a", b"b", b"c"]
            ticks = [event.tick for event in reader.events]
            assert ticks == sorted(set(ticks))

    run_seeded(1, scenario)


def test_an_idle_consumer_sees_a_tick_about_every_200_ms() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            reader = Reader(world)
            began_s = world.clock.monotonic_s()
            for _ in range(20):
                answer = await reader.pull()
                assert isinstance(answer, Delivery)
            took_s = world.clock.monotonic_s() - began_s
            assert 3.0 < took_s < 4.5
            assert [t.tick for t in reader.ticks] == sorted({t.tick for t in reader.ticks})
            assert sum(t.persisted for t in reader.ticks) == 1  # at the opening: a read writes none

    run_seeded(2, scenario)


def test_an_append_to_a_foreign_vchannel_is_refused_alone() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            bad = replace(message("x"), vchannel="other_1v0")
            good, refusal = await world.append(message("a"), bad)
            assert not isinstance(good, Refusal)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.UNRECOVERABLE

    run_seeded(3, scenario)


def test_the_first_record_of_a_log_is_a_tick() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign(term=5)
            reader = Reader(world)
            await reader.pull()
            first = reader.events[0]
            assert isinstance(first, ClosedTick)
            assert (first.persisted, first.id, first.term) == (True, 1, 5)
            assert (await world.offsets(PCHANNEL)).term == 5

    run_seeded(4, scenario)
