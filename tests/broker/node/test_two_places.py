"""A consumer that reads at two places in turn, as a group does, gets what follows at each."""

import random

import pytest

from actors.testing import run_seeded
from broker.model.ids import TxnId
from broker.model.message import AppendedInTxn, ClosedTick
from broker.model.position import ReadPosition
from broker.model.txn import TxnContext
from broker.node.directory_messages import ScannerOpened
from broker.node.scanner_messages import Delivery, Pull
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import MemoryWal
from tests.broker.core.log.singly import each_of
from tests.broker.node.world import World, message, running_node

READ_S = 9.0
BEGIN, COMMIT, ROLLBACK = 900, 901, 902


async def filled(world: World, rng: random.Random) -> None:
    """Transactions of two sizes beside single messages, several open at most times."""
    open_txns: list[TxnContext] = []
    for number in range(120):
        sort = rng.random()
        if sort < 0.2:
            (begun,) = await world.append(message("begin", 0, BEGIN, txn=TxnContext(TxnId(0), 0)))
            assert isinstance(begun, AppendedInTxn)
            open_txns.append(begun.txn)
        elif sort < 0.35 and open_txns:
            txn = open_txns.pop(rng.randrange(len(open_txns)))
            await world.append(message("end", 0, rng.choice([COMMIT, ROLLBACK]), txn=txn))
        elif sort < 0.7 and open_txns:
            txn = rng.choice(open_txns)
            await world.append(*[message(f"t{number}/{it}", 0, txn=txn) for it in range(3)])
        else:
            await world.append(message(f"m{number}", 0))
    for txn in open_txns:
        await world.append(message("end", 0, COMMIT, txn=txn))


async def read_on(opened: ScannerOpened, cursor: ReadPosition) -> tuple[list[bytes], ReadPosition]:
    answer = await opened.scanner.ask(Pull(cursor, 300), deadline_s=READ_S)
    assert isinstance(answer, Delivery), answer
    events = [it for it in each_of(answer.items) if not isinstance(it, ClosedTick)]
    return [it.body for it in events], answer.cursor


@pytest.mark.parametrize("seed", range(8))
def test_wherever_it_goes_on_it_gets_what_follows_there(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        limits = NodeLimits(tail_bytes_max=500, tail_age_s=0.1)
        async with running_node(MemoryWal(segment_bytes=50_000), limits, seed=seed) as world:
            await world.assign()
            await filled(world, rng)
            end = (await world.offsets()).next_id
            opened = await world.open_scanner()
            assert isinstance(opened, ScannerOpened)
            steps: list[tuple[ReadPosition, list[bytes], ReadPosition]] = []
            cursor = opened.cursor
            while cursor.next_id < end:
                found, then = await read_on(opened, cursor)
                steps.append((cursor, found, then))
                cursor = then
            # A position as a group looks it up, which knows of no open transactions yet.
            bare = [ReadPosition(it.next_id, it.tick) for it, _, _ in steps if not it.inside]
            for _ in range(60):
                at, wanted, then = rng.choice(steps)
                assert await read_on(opened, at) == (wanted, then)
                if rng.random() < 0.5:
                    await read_on(opened, rng.choice(bare))

    run_seeded(seed, scenario)
