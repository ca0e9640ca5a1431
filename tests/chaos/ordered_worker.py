"""A member of an ordered group as a process of its own, which a test kills.

    python tests/chaos/ordered_worker.py SERVER FILE BY

It writes a line for each message before and after its acknowledgement; each line at once, so that
the lines of all members are in the order in which things happened.
"""

import os
import sys

import anyio

from broker.client import TidemarkError, connect
from broker.client.groups.modes import OrderedBy

GROUP, COLLECTION = "steps", "steps"
LEASE_S = 30.0
"""A member that a busy machine holds up must not lose what it has: it would note as taken what
another one has acknowledged meanwhile. The leases of a member that dies end at once."""


async def work(server: str, path: str, by: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(word: str, payloads: list[bytes]) -> None:
        os.write(notes, b"".join(b"%s %s\n" % (word.encode(), it) for it in payloads))

    async with connect(server) as log:
        ordered: OrderedBy = "key" if by == "key" else "vchannel"
        group = log.group(GROUP, mode="ordered", by=ordered)
        async with group.join(COLLECTION, lease_s=LEASE_S, prefetch_bytes=1) as member:
            async for batch in member:
                note("took", batch.payloads)
                try:
                    await batch.ack()
                except TidemarkError:
                    continue  # it comes again, or not: both are noted
                note("acked", batch.payloads)


if __name__ == "__main__":
    server, path, by = sys.argv[1:]
    anyio.run(work, server, path, by)
