"""A member of a group as a process of its own, which a test kills.

    python tests/chaos/group_worker.py SERVER FILE [LEASE_S]

It writes a line for each message before and after its acknowledgement; each line at once, so that
the lines of all members are in the order in which things happened.
"""

import os
import sys

import anyio

from broker.client import TidemarkError, connect

GROUP, COLLECTION = "workers", "work"
LEASE_S = 30.0
"""A member that a busy machine holds up must not lose what it has: it would note as taken what
another one has acknowledged meanwhile. The leases of a member that dies end at once."""


async def work(server: str, path: str, lease_s: float) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(word: str, payloads: list[bytes]) -> None:
        os.write(notes, b"".join(b"%s %s\n" % (word.encode(), it) for it in payloads))

    async with connect(server) as log:
        group = log.group(GROUP)
        async with group.join(COLLECTION, lease_s=lease_s, prefetch_bytes=1) as member:
            async for batch in member:
                note("took", batch.payloads)
                try:
                    await batch.ack()
                except TidemarkError:
                    continue  # it comes again, or not: both are noted
                note("acked", batch.payloads)


if __name__ == "__main__":
    server, path, *given = sys.argv[1:]
    anyio.run(work, server, path, float(given[0]) if given else LEASE_S)
