"""What open readers hold back from retention."""

from dataclasses import replace

from actors.testing import run_seeded
from broker.model.failure import Refusal
from broker.model.position import FromAll
from broker.model.retention.holders import HolderKind
from broker.node.scanner_messages import CloseScanner, Delivery, Pull
from tests.broker.node.test_truncation import LIMITS, HoldsFake, fill, retaining


def test_an_open_reader_keeps_what_it_was_not_given_until_it_reads_on_or_closes() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds, replace(LIMITS, hold_bytes_max=1 << 30)) as world:
            await world.assign()
            await fill(world, 3)
            reader = await world.open_scanner(policy=FromAll())
            assert not isinstance(reader, Refusal)
            first = await reader.scanner.ask(Pull(reader.cursor, 1), deadline_s=9)
            assert isinstance(first, Delivery)
            needed = first.cursor.next_id
            await fill(world)
            assert (await world.offsets()).first_id <= needed
            (held,) = [it for it in holds.removals[-1].holders if it.kind is HolderKind.READER]
            assert held.name == "of every vchannel"
            second = await reader.scanner.ask(Pull(first.cursor, 2_000), deadline_s=9)
            assert isinstance(second, Delivery)
            await world.clock.sleep(2)
            assert needed < (await world.offsets()).first_id <= second.cursor.next_id
            reader.scanner.tell(CloseScanner())
            await world.clock.sleep(3)
            assert (await world.offsets()).first_id > 40
            assert holds.removals[-1].holders == ()

    run_seeded(12, scenario)


def test_a_reader_beyond_the_limit_learns_it_at_its_next_step_and_is_not_remembered() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds) as world:
            await world.assign()
            await fill(world, 3)
            reader = await world.open_scanner(policy=FromAll())
            assert not isinstance(reader, Refusal)
            first = await reader.scanner.ask(Pull(reader.cursor, 1), deadline_s=9)
            assert isinstance(first, Delivery)
            await fill(world)
            assert (await world.offsets()).first_id > first.cursor.next_id
            assert all(it.passed == () for it in holds.removals)
            answer: object = first
            while isinstance(answer, Delivery):  # what it has read ahead, and then
                answer = await reader.scanner.ask(Pull(answer.cursor, 1), deadline_s=9)
            assert isinstance(answer, Refusal)
            assert "removed by retention" in answer.cause

    run_seeded(13, scenario)
