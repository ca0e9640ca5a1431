"""Measures how long the vchannels of an ordered group take to move when members come and die.

64 vchannels, 8 members. A process joins as the eighth, and is killed by SIGKILL, again and again,
while every vchannel gets a message every 100 ms. A rebalance is over when each vchannel that moves
has been delivered by its new owner: measured from before the join, and from before the kill.
"""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from served_broker import served_broker

from benchmark.measures.channels import PCHANNELS
from benchmark.results.figures import MESSAGES, quantiles
from broker.client import Client, connect
from broker.client.groups.member import GroupMember

TARGET, GROUP = "rebalanced", "ordered"
VCHANNELS, MEMBERS = 64, 8
EVERY_S = 0.1
CALM_S = 1.5
"""So long nothing moves before an event, or it was not over."""
EVENT_S_MAX = 30.0
REBALANCES = 10
"""Joins, and as many kills."""
RUN_S_MAX = 300
VICTIM = "the process"


class Rebalances:
    """Starts a broker for each round, with its data below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def measure(self) -> Mapping[str, float]:
        """Percentiles over the rebalances, in milliseconds."""
        with (
            TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as data,
            served_broker(Path(data) / "rebalanced", "--pchannels", str(PCHANNELS)) as broker,
        ):
            return uvloop.run(asyncio.wait_for(_measured(broker.address), RUN_S_MAX))


@dataclass(slots=True)
class _Delivered:
    """Who got something of each vchannel last, and the first time since it is the one."""

    by: dict[str, str] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)
    changed_s: float = 0.0
    dead: bool = False

    def note(self, vchannel: str, who: str, at_s: float) -> None:
        # What the process wrote before it was killed may be read late.
        if (who == VICTIM and self.dead) or self.by.get(vchannel) == who:
            return
        self.by[vchannel], self.since_s[vchannel] = who, at_s
        self.changed_s = max(self.changed_s, time.perf_counter())

    def is_calm(self, members: int) -> bool:
        """Whether all members have even shares, and have had them for a while."""
        shares = Counter(self.by.values())
        even = len(shares) == members and max(shares.values()) - min(shares.values()) <= 1
        calm = time.perf_counter() - self.changed_s >= CALM_S
        return even and calm and len(self.by) == VCHANNELS

    async def calm(self, members: int) -> dict[str, str]:
        """Wait until it is, and return who gets what."""
        async with asyncio.timeout(EVENT_S_MAX):
            while not self.is_calm(members):  # noqa: ASYNC110 - calm is that nothing happens
                await asyncio.sleep(EVERY_S)
        return dict(self.by)

    def took_s(self, before: Mapping[str, str], began_s: float) -> float:
        """From an event until the last vchannel that moved came to its new owner.

        Raises RuntimeError when fewer moved than had to.
        """
        moved = [it for it, who in self.by.items() if before[it] != who]
        if len(moved) < VCHANNELS // MEMBERS:
            raise RuntimeError(f"{len(moved)} vchannels moved, not {VCHANNELS // MEMBERS} or more")
        return max([self.since_s[it] for it in moved]) - began_s


async def _measured(server: str) -> Mapping[str, float]:
    delivered, took_s = _Delivered(), list[float]()
    async with connect(server) as log, AsyncExitStack() as members, asyncio.TaskGroup() as tasks:
        vchannels = await _created(log)
        loads = [tasks.create_task(_append(log, vchannels))]
        for at in range(MEMBERS - 1):
            client = await members.enter_async_context(connect(server))
            member = await members.enter_async_context(client.group(GROUP).join(TARGET))
            loads.append(tasks.create_task(_take(member, f"member {at}", delivered)))
        for _ in range(REBALANCES):
            took_s += await _join_and_kill(server, delivered)
        for load in loads:
            load.cancel()
    return quantiles(took_s) | {MESSAGES: len(took_s)}


async def _created(log: Client) -> Sequence[str]:
    await log.collections.create(TARGET, shards=VCHANNELS)
    await log.group(GROUP, mode="ordered", by="vchannel").create(TARGET)
    return [it.group.key.vchannel for it in await log.group(GROUP).describe(TARGET)]


async def _append(log: Client, vchannels: Sequence[str]) -> None:
    while True:
        due_s = time.perf_counter() + EVERY_S
        await asyncio.gather(*[log.append(it, b"a step") for it in vchannels])
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))


async def _take(member: GroupMember, name: str, delivered: _Delivered) -> None:
    async for batch in member:
        delivered.note(batch.vchannel, name, time.perf_counter())
        await batch.ack()


async def _join_and_kill(server: str, delivered: _Delivered) -> list[float]:
    """How long both take, in seconds."""
    command = "-m", "benchmark.load.rebalance_worker", server, GROUP, TARGET
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        before = await delivered.calm(MEMBERS - 1)
        delivered.dead = False
        process.stdin.write(b"join\n")
        began_s = float((await process.stdout.readline()).split()[1])
        reading = asyncio.create_task(_read(process.stdout, delivered))
        with_it = await delivered.calm(MEMBERS)
        joined_s = delivered.took_s(before, began_s)
        delivered.dead = True
        killed_s = time.perf_counter()
        process.kill()
        await delivered.calm(MEMBERS - 1)
        left_s = delivered.took_s(with_it, killed_s)
        await reading
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return [joined_s, left_s]


async def _read(lines: asyncio.StreamReader, delivered: _Delivered) -> None:
    while line := await lines.readline():
        vchannel, _, at_s = line.decode().partition(" ")
        delivered.note(vchannel, VICTIM, float(at_s))
