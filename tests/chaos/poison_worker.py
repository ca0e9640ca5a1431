"""A member that dies of some messages, and takes a node with it; a test starts it again.

    python tests/chaos/poison_worker.py SERVER FILE

It notes each message before it processes it, and after it was acknowledged. A message that begins
with `poison` kills this process; one that begins with `poison node` kills the node as well that
serves its vchannel.
"""

import os
import signal
import sys

import anyio

from broker.client import Client, TidemarkError, connect
from broker.client.groups.leased_batch import LeasedBatch
from broker.core.naming import pchannel_of
from broker.model.ids import VChannelName
from tests.roles_processes import node_pids, owners

GROUP, COLLECTION = "workers", "work"
LEASE_S, DELIVERIES_MAX = 15.0, 3
"""The leases of a member that dies end at once; those of one that a busy machine holds up must not,
or what it processes counts as delivered once more."""
POISON, NODE_POISON = b"poison", b"poison node"


async def work(server: str, path: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(word: str, payloads: list[bytes]) -> None:
        os.write(notes, b"".join(b"%s %s\n" % (word.encode(), it) for it in payloads))

    async with connect(server) as log:
        group = log.group(GROUP)
        joining = group.join(
            COLLECTION, lease_s=LEASE_S, deliveries_max=DELIVERIES_MAX, prefetch_bytes=1
        )
        async with joining as member:
            async for batch in member:
                for payload in batch.payloads:
                    note("began", [payload])
                    if payload.startswith(POISON):
                        await die(log, batch, payload)
                try:
                    await batch.ack()
                except TidemarkError:
                    continue  # it comes again, or not: both are noted
                note("acked", batch.payloads)


async def die(log: Client, batch: LeasedBatch, payload: bytes) -> None:
    if payload.startswith(NODE_POISON):
        owner = (await owners(log)).get(pchannel_of(VChannelName(batch.vchannel)))
        pid = (await node_pids(log)).get(owner or 0)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    anyio.run(work, sys.argv[1], sys.argv[2])
