"""One worker of the demonstration, a process of its own.

    python -m runs.groups_demo.worker SERVER NAME SLOW_S

It takes flights, and commits what it made of them together with the acknowledgement: both take
effect, or neither. It writes a line for each batch that it lost because its lease was over.
"""

import json
import signal
import sys
from typing import Any

import anyio
import uvloop

from broker.client import Client, TidemarkError, connect
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.message import Received

GROUP = "workers"
FLIGHTS, DONE = "flights", "processed"
LEASE_S = 5.0
PREFETCH_BYTES = 32 * 1024
"""Little more than one batch: what waits in one worker cannot be processed by another."""
RETRY_S = 0.2
WORKER = "worker"
"""The property that names who processed a flight."""


async def work(server: str, name: str, slow_s: float) -> None:
    """Process flights until the process ends."""
    async with connect(server) as log:
        member = log.group(GROUP).join(FLIGHTS, member=name, prefetch_bytes=PREFETCH_BYTES)
        async with member:
            async for batch in member:
                await anyio.sleep(slow_s)
                try:
                    await _process(log, name, batch)
                except TidemarkError as error:
                    # Nothing of it took effect, or all did: what did not comes again.
                    print(f"{len(batch)} {type(error).__name__}: {error}", flush=True)


async def _process(log: Client, name: str, batch: LeasedBatch) -> None:
    good: list[Received] = []
    made: list[bytes] = []
    poison: list[Received] = []
    for message in batch.messages:
        try:
            made.append(_made_of(message.payload))
            good.append(message)
        except (ValueError, LookupError, TypeError):
            poison.append(message)
    if good:
        async with log.staged(keepalive_s=LEASE_S) as out:
            await out.append_batch(DONE, made, properties={WORKER: name})
            await out.ack(batch, good)
    if poison:
        # Perhaps another worker can; after the last delivery they are dead letters.
        await batch.nack(poison, delay_s=RETRY_S)


def _made_of(payload: bytes) -> bytes:
    """How late a flight was for each hour in the air. Raises for what is no flight."""
    flight: dict[str, Any] = json.loads(payload)
    late, air = flight["arr_delay"], flight["air_time"]
    per_hour = None if late is None or not air else round(late / air * 60, 1)
    return json.dumps({"number": flight["number"], "late_per_hour": per_hour}).encode()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demonstration's; it ends us
    uvloop.run(work(sys.argv[1], sys.argv[2], float(sys.argv[3])))
