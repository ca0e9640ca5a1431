"""A purge takes rows from a group as from other readers, and nothing else."""

from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.model.ids import TimeTick, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.retention.purge import Purge
from broker.model.txn import TxnContext
from broker.node.space.purging import PurgeVChannel
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.groups.test_group_leases import (
    VCHANNEL,
    bodies,
    create,
    fill,
    join,
    shown,
)
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_reclamation import BODY, SEGMENT_BYTES, size
from tests.broker.node.world import Reader, World, appended, message, running_node

LATER_TYPE = 77
"""Of a later release: no row, as far as this one knows."""


async def purge(world: World, upto: TimeTick) -> None:
    asked = world.system.find("/root/node/purging")
    assert isinstance(await asked.ask(PurgeVChannel(VCHANNEL, upto), deadline_s=60.0), Purge)


@pytest.mark.parametrize("kind", [MessageType.IMPORT, MessageType.CREATE_INDEX, LATER_TYPE])
def test_a_group_gets_what_a_purge_leaves_to_readers(kind: int) -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            await world.assign()
            await create(world)
            (other,) = appended(await world.append(message("other", kind=kind)))
            await purge(world, other.tick)
            reader = Reader(world, VCHANNEL)
            await reader.read_until(other.id)
            assert [it.body for it in reader.messages] == [b"other"]
            ann = await join(world)
            lease = await ann.take()
            assert bodies(lease) == ["other"]
            assert await ann.ack(lease.lease) is None
            assert (await shown(world)).group.floor >= other.tick
            await fill(world, ["row"])
            assert bodies(await ann.take()) == ["row"]

    run_seeded(1, scenario)


def test_a_group_that_comes_after_the_purge_gets_no_rows_and_the_rest() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            await world.assign()
            await fill(world, ["row one"])
            await world.append(message("other", kind=MessageType.IMPORT))
            (upto,) = await fill(world, ["row two"])
            await purge(world, upto)
            await create(world)
            await fill(world, ["row three"])
            ann = await join(world)
            lease = await ann.take()
            assert bodies(lease) == ["other", "row three"]
            assert await ann.nack(lease.lease) is None
            again = await ann.take()
            assert bodies(again) == ["other", "row three"]
            assert await ann.ack(again.lease) is None
            assert (await shown(world)).group.floor == again.span.upto

    run_seeded(2, scenario)


async def transaction(world: World, text: str) -> None:
    begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
    (begun,) = await world.append(begin)
    assert isinstance(begun, AppendedInTxn)
    await world.append(message(text, txn=begun.txn))
    await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))


def test_a_group_reads_over_what_a_purge_has_given_back_in_every_life() -> None:
    async def scenario() -> None:
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        limits = replace(LIMITS, retention_period_s=0.2)
        async with running_node(wal, limits) as world:
            await world.assign()
            await world.append(message("other", kind=MessageType.IMPORT))
            for _ in range(20):
                await fill(world, [BODY])
                await transaction(world, BODY)
            (upto,) = await fill(world, [BODY])
            before = await size(world)
            await purge(world, upto)
            await world.clock.sleep(60)
            assert await size(world) < before / 2
            await create(world)
            await transaction(world, "in a transaction")
            await fill(world, ["behind"])
            wanted = ["other", "in a transaction", "behind"]
            for _ in range(2):
                ann = await join(world)
                found: list[str] = []
                while len(found) < len(wanted):
                    found += filter(None, bodies(await ann.take()))  # without begins, commits
                assert found == wanted
                ann.leave()
                await world.clock.sleep(600)

    run_seeded(3, scenario)
