"""Measures coordinators with few and with many collections: their start, and look-ups by name.

Both run at once and are asked in turn, for collections far apart from each other.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvloop
from served_broker import killed, served_broker

from benchmark import names
from benchmark.measures.master.stored_collections import store_collections, stored_name
from benchmark.measures.master.together import Values
from benchmark.results.figures import MESSAGES, START, quantiles
from broker.client import Client, connect

CALLS, WARM_UP = 300, 20
RUN_S_MAX = 60
STRIDE = 7919
"""A prime: consecutive look-ups are of collections far apart, and each gets its turn."""
Call = Callable[[Client, str], Awaitable[object]]


class LookUps:
    """Keeps the data folders, which are made once, with a coordinator on each while it measures."""

    def __init__(self, folder: Path) -> None:
        self._folders = {it: folder / f"collections-{it}" for it in names.COLLECTIONS}

    def measure(self) -> Mapping[str, Values]:
        """Start both coordinators, the smaller one first, and ask them."""
        few, many = names.COLLECTIONS
        for number, folder in self._folders.items():
            if not folder.exists():
                uvloop.run(store_collections(folder, number))
        with (
            _started(self._folders[few], few) as (small, small_s),
            _started(self._folders[many], many) as (large, large_s),
        ):
            found: dict[str, Values] = {
                names.master_start(few): {START: small_s},
                names.master_start(many): {START: large_s},
            }
            return found | uvloop.run(_bounded(_asked(small, large)))


@contextmanager
def _started(folder: Path, number: int) -> Iterator[tuple[str, float]]:
    """A coordinator, and the seconds from the start of its process to its first answer."""
    began_s = time.perf_counter()
    with served_broker(folder, role="coordinator", stop=killed) as broker:
        uvloop.run(_bounded(_first_answer(broker.address, number)))
        yield broker.address, time.perf_counter() - began_s


async def _first_answer(address: str, number: int) -> None:
    async with connect(address) as log:
        assert await log.master.has_collection(stored_name(number - 1))


async def _asked(small: str, large: str) -> dict[str, Values]:
    """The latencies of both look-ups at both coordinators."""
    found: dict[str, Values] = {}
    async with connect(small) as few, connect(large) as many:
        clients = dict(zip(names.COLLECTIONS, (few, many), strict=True))
        for call, named in ((_has, names.master_has), (_describe, names.master_describe)):
            took_s = await _timed(clients, call)
            for number, seconds in took_s.items():
                found[named(number)] = quantiles(seconds) | {MESSAGES: len(seconds)}
    return found


async def _timed(clients: Mapping[int, Client], call: Call) -> dict[int, list[float]]:
    """Ask one after the other; the durations by the number of collections."""
    took_s: dict[int, list[float]] = {it: [] for it in clients}
    for turn in range(WARM_UP + CALLS):
        for number, log in clients.items():
            began_s = time.perf_counter()
            await call(log, stored_name(turn * STRIDE % number))
            if turn >= WARM_UP:
                took_s[number].append(time.perf_counter() - began_s)
    return took_s


async def _has(log: Client, name: str) -> None:
    assert await log.master.has_collection(name)


async def _describe(log: Client, name: str) -> None:
    assert (await log.master.describe_collection(name)).milvus_schema


async def _bounded(work: Awaitable[dict[str, Values] | None]) -> dict[str, Values]:
    async with asyncio.timeout(RUN_S_MAX):
        return await work or {}
