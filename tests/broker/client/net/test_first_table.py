"""How long a client waits for a server's first answer, whatever it allows each stream later."""

import asyncio
import random
from collections.abc import Mapping
from typing import NoReturn

import anyio
import pytest

from broker.client import Deadlines, connect
from broker.client.errors import DeadlineExceeded, NotLeader, TidemarkError
from broker.client.net.assignments import Assignments
from broker.client.net.connection import NO_METADATA, Connection
from broker.client.net.waits import Waits
from broker.model.ids import PChannelName
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


class NobodyLeads(Connection):
    """To coordinators of which none leads."""

    def __init__(self) -> None:
        self.address = "a:1,b:1"

    def converse(
        self, path: str, metadata: Mapping[str, str] = NO_METADATA, *, deadline_s: float
    ) -> NoReturn:
        raise NotLeader("does not lead: disk full")

    def tries_on(self, error: TidemarkError) -> bool:
        return True


async def test_a_client_that_finds_no_leader_in_time_is_told_what_the_coordinators_said() -> None:
    assignments = Assignments(NobodyLeads(), Waits(), Deadlines(), random.Random(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(assignments.follow)
        with pytest.raises(
            DeadlineExceeded,
            match=r"a:1,b:1 did not answer within 0\.2 s; last error: does not lead: disk full",
        ):
            await assignments.ready(0.2)
        with pytest.raises(
            DeadlineExceeded, match=r"no node served .* for 0\.2 s; last error: does not lead: disk"
        ):
            await assignments.locate(PChannelName("by-dev-rootcoord-dml_0"), deadline_s=0.2)
        tasks.cancel_scope.cancel()
