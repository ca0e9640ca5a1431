"""A member of an ordered group as a process of its own, which the benchmark kills.

    python -m benchmark.load.rebalance_worker SERVER GROUP TARGET

It waits for a line on stdin, then joins. It writes the time at which it began to, and one line for
each batch, with the vchannel and the time: all of one clock of the machine.
"""

import asyncio
import sys
import time

import uvloop

from broker.client import connect


async def work(server: str, group: str, target: str) -> None:
    """Join, and acknowledge what comes, until the process is killed."""
    async with connect(server) as log:
        await log.group(group).describe(target)  # so that importing and connecting is not measured
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        _say("joins", time.perf_counter())
        async with log.group(group, mode="ordered", by="vchannel").join(target) as member:
            async for batch in member:
                _say(batch.vchannel, time.perf_counter())
                await batch.ack()


def _say(what: str, at_s: float) -> None:
    print(what, at_s, flush=True)


if __name__ == "__main__":
    uvloop.run(work(*sys.argv[1:4]))
