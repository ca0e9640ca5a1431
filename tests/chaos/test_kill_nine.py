"""kill -9 of a broker under a pipelined load: what was acknowledged is there once, and only grows.

`--rounds N` says how often it is killed; a few times in CI, fifty to show the result.
"""

import itertools
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from broker.client import Client, OutcomeUnknown, connect
from tests.broker_process import BrokerProcess, free_port

IN_FLIGHT = 256
APPEND_S_MAX = 60.0
LIVE_APPENDS = (IN_FLIGHT, 20 * IN_FLIGHT)


@dataclass(slots=True)
class Ledger:
    """What the load believes: for each vchannel, acknowledged (id, tick, payload)."""

    acknowledged: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    total: int = 0
    unknown: int = 0
    grown: anyio.Event = field(default_factory=anyio.Event)

    def add(self, vchannel: str, own_id: int, tick: int, payload: bytes) -> None:
        self.acknowledged.setdefault(vchannel, []).append((own_id, tick, payload))
        self.total += 1
        self.grown.set()

    async def reach(self, total: int) -> None:
        while self.total < total:
            self.grown = anyio.Event()
            await self.grown.wait()


async def test_every_acknowledged_message_survives_kill_nine_in_a_row(
    tmp_path: Path, rounds: int
) -> None:
    address = f"127.0.0.1:{free_port()}"
    chosen = random.Random(rounds)
    ledger = Ledger()
    followed: dict[str, list[int]] = {}
    terms: list[dict[str, int]] = []
    broker = BrokerProcess(tmp_path / "data", address)
    try:
        async with connect(address) as log:
            vchannels = (await log.collections.create("load", shards=3)).vchannels
            with anyio.CancelScope() as load:
                async with anyio.create_task_group() as group:
                    group.start_soon(follow, log, vchannels, followed)
                    for worker in range(IN_FLIGHT):
                        vchannel = vchannels[worker % len(vchannels)]
                        group.start_soon(append_for_ever, log, vchannel, worker, ledger)
                    for _ in range(rounds):
                        await live_a_while(ledger, chosen)
                        broker.kill()
                        broker = BrokerProcess(tmp_path / "data", address)
                        terms.append(await terms_now(address))
                    await live_a_while(ledger, chosen)
                    load.cancel()
            for vchannel in vchannels:
                ids = await check(log, vchannel, ledger)
                seen = followed[vchannel]
                assert seen == ids[: len(seen)], f"{vchannel}: a reader lost or repeated something"
                assert seen
        assert broker.terminate() == 0
    finally:
        broker.kill()
    for earlier, later in itertools.pairwise(terms):
        assert all(later[name] > term for name, term in earlier.items())
    assert ledger.total > rounds * IN_FLIGHT
    assert ledger.unknown == 0  # what was sent again found out what had become of it
    told = f"{rounds} kills, {ledger.total} acknowledged, {ledger.unknown} of unknown outcome"
    logging.getLogger("tests.chaos").info(told)


async def live_a_while(ledger: Ledger, chosen: random.Random) -> None:
    """Until a random number of new acknowledgements was seen; a load that hangs fails here."""
    with anyio.fail_after(APPEND_S_MAX):
        await ledger.reach(ledger.total + chosen.randint(*LIVE_APPENDS))


async def append_for_ever(log: Client, vchannel: str, worker: int, ledger: Ledger) -> None:
    number = 0
    while True:
        payload = b"%d/%d" % (worker, number) + b"." * 200
        try:
            landed = await log.append(vchannel, payload, deadline_s=APPEND_S_MAX)
        except OutcomeUnknown:
            ledger.unknown += 1
        else:
            ledger.add(vchannel, int(landed.id), int(landed.tick), payload)
        number += 1


async def terms_now(address: str) -> dict[str, int]:
    async with connect(address) as log:
        return {channel.name: int(channel.term) for channel in await log.admin.channels()}


async def follow(log: Client, vchannels: Sequence[str], followed: dict[str, list[int]]) -> None:
    """Read batches as they come, over all the kills."""
    followed.update({vchannel: [] for vchannel in vchannels})
    async for batch in log.read_batches(vchannels):
        if len(batch):
            followed[batch.vchannel] += batch.ids


async def check(log: Client, vchannel: str, ledger: Ledger) -> list[int]:
    """The log holds each acknowledged message where its acknowledgement said; all in order."""
    stored: dict[int, tuple[int, bytes]] = {}
    held = (await log.offsets.describe([vchannel]))[vchannel]
    ids: list[int] = []
    ticks: list[int] = []
    async for batch in log.read_range(vchannel, held.first_id, held.next_id):
        for message in batch.messages:
            ids.append(int(message.id))
            ticks.append(int(message.tick))
            stored[int(message.id)] = (int(message.tick), bytes(message.payload))
    payloads = {payload for _, payload in stored.values()}
    assert len(payloads) == len(ids), f"{vchannel}: an append is in the log more than once"
    assert_grows(ids, "ids")
    assert_grows(ticks, "ticks")
    for own_id, tick, payload in ledger.acknowledged.get(vchannel, []):
        assert stored.get(own_id) == (tick, payload), f"{vchannel} lost acknowledged id {own_id}"
    return ids


def assert_grows(values: Sequence[int], what: str) -> None:
    for before, after in itertools.pairwise(values):
        assert before < after, f"{what} went from {before} to {after}"
