"""How long a client waits for a server's first answer, whatever it allows each stream later."""

import asyncio

from broker.client import Deadlines, connect
from tests.broker.client.scripted import scripted_broker


async def test_connect_waits_for_the_first_table_although_streams_are_to_open_sooner() -> None:
    at_once = Deadlines(open_s=0.000_001, connect_s=60.0)
    async with scripted_broker() as broker, connect(broker.address, deadlines=at_once):
        pass  # without a table it raises


async def test_connect_waits_for_another_coordinator_when_the_first_one_dies_meanwhile() -> None:
    """It was paused, so it took the connection and said nothing, and is killed now."""

    async def killed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await asyncio.sleep(0.2)
        writer.transport.abort()

    async with await asyncio.start_server(killed, "127.0.0.1", 0) as paused:
        host, port = paused.sockets[0].getsockname()
        async with scripted_broker() as broker:
            deadlines = Deadlines(connect_s=60.0)
            async with connect(f"{host}:{port},{broker.address}", deadlines=deadlines):
                pass
