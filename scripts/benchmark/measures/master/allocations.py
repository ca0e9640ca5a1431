"""Measures AllocTimestamp and AllocID beside a call of the same server that asks no actor.

On a coordinator of its own. Each call takes one number, without the cache of the client.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from served_broker import killed, served_broker

from benchmark import names
from benchmark.measures.master.together import Values
from benchmark.results.figures import MESSAGES, RATE
from broker.client.cluster.service import ServiceCalls
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection
from schemas.generated.grpc.health import v1 as health
from schemas.generated.tidemark import v1

IN_FLIGHT = 64
SLICE_S, SLICES = 0.3, 4
CALL_S, RUN_S_MAX = 10.0, 60
Call = Callable[[], Awaitable[object]]


class Allocations:
    """Starts a coordinator for each round, with its data below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def measure(self) -> Mapping[str, Values]:
        """The three rates, from slices that take turns."""
        with (
            TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as data,
            served_broker(Path(data) / "allocations", role="coordinator", stop=killed) as broker,
        ):
            return uvloop.run(asyncio.wait_for(measured(broker.address, SLICE_S), RUN_S_MAX))


async def measured(address: str, slice_s: float) -> dict[str, Values]:
    """Calls a second of each kind; the first slice of each warms up."""
    connection = Connection(address, cluster="by-dev", lifetime=ClientLifetime())
    try:
        calls = _calls(connection)
        done, took_s = dict.fromkeys(calls, 0), dict.fromkeys(calls, 0.0)
        for turn in range(SLICES + 1):
            for it, call in calls.items():
                began_s = time.perf_counter()
                counted = await _in_flight(call, began_s + slice_s)
                if turn:
                    done[it] += counted
                    took_s[it] += time.perf_counter() - began_s
    finally:
        connection.close()
    return {it: {RATE: done[it] / took_s[it], MESSAGES: done[it]} for it in calls}


def _calls(connection: Connection) -> dict[str, Call]:
    status = ServiceCalls(connection, "grpc.health.v1.Health", deadline_s=CALL_S)
    master = ServiceCalls(connection, "tidemark.v1.Master", deadline_s=CALL_S)
    one_tick, one_id = v1.AllocTimestampRequest(count=1), v1.AllocIdRequest(count=1)
    nothing = health.HealthCheckRequest()
    return {
        names.MASTER_EMPTY: partial(status.ask, "Check", nothing, health.HealthCheckResponse),
        names.MASTER_TIMESTAMP: partial(
            master.ask, "AllocTimestamp", one_tick, v1.AllocTimestampResponse
        ),
        names.MASTER_ID: partial(master.ask, "AllocID", one_id, v1.AllocIdResponse),
    }


async def _in_flight(call: Call, until_s: float) -> int:
    """Keep 64 calls in flight until then; the number of answers."""

    async def caller() -> int:
        done = 0
        while time.perf_counter() < until_s:
            await call()
            done += 1
        return done

    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(caller()) for _ in range(IN_FLIGHT)]
    return sum(it.result() for it in callers)
