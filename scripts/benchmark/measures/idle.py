"""Measures a broker that has nothing to do, and readers that get nothing but time ticks.

A broker of its own, so that nothing of an earlier load is still to be written; the baselines are
watched in the same seconds.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from served_broker import served_broker

from benchmark.baselines.disk import BODY
from benchmark.measures.channels import PCHANNELS
from benchmark.processes import Server
from benchmark.results.figures import IDLE, TICK, WAKES
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel

OURS = "Tidemark idle"
READERS = 128
RUN_S_MAX = 120
SETTLE_SHARE = 0.3
"""Of the seconds that count: how long to wait before them."""


@dataclass(slots=True)
class Ticks:
    """Counts the ticks of all readers."""

    count: int = 0


class Idle:
    """Measures an idle broker once a round; `watched` are the baselines, idle too."""

    def __init__(self, folder: Path, seconds: float, watched: Iterable[Server]) -> None:
        self._folder = folder
        self._seconds = seconds
        self._watched = list(watched)
        self._round: dict[str, dict[str, float]] = {}

    def broker(self) -> dict[str, float]:
        """CPU and wake-ups of a broker without clients."""
        return self._take(OURS)

    def baseline(self, name: str) -> dict[str, float]:
        """CPU and wake-ups of a baseline in the same seconds."""
        return self._take(name)

    def reader(self, protocol: str) -> dict[str, float]:
        """CPU for each tick of a reader by "batches" or "Consume"."""
        return self._take(protocol)

    def _take(self, name: str) -> dict[str, float]:
        """Figures of this round; the first ones asked for measure all of them."""
        if name not in self._round:
            self._round.clear()
            with (
                TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as data,
                served_broker(Path(data) / "idle", "--pchannels", str(PCHANNELS)) as broker,
            ):
                server = Server(OURS, broker.pid, broker.address)
                uvloop.run(asyncio.wait_for(self._measure(server), RUN_S_MAX))
        return self._round.pop(name)

    async def _measure(self, server: Server) -> None:
        vchannels = [
            NewVChannel(f"by-dev-rootcoord-dml_{at % PCHANNELS}_{100 + at}v0")
            for at in range(READERS)
        ]
        async with connect(server.address) as log:
            # Readers of vchannels that hold something, as programs have them.
            for vchannel in vchannels[:PCHANNELS]:
                await log.append(vchannel, BODY)
        await asyncio.sleep(self._seconds * SETTLE_SHARE)
        servers = [server, *self._watched]
        before = [(it.cpu_s(), it.wake_ups()) for it in servers]
        started = time.perf_counter()
        await asyncio.sleep(self._seconds)
        took_s = time.perf_counter() - started
        for it, (used_s, waited) in zip(servers, before, strict=True):
            figures = {IDLE: (it.cpu_s() - used_s) / took_s * 100}
            waits = it.wake_ups()
            if waits is not None and waited is not None:
                figures[WAKES] = max(0, waits - waited) / took_s
            self._round[it.name] = figures
        async with connect(server.address) as log:
            for protocol, read in (("batches", _batches), ("Consume", _consume)):
                spent_us = await self._readers(server, partial(read, log), vchannels)
                self._round[protocol] = {TICK: spent_us}

    async def _readers(self, server: Server, read: Any, vchannels: list[NewVChannel]) -> float:
        """CPU in µs for each tick, without what the broker uses when nobody reads."""
        ticks = Ticks()
        async with asyncio.TaskGroup() as tasks:
            readers = [tasks.create_task(read(it, ticks)) for it in vchannels]
            await asyncio.sleep(self._seconds * SETTLE_SHARE)
            before_s, ticks_before, started = server.cpu_s(), ticks.count, time.perf_counter()
            await asyncio.sleep(self._seconds / 2)
            took_s = time.perf_counter() - started
            used_s = server.cpu_s() - before_s - took_s * self._round[server.name][IDLE] / 100
            came = ticks.count - ticks_before
            for reader in readers:
                reader.cancel()
        if not came:
            raise RuntimeError(f"{len(vchannels)} idle readers got no tick in {took_s:.1f} s")
        return max(0.0, used_s) / came * 1e6


async def _batches(log: Client, vchannel: NewVChannel, ticks: Ticks) -> None:
    async with log.read_batches(vchannel) as reader:
        async for _ in reader:
            ticks.count += 1


async def _consume(log: Client, vchannel: NewVChannel, ticks: Ticks) -> None:
    async with log.read(vchannel, with_ticks=True) as reader:
        async for _ in reader:
            ticks.count += 1
