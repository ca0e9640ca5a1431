"""A change whose answer is lost on the way, through a real broker and a real connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute, SocketStream

from broker.client import Client, connect
from broker.client.master.collection_calls import CollectionDescription
from tests.local_broker import local_broker

WAIT_S_MAX = 60.0
"""Against hanging only."""


class Relay:
    """Forwards connections; while `answers` is not set, nothing that the server sends."""

    def __init__(self, host: str, port: int) -> None:
        self.address = ""
        self.answers = anyio.Event()
        self.answers.set()
        self._server = host, port
        self._clients: list[SocketStream] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(SocketAttribute.local_port)
        self.address = f"127.0.0.1:{port}"
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield
            tasks.cancel_scope.cancel()

    async def break_connections(self) -> None:
        for client in self._clients:
            await client.aclose()
        self._clients.clear()
        self.answers.set()

    async def _serve(self, client: SocketStream) -> None:
        self._clients.append(client)
        async with (
            client,
            await anyio.connect_tcp(*self._server) as server,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._forward, client, server, tasks.cancel_scope)
            tasks.start_soon(self._answer, server, client, tasks.cancel_scope)

    async def _forward(
        self, source: SocketStream, sink: SocketStream, ended: anyio.CancelScope
    ) -> None:
        try:
            async for data in source:
                await sink.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        ended.cancel()

    async def _answer(
        self, source: SocketStream, sink: SocketStream, ended: anyio.CancelScope
    ) -> None:
        try:
            async for data in source:
                await self.answers.wait()
                await sink.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        ended.cancel()


async def there(log: Client, name: str) -> None:
    with anyio.fail_after(WAIT_S_MAX):
        while not await log.master.has_collection(name):  # noqa: ASYNC110 - read from the server
            await anyio.sleep(0.01)


async def test_a_change_whose_answer_was_lost_is_sent_again_and_gets_the_first_answer(
    tmp_path: Path,
) -> None:
    created: list[CollectionDescription] = []
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as direct:
        host, _, port = broker.address.rpartition(":")
        relay = Relay(host, int(port))
        async with relay.running(), connect(relay.address) as log:
            await log.master.has_collection("rows")  # it is connected

            async def create() -> None:
                created.append(await log.master.create_collection("rows"))

            relay.answers = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(create)
                await there(direct, "rows")
                await relay.break_connections()
        assert created == [await direct.master.describe_collection("rows")]
