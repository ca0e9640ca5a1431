"""kill -9 of a broker amid transactions: every committed one whole, every other one absent.

`--rounds N` says how often it is killed; a few times in CI, a hundred to show the result.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from broker.client import (
    BadTransaction,
    Client,
    OutcomeUnknown,
    TidemarkError,
    TransactionExpired,
    connect,
)
from tests.broker_process import BrokerProcess, free_port

WORKERS = 16
BODIES_MAX = 6
ROUND_S_MAX = 60.0
COMMITS = (10, 60)


@dataclass(slots=True)
class Told:
    """Bodies by transaction: of those that were committed, and of those that must be absent."""

    committed: dict[int, list[bytes]] = field(default_factory=dict)
    absent: dict[int, list[bytes]] = field(default_factory=dict)
    unknown: int = 0
    grown: anyio.Event = field(default_factory=anyio.Event)

    async def reach(self, commits: int) -> None:
        while len(self.committed) < commits:
            self.grown = anyio.Event()
            await self.grown.wait()


async def test_transactions_survive_kill_nine_whole_or_not_at_all(
    tmp_path: Path, rounds: int
) -> None:
    address = f"127.0.0.1:{free_port()}"
    chosen, told = random.Random(rounds), Told()
    broker = BrokerProcess(tmp_path / "data", address)
    read: list[tuple[int, bytes]] = []
    try:
        async with connect(address) as log:
            vchannel = (await log.collections.create("load", shards=1)).vchannels[0]
            with anyio.CancelScope() as load:
                async with anyio.create_task_group() as group:
                    group.start_soon(read_for_ever, log, vchannel, read)
                    for worker in range(WORKERS):
                        group.start_soon(transact_for_ever, log, vchannel, worker, told)
                    for _ in range(rounds):
                        await live_a_while(told, chosen)
                        broker.kill()
                        broker = BrokerProcess(tmp_path / "data", address)
                    await live_a_while(told, chosen)
                    load.cancel()
            found = [(m.tick, m.payload) async for m in log.read(vchannel, until="now").messages()]
        assert broker.terminate() == 0
    finally:
        broker.kill()
    assert read == found[: len(read)]
    check(found, told)
    told_text = f"{rounds} kills, {len(told.committed)} committed, {told.unknown} unknown"
    logging.getLogger("tests.chaos").info(told_text)


async def test_a_transaction_goes_on_over_a_kill(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(tmp_path / "data", address)
    vchannel = "by-dev-rootcoord-dml_1_7v0"
    try:
        async with connect(address) as log:
            async with log.txn(vchannel, keepalive_s=60) as txn:
                await txn.append(b"before")
                broker.kill()
                broker = BrokerProcess(tmp_path / "data", address)
                # Repeated until it is written, so that the stream of before is gone for good.
                await log.append(vchannel, b"between", deadline_s=ROUND_S_MAX)
                await txn.append(b"after")
            found = [m.payload async for m in log.read(vchannel, until="now").messages()]
            assert found == [b"between", b"before", b"after"]
            with pytest.raises(BadTransaction):
                await txn.append(b"late")
    finally:
        broker.kill()


async def live_a_while(told: Told, chosen: random.Random) -> None:
    with anyio.fail_after(ROUND_S_MAX):
        await told.reach(len(told.committed) + chosen.randint(*COMMITS))


async def transact_for_ever(log: Client, vchannel: str, worker: int, told: Told) -> None:
    chosen, number = random.Random(worker), 0
    while True:
        number += 1
        await transact(log, vchannel, f"{worker}/{number}", chosen, told)


async def transact(
    log: Client, vchannel: str, name: str, chosen: random.Random, told: Told
) -> None:
    txn = log.txn(vchannel, keepalive_s=20)
    bodies = [f"{name}/{part}".encode() for part in range(chosen.randint(1, BODIES_MAX))]
    try:
        await txn.begin()
        for body in bodies:
            await txn.append(body)
        if chosen.random() < 0.2:
            await txn.rollback()
            told.absent[txn.id] = bodies
        else:
            await txn.commit()
            told.committed[txn.id] = bodies
            told.grown.set()
    except OutcomeUnknown:
        told.unknown += 1
        if txn.hopeless:
            told.absent[txn.id] = bodies
    except TransactionExpired:
        told.absent[txn.id] = bodies
    except TidemarkError:
        return


async def read_for_ever(log: Client, vchannel: str, read: list[tuple[int, bytes]]) -> None:
    async for batch in log.read(vchannel):
        read += [(message.tick, message.payload) for message in batch.messages]


def check(found: Sequence[tuple[int, bytes]], told: Told) -> None:
    """Each committed one stands in one piece, in the order of its appends, at one tick."""
    pieces: dict[int, list[bytes]] = {}
    for tick, payload in found:
        pieces.setdefault(tick, []).append(payload)
    assert [tick for tick, _ in found] == sorted(tick for tick, _ in found)
    by_first = {piece[0]: piece for piece in pieces.values()}
    for bodies in told.committed.values():
        assert by_first.get(bodies[0]) == bodies
    seen = {payload for _, payload in found}
    for bodies in told.absent.values():
        assert not seen & {*bodies}
