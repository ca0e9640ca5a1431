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

from broker.client import Client, OutcomeUnknown, TidemarkError, TransactionExpired, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTransaction
from tests.broker_process import BrokerProcess, free_port

WORKERS = 16
BODIES_MAX = 6
ROUND_S_MAX = 60.0
COMMITS = (10, 60)
READERS_AMID = 3


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


@dataclass(slots=True)
class Read:
    """What one reader got, from the first message on."""

    messages: list[tuple[int, bytes]] = field(default_factory=list)
    grown: anyio.Event = field(default_factory=anyio.Event)

    async def reach(self, message: tuple[int, bytes]) -> None:
        while not self.messages or self.messages[-1][0] < message[0]:
            self.grown = anyio.Event()
            await self.grown.wait()


async def test_transactions_survive_kill_nine_whole_or_not_at_all(
    tmp_path: Path, rounds: int
) -> None:
    """For a reader that started before the load, for some amid it, and for one after it."""
    address = f"127.0.0.1:{free_port()}"
    chosen, told = random.Random(rounds), Told()
    broker = BrokerProcess(tmp_path / "data", address)
    readers: list[Read] = []
    try:
        async with connect(address) as log, anyio.create_task_group() as reading:
            vchannel = (await log.collections.create("load", shards=1)).vchannels[0]
            readers.append(Read())
            reading.start_soon(read_for_ever, log, vchannel, readers[0])
            with anyio.CancelScope() as load:
                async with anyio.create_task_group() as group:
                    for worker in range(WORKERS):
                        group.start_soon(transact_for_ever, log, vchannel, worker, told)
                    for number in range(rounds):
                        await live_a_while(told, chosen)
                        if len(readers) <= READERS_AMID and number % (rounds // 3 + 1) == 1:
                            readers.append(Read())
                            reading.start_soon(read_for_ever, log, vchannel, readers[-1])
                        broker.kill()
                        broker = BrokerProcess(tmp_path / "data", address)
                    await live_a_while(told, chosen)
                    load.cancel()
            found = [(m.tick, m.payload) async for m in log.read(vchannel, until="now").messages()]
            assert len(readers) > 1
            for reader in readers:
                with anyio.fail_after(ROUND_S_MAX):
                    await reader.reach(found[-1])
                assert reader.messages[: len(found)] == found
            reading.cancel_scope.cancel()
        assert broker.terminate() == 0
    finally:
        broker.kill()
    check(found, told)
    told_text = (
        f"{rounds} kills, {len(told.committed)} committed, {len(told.absent)} rolled back or"
        f" expired, {told.unknown} unknown; {len(found)} messages, {len(readers) + 1} readers"
    )
    logging.getLogger("tests.chaos").warning(told_text)


async def test_a_transaction_goes_on_over_a_kill(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(tmp_path / "data", address)
    vchannel = NewVChannel("by-dev-rootcoord-dml_1_7v0")
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
        if txn.cannot_commit:
            told.absent[txn.id] = bodies
    except TransactionExpired:
        told.absent[txn.id] = bodies
    except TidemarkError:
        return


async def read_for_ever(log: Client, vchannel: str, read: Read) -> None:
    async for batch in log.read(vchannel):
        read.messages += [(message.tick, message.payload) for message in batch.messages]
        read.grown.set()


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
