"""A program that reads many channels on which nothing happens, until it is ended by a signal.

    python idle_consumers.py ADDRESS CONSUMERS CONNECTIONS

Prints a line once each of its readers has heard a time tick. A process of its own, so that its
thousands of ticks a second are not traced line by line by what measures the tests.
"""

import sys

import anyio

from broker.client import Deadlines, Scanner, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names

PATIENT = Deadlines(connect_s=900.0, open_s=900.0)
"""The later connections are made to a broker that is busy with the readers of the first ones."""


async def main(address: str, consumers: int, connections: int) -> None:
    """Tell when all of them read, and read on."""
    async with anyio.create_task_group() as reading:
        for connection in range(connections):
            await reading.start(consume_idly, address, connection, consumers // connections)
        sys.stdout.write("reading\n")
        sys.stdout.flush()


async def consume_idly(
    address: str, connection: int, share: int, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    """One connection with its share of the consumers, on all pchannels; it takes what comes."""
    names = pchannel_names("by-dev", 16)
    told_ticks: list[anyio.Event] = []
    async with connect(address, deadlines=PATIENT) as log, anyio.create_task_group() as reading:
        for number in range(share):
            vchannel = NewVChannel(f"{names[number % len(names)]}_{connection}v{number}")
            reader = log.read(vchannel, start="latest", with_ticks=True)
            told_ticks.append(anyio.Event())
            reading.start_soon(read_for_ever, reader, told_ticks[-1])
        for told_tick in told_ticks:
            await told_tick.wait()
        task_status.started()


async def read_for_ever(reader: Scanner, told_tick: anyio.Event) -> None:
    """A time tick has come: the broker has a Scanner for this reader."""
    async for _ in reader:
        told_tick.set()


if __name__ == "__main__":
    anyio.run(
        main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), backend_options={"use_uvloop": True}
    )
