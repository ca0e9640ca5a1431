"""One actor dies under a pipelined load: its pchannel heals, nobody else notices.

`--rounds N` says how often it is killed for each seed.
"""

import itertools
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from actors import ActorStatistics
from broker.app import Broker
from broker.client import Appended, Client, OutcomeUnknown, Scanner, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.local_broker import actors_of, local_broker

PCHANNELS = 4
WORKERS = 16
"""Appends in flight on each pchannel."""

BETWEEN_KILLS = (WORKERS, 5 * WORKERS)
STEP_S_MAX = 120.0
SEEDS = (1, 2)

TIME_TICK = "/root/node/time_tick"

told = logging.getLogger("tests.chaos")


@dataclass(slots=True)
class Watched:
    """One pchannel under load: what was acknowledged, and what a reader got."""

    name: str
    acknowledged: dict[bytes, Appended] = field(default_factory=dict)
    unknown: int = 0
    slowest_s: float = 0.0
    received: list[tuple[int, int, bytes]] = field(default_factory=list)
    grown: anyio.Event = field(default_factory=anyio.Event)

    @property
    def vchannel(self) -> str:
        return NewVChannel(f"{self.name}_7v0")

    def slowest_since(self) -> float:
        """The worst latency since the last call."""
        slowest_s, self.slowest_s = self.slowest_s, 0.0
        return slowest_s

    async def next_acknowledgements(self, count: int) -> None:
        """A load that hangs fails here."""
        wanted = len(self.acknowledged) + count
        with anyio.fail_after(STEP_S_MAX):
            while len(self.acknowledged) < wanted:
                self.grown = anyio.Event()
                await self.grown.wait()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("actor", ["appender", "time_tick", "scanner"])
async def test_a_killed_actor_comes_back_one_term_later_and_only_its_channel_notices(
    actor: str, seed: int, rounds: int, tmp_path: Path
) -> None:
    chosen = random.Random(f"{actor} {seed}")
    channels = [Watched(name) for name in pchannel_names("by-dev", PCHANNELS)]
    async with (
        local_broker(tmp_path / "data", pchannels=PCHANNELS) as broker,
        connect(broker.address, resend=False) as log,
        anyio.create_task_group() as everything,
    ):
        for channel in channels:
            reader = log.read(channel.vchannel)
            await reader.open()
            everything.start_soon(collect, channel, reader)
        async with anyio.create_task_group() as workers:
            enough = anyio.Event()
            for number, channel in itertools.product(range(WORKERS), channels):
                workers.start_soon(append_until, enough, log, channel, number)
            for _ in range(rounds):
                await kill_one(broker, log, channels, actor, chosen)
            enough.set()
        for channel in channels:
            await check(log, channel)
        everything.cancel_scope.cancel()


async def kill_one(
    broker: Broker, log: Client, channels: Sequence[Watched], actor: str, chosen: random.Random
) -> None:
    """Kill at a moment that the load decides, and wait until the load has gone on behind it."""
    victim = chosen.choice(channels)
    others = [channel for channel in channels if channel is not victim]
    for channel in channels:
        await channel.next_acknowledgements(chosen.randint(*BETWEEN_KILLS))
    await anyio.lowlevel.checkpoint()
    terms = await terms_now(log)
    before_s = max([channel.slowest_since() for channel in others])
    unknown = [channel.unknown for channel in others]
    (killed,) = serving(broker, victim, actor)

    broker.system.kill(killed.path)
    await victim.next_acknowledgements(chosen.randint(*BETWEEN_KILLS))
    await back_at(broker, victim, actor, killed.term + 1)
    for channel in others:
        await channel.next_acknowledgements(1)

    grown = {**terms, victim.name: terms[victim.name] + (actor == "appender")}
    assert await terms_now(log) == grown
    assert [channel.unknown for channel in others] == unknown
    after_s = max([channel.slowest_since() for channel in others])
    told.info(
        "%s of %s killed: slowest append of the others %.0f ms before, %.0f ms since; its own %.0f",
        *(actor, victim.name, before_s * 1e3, after_s * 1e3, victim.slowest_since() * 1e3),
    )


async def back_at(broker: Broker, victim: Watched, actor: str, term: int) -> None:
    """The actor's next incarnation runs. The Scanner of a reader that came anew counts as well."""
    while True:
        running = [it for it in serving(broker, victim, actor) if it.state == "running"]
        if running:
            assert max(it.term for it in running) == term
            return
        await victim.next_acknowledgements(1)


def serving(broker: Broker, victim: Watched, actor: str) -> list[ActorStatistics]:
    """The actors of this name that serve the pchannel; one of the node closes the ticks of all."""
    if actor == "time_tick":
        return [it for it in broker.system.statistics() if it.path == TIME_TICK]
    return actors_of(broker, victim.name, actor)


async def terms_now(log: Client) -> dict[str, int]:
    return {channel.name: channel.term for channel in await log.admin.channels()}


async def append_until(enough: anyio.Event, log: Client, channel: Watched, worker: int) -> None:
    """Only the outcome of an append whose channel was reopened may be unknown."""
    for number in itertools.count():
        if enough.is_set():
            return
        payload = b"%d/%d" % (worker, number) + b"." * 200
        began_s = anyio.current_time()
        try:
            landed = await log.append(channel.vchannel, payload, deadline_s=STEP_S_MAX)
        except OutcomeUnknown:
            channel.unknown += 1
            continue
        channel.slowest_s = max(channel.slowest_s, anyio.current_time() - began_s)
        channel.acknowledged[payload] = landed
        channel.grown.set()


async def collect(channel: Watched, reader: Scanner) -> None:
    async for message in reader.messages():
        channel.received.append((message.id, message.tick, message.payload))
        channel.grown.set()


async def check(log: Client, channel: Watched) -> None:
    """The reader saw what is stored, once each and in order; what was acknowledged is stored."""
    held = (await log.offsets.describe([channel.vchannel]))[channel.vchannel]
    whole = log.read_range(channel.vchannel, held.first_id, held.next_id)
    stored = [(it.id, it.tick, it.payload) async for it in whole.messages()]
    with anyio.fail_after(STEP_S_MAX):
        while not channel.received or channel.received[-1] < stored[-1]:
            channel.grown = anyio.Event()
            await channel.grown.wait()
    assert channel.received == stored
    for (id_, tick, _), (next_id, next_tick, _) in itertools.pairwise(stored):
        assert id_ < next_id
        assert tick < next_tick
    found = {payload: (id_, tick) for id_, tick, payload in stored}
    assert len(found) == len(stored)
    lost = [
        payload
        for payload, landed in channel.acknowledged.items()
        if found.get(payload) != (landed.id, landed.tick)
    ]
    assert not lost
