"""Measures what a client that behaves notices of each attack on its broker."""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

import anyio

from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import BrokerProcess
from tests.limits.hostile_peers import CLOSED, FLOODS, Attack, outcome
from tests.wire.raw_peer import raw

(PCHANNEL,) = pchannel_names("by-dev", 1)
VCHANNEL = NewVChannel(f"{PCHANNEL}_1v0")


def main() -> int:
    """Run every attack for so many seconds; 0 unless an append failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", default="", help="names of attacks with commas between")
    options = parser.parse_args()
    chosen = [it for it in (*FLOODS, *CLOSED) if not options.only or it.__name__ in options.only]
    # Of sockets that the broker has closed.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(_run(chosen, options.seconds))
    return 0


async def _run(attacks: list[Attack], seconds: float) -> None:
    print(f"{'attack':18} {'appends/s':>13} {'p99, ms':>13} {'slowest':>8} {'memory':>8}  it got")
    settings = {"pchannels": "1", "idle_peer_s": "2"}
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder) / "data", **settings) as broker,
    ):
        async with connect(broker.address) as log:
            for attack in attacks:
                await _one(attack, broker, log, seconds)


async def _one(attack: Attack, broker: BrokerProcess, log: Client, seconds: float) -> None:
    before = await _appends(log, seconds)
    bytes_before = broker.resident_bytes()
    got = ""

    async def attacked() -> None:
        nonlocal got
        async with raw(broker) as peer, anyio.create_task_group() as tasks:
            tasks.start_soon(attack, peer)
            got = await outcome(peer, seconds)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attacked)
        during = await _appends(log, seconds)
    grown_mb = (broker.resident_bytes() - bytes_before) / 1e6
    print(
        f"{attack.__name__:18} {len(before) / seconds:5,.0f} ->{len(during) / seconds:5,.0f}"
        f" {_p99(before):5.1f} ->{_p99(during):5.1f} {max(during):5.0f} ms"
        f" {grown_mb:+5.0f} MB  {got}",
        flush=True,
    )


async def _appends(log: Client, seconds: float) -> list[float]:
    """Milliseconds of each append, one after the other."""
    found: list[float] = []
    began_s = time.monotonic()
    while (now_s := time.monotonic()) - began_s < seconds:
        await log.append(VCHANNEL, bytes(1024))
        found.append((time.monotonic() - now_s) * 1e3)
    return found


def _p99(times_ms: list[float]) -> float:
    return sorted(times_ms)[int(len(times_ms) * 0.99)]


if __name__ == "__main__":
    sys.exit(main())
