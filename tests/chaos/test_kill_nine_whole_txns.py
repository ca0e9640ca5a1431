"""kill -9 amid transactions that come in one batch: each is there once and whole, or absent.

`--rounds N` says how often the broker is killed; a few times in CI, a hundred to show the result.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from broker.client import AppendsFailed, Client, Message, OutcomeUnknown, connect
from tests.broker_process import BrokerProcess, free_port

WORKERS = 8
BODIES = (2, 12)
COMMITS = (10, 60)
ROUND_S_MAX = 60.0


@dataclass(slots=True)
class Told:
    """Bodies by transaction: of those that were acknowledged, must be absent, or may be either."""

    committed: list[list[bytes]] = field(default_factory=list)
    absent: list[list[bytes]] = field(default_factory=list)
    unknown: list[list[bytes]] = field(default_factory=list)
    grown: anyio.Event = field(default_factory=anyio.Event)

    async def reach(self, commits: int) -> None:
        while len(self.committed) < commits:
            self.grown = anyio.Event()
            await self.grown.wait()


async def test_they_survive_kill_nine_once_and_whole(tmp_path: Path, rounds: int) -> None:
    address = f"127.0.0.1:{free_port()}"
    chosen, told = random.Random(rounds), Told()
    broker = BrokerProcess(tmp_path / "data", address)
    try:
        async with connect(address) as log:
            vchannel = (await log.collections.create("load", shards=1)).vchannels[0]
            await log.append(vchannel, b"so that the server is known")
            with anyio.CancelScope() as load:
                async with anyio.create_task_group() as group:
                    for worker in range(WORKERS):
                        group.start_soon(append_for_ever, log, vchannel, worker, told)
                    for _ in range(rounds):
                        await live_a_while(told, chosen)
                        broker.kill()
                        broker = BrokerProcess(tmp_path / "data", address)
                    await live_a_while(told, chosen)
                    load.cancel()
            assert not log._appends._single.all(), "nothing went in steps"
            found = [(m.tick, m.payload) async for m in log.read(vchannel, until="now").messages()]
        assert broker.terminate() == 0
    finally:
        broker.kill()
    check(found[1:], told)
    logging.getLogger("tests.chaos").warning(
        f"{rounds} kills, {len(told.committed)} committed, {len(told.unknown)} unknown"
    )


async def live_a_while(told: Told, chosen: random.Random) -> None:
    with anyio.fail_after(ROUND_S_MAX):
        await told.reach(len(told.committed) + chosen.randint(*COMMITS))


async def append_for_ever(log: Client, vchannel: str, worker: int, told: Told) -> None:
    chosen, number = random.Random(worker), 0
    while True:
        number += 1
        bodies = [b"%d/%d/%d" % (worker, number, at) for at in range(chosen.randint(*BODIES))]
        messages = [Message(it, properties={"n": str(at)}) for at, it in enumerate(bodies)]
        told.unknown.append(bodies)  # one that is cancelled may be there
        try:
            await log.append_messages(vchannel, messages)
        except AppendsFailed as error:
            if not any(isinstance(it, OutcomeUnknown) for it in error.results):
                told.unknown.remove(bodies)
                told.absent.append(bodies)
        else:
            told.unknown.remove(bodies)
            told.committed.append(bodies)
            told.grown.set()


def check(found: Sequence[tuple[int, bytes]], told: Told) -> None:
    """Each stands in one piece, in the order of its messages, at one tick, and once."""
    pieces: dict[int, list[bytes]] = {}
    for tick, payload in found:
        pieces.setdefault(tick, []).append(payload)
    assert [tick for tick, _ in found] == sorted(tick for tick, _ in found)
    whole = sorted(pieces.values())
    allowed = [*told.committed, *told.unknown]
    assert len({piece[0] for piece in whole}) == len(whole), "one was stored twice"
    assert not [it for it in whole if it not in allowed], "one is there in half, or was refused"
    assert not [it for it in told.committed if it not in whole], "an acknowledged one is missing"
