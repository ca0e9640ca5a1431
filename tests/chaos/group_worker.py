"""A member of a group as a process of its own, which a test kills.

    python tests/chaos/group_worker.py SERVER FILE

It writes a line for each message before and after its acknowledgement; each line at once, so that
the lines of all members are in the order in which things happened.
"""

import os
import sys

import anyio

from broker.client import TidemarkError, connect

GROUP, COLLECTION = "workers", "work"
LEASE_S = 2.0


async def work(server: str, path: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(word: str, payloads: list[bytes]) -> None:
        os.write(notes, b"".join(b"%s %s\n" % (word.encode(), it) for it in payloads))

    async with connect(server) as log:
        group = log.group(GROUP)
        async with group.join(COLLECTION, lease_s=LEASE_S, prefetch_bytes=1) as member:
            async for batch in member:
                note("took", batch.payloads)
                try:
                    await batch.ack()
                except TidemarkError:
                    continue  # it comes again, or not: both are noted
                note("acked", batch.payloads)


if __name__ == "__main__":
    anyio.run(work, sys.argv[1], sys.argv[2])
