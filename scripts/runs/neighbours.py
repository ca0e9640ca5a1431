"""Measures what a tenant within its limit notices of another one that asks for ten times its own.

The neighbour appends at a fixed pace and reads what it appended. The loud tenant is a process of
its own, and sends large batches at ten times its limit whether or not earlier ones were taken.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from broker.client import Client, connect
from broker.client.errors import TidemarkError
from tests.broker_process import BrokerProcess

LOUD_BYTES_S = 2 << 20
LOUD_BATCH = [bytes(32 << 10)] * 16
"""Large, so that its client takes little of a processor that broker and neighbour share with it."""
LOUD_BATCH_BYTES = sum(map(len, LOUD_BATCH))
OVER = 10
CONNECTIONS = 4
QUIET_S = 200
"""Appends of the neighbour in a second; its limit is half as much again."""
QUIET_BODY = bytes(1024)
LIMITS = f"collection:loud in_bytes={LOUD_BYTES_S}; collection:quiet in_messages={QUIET_S * 3 // 2}"
RATE_MIN, P99_MAX = 0.9, 2.0
DEADLINE_S = 2.0


@dataclass(slots=True)
class Noticed:
    """What the neighbour saw: milliseconds of each append, and from an append to its reader."""

    seconds: float = 0.0
    appends_ms: list[float] = field(default_factory=list)
    reads_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.appends_ms) / self.seconds


def main() -> int:
    """0 when the neighbour kept its rate and its p99."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each part of a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--loud", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loud:
        asyncio.run(_be_loud(options.loud, options.seconds))
        return 0
    return asyncio.run(measured(options.seconds, options.rounds))


async def measured(seconds: float, rounds: int) -> int:
    """Measure so many rounds; 0 when the neighbour kept its rate and its p99."""
    before, during = Noticed(), Noticed()
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder) / "data", limits=LIMITS, pchannels="2") as broker,
    ):
        async with connect(broker.address) as log:
            await log.collections.create("quiet", shards=1)
            await log.collections.create("loud", shards=1)
            await _quiet(log, 2.0, Noticed())  # connections and caches
            for _ in range(rounds):  # in turns, because other programs load the machine, too
                await _quiet(log, seconds, before)
                loud = await _beside_loud(broker.address, log, seconds, during)
    return verdict(before, during, loud.strip())


async def _beside_loud(address: str, log: Client, seconds: float, during: Noticed) -> str:
    """What the loud tenant says at its end."""
    command = [sys.executable, "-m", "runs.neighbours", "--loud", address]
    loud = subprocess.Popen(  # noqa: ASYNC220 - it is only started here
        [*command, "--seconds", str(seconds + 1)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert loud.stdout is not None
        if not await anyio.to_thread.run_sync(loud.stdout.readline):
            raise SystemExit("the loud tenant did not start; its own message stands above")
        await _quiet(log, seconds, during)
        return await anyio.to_thread.run_sync(loud.stdout.readline)
    finally:
        loud.kill()
        loud.wait()


async def _quiet(log: Client, seconds: float, found: Noticed) -> None:
    """Append at the pace of the neighbour, and read it all."""
    found.seconds += seconds
    sent_s: dict[int, float] = {}
    async with anyio.create_task_group() as tasks:
        scanner = log.read("quiet", start="latest")

        async def read() -> None:
            async for batch in scanner:
                for message in batch.messages:
                    number = int.from_bytes(message.payload[:8], "big")
                    if number in sent_s:
                        found.reads_ms.append((time.monotonic() - sent_s.pop(number)) * 1e3)

        tasks.start_soon(read)
        began_s, number = time.monotonic(), 0
        while (now_s := time.monotonic()) - began_s < seconds:
            sent_s[number] = now_s
            await log.append("quiet", number.to_bytes(8, "big") + QUIET_BODY)
            found.appends_ms.append((time.monotonic() - now_s) * 1e3)
            number += 1
            await anyio.sleep(max(0.0, began_s + number / QUIET_S - time.monotonic()))
        tasks.cancel_scope.cancel()


async def _be_loud(address: str, seconds: float) -> None:
    """Ask for `OVER` times the limit until the end; print how much was asked for and landed."""
    asked = landed = 0
    wanted = OVER * LOUD_BYTES_S / LOUD_BATCH_BYTES
    ends_s = time.monotonic() + seconds

    async def one(log: Client) -> None:
        nonlocal landed
        try:
            await log.append_batch("loud", LOUD_BATCH, deadline_s=DEADLINE_S)
            landed += 1
        except TidemarkError:
            pass  # it is refused most of the time, and asks again for more

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connect(address)) for _ in range(CONNECTIONS)]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        began_s = time.monotonic()
        print("loud", flush=True)
        while time.monotonic() < ends_s:
            tasks.start_soon(one, opened[asked % CONNECTIONS])
            asked += 1
            await anyio.sleep(max(0.0, began_s + asked / wanted - time.monotonic()))
        took_s = time.monotonic() - began_s
        mib = LOUD_BATCH_BYTES / (1 << 20) / took_s
        print(f"asked for {asked * mib:.1f} MiB/s and got {landed * mib:.1f} MiB/s", flush=True)
        tasks.cancel_scope.cancel()


def verdict(before: Noticed, during: Noticed, loud: str) -> int:
    """Print what both said; 0 when the neighbour kept enough of what it had `before`."""
    print(f"the loud tenant {loud}, with a limit of {LOUD_BYTES_S >> 20} MiB/s")
    print(f"{'the neighbour':16} {'appends/s':>10} {'p99, ms':>8} {'read p99, ms':>13}")
    for name, it in (("before", before), ("meanwhile", during)):
        appends, reads = _p99(it.appends_ms), _p99(it.reads_ms)
        print(f"{name:16} {it.rate:10.1f} {appends:8.1f} {reads:13.1f}")
    rate = during.rate / before.rate
    p99 = _p99(during.appends_ms) / _p99(before.appends_ms)
    kept = rate >= RATE_MIN and p99 <= P99_MAX
    print(
        f"{'met' if kept else 'MISSED'}: {rate:.0%} of its rate (at least {RATE_MIN:.0%}),"
        f" {p99:.2f} of its p99 (at most {P99_MAX:g})"
    )
    return 0 if kept else 1


def _p99(times_ms: list[float]) -> float:
    return sorted(times_ms)[int(len(times_ms) * 0.99)] if times_ms else float("nan")


if __name__ == "__main__":
    sys.exit(main())
