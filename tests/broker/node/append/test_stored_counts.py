"""What a node's meters count, against what was appended."""

from actors.testing import run_seeded
from broker.model.ids import TxnId
from broker.model.message import AppendedInTxn, MessageType, NewMessage
from broker.model.txn import TxnContext
from tests.broker.node.rows_of_collections import (
    VCHANNEL,
    create_collection,
    delete,
    insert,
    stored,
)
from tests.broker.node.world import PCHANNEL, World, appended, message, running_node

BEGIN = NewMessage(
    VCHANNEL, MessageType.BEGIN_TXN, stored(900, b""), 1, txn=TxnContext(TxnId(0), 60_000)
)


async def transaction(world: World, end: MessageType, seconds: float) -> None:
    (begun,) = await world.append(BEGIN)
    assert isinstance(begun, AppendedInTxn)
    await world.clock.sleep(seconds)
    appended(await world.append(NewMessage(VCHANNEL, end, stored(end, b""), 1, txn=begun.txn)))


def test_rows_are_those_of_headers_in_collections_and_messages_elsewhere() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            appended(await world.append(create_collection(), insert(rows=7), delete(rows=3)))
            appended(await world.append(*[message(f"plain {it}", shard=1) for it in range(5)]))
            meter = world.node.meters.of(PCHANNEL)
            assert (meter.insert_rows, meter.delete_rows) == (12, 3)
            assert meter.insert_bytes > 5 * len("plain 0")
            assert meter.ticks_acknowledged == meter.messages == 9  # one is a CreateSegment
            assert meter.ticks_allocated >= meter.ticks_acknowledged

    run_seeded(1, scenario)


def test_transactions_are_timed_from_begin_to_end_by_their_end() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await transaction(world, MessageType.COMMIT_TXN, 3.0)
            await transaction(world, MessageType.ROLLBACK_TXN, 0.5)
            txns = world.node.meters.of(PCHANNEL).txns
            assert sorted(txns) == ["committed", "rolled_back"]
            assert 2.9 < txns["committed"].sum < 3.5
            assert 0.4 < txns["rolled_back"].sum < 1.0

    run_seeded(2, scenario)
