"""Measures a broker with 1,000 consumer groups that have nothing to do, without and with members.

A broker of its own, so that nothing of an earlier load is still to be written.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from served_broker import served_broker

from benchmark import names
from benchmark.baselines.disk import BODY
from benchmark.measures.channels import PCHANNELS
from benchmark.measures.master.together import Values
from benchmark.processes import Server
from benchmark.results.figures import IDLE, WAKES
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel

GROUPS = 1000
AT_ONCE = 32
SETTLE_S = 3.0
RUN_S_MAX = 120


class IdleGroups:
    """Starts a broker for each round, with its data below `folder`."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds

    def measure(self) -> Mapping[str, Values]:
        """CPU and wake-ups without members, then with one for each group, which waits."""
        with (
            TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as data,
            served_broker(Path(data) / "groups", "--pchannels", str(PCHANNELS)) as broker,
        ):
            server = Server(names.IDLE_GROUPS, broker.pid, broker.address)
            return uvloop.run(asyncio.wait_for(self._measured(server), RUN_S_MAX))

    async def _measured(self, server: Server) -> dict[str, Values]:
        wanted = [(f"group-{at}", _vchannel(at)) for at in range(GROUPS)]
        async with connect(server.address) as log, AsyncExitStack() as members:
            for at in range(PCHANNELS):
                await log.append(_vchannel(at), BODY)
            await _in_turn(partial(_create, log), wanted)
            found = {names.IDLE_GROUPS: await self._idle(server)}
            join = partial(_join, log, members)
            await _in_turn(join, wanted)
            found[names.IDLE_MEMBERS] = await self._idle(server)
            await _all_there(log)
        return found

    async def _idle(self, server: Server) -> Values:
        await asyncio.sleep(SETTLE_S)
        cpu_s, wakes, started = server.cpu_s(), server.wake_ups(), time.perf_counter()
        await asyncio.sleep(self._seconds)
        took_s = time.perf_counter() - started
        figures = {IDLE: (server.cpu_s() - cpu_s) / took_s * 100}
        now = server.wake_ups()
        if now is not None and wakes is not None:
            figures[WAKES] = max(0, now - wakes) / took_s
        return figures


def _vchannel(at: int) -> NewVChannel:
    number = at % PCHANNELS
    return NewVChannel(f"by-dev-rootcoord-dml_{number}_{100 + number}v0")


async def _create(log: Client, group: str, vchannel: NewVChannel) -> None:
    await log.group(group).create(vchannel, start="latest")


async def _join(log: Client, members: AsyncExitStack, group: str, vchannel: NewVChannel) -> None:
    await members.enter_async_context(log.group(group).join(vchannel))


async def _all_there(log: Client) -> None:
    """Raises RuntimeError when a group has no member: it would cost nothing."""
    for at in range(PCHANNELS):
        for view in await log.groups.list(_vchannel(at)):
            if not view.members:
                raise RuntimeError(f"group {view.group.key.name} has no member")


async def _in_turn(
    call: Callable[[str, NewVChannel], Awaitable[None]], wanted: Iterable[tuple[str, NewVChannel]]
) -> None:
    turns = iter(wanted)

    async def work() -> None:
        for group, vchannel in turns:
            await call(group, vchannel)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())
