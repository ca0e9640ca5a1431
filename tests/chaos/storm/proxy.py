"""A TCP link that can be cut, silenced, slowed and made deaf; nothing looks at the bytes."""

from collections.abc import Collection
from contextlib import suppress

import anyio
from anyio.abc import ByteStream, SocketStream, TaskGroup

CHUNK_BYTES = 64 * 1024
TRICKLE_BYTES, TRICKLE_S = 200, 0.02
BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class Link:
    """From a port of ours to a port of a process."""

    def __init__(self, name: str, listen_port: int, target_port: int) -> None:
        self.name = name
        self.listen_port = listen_port
        self._target_port = target_port
        self._connections: set[anyio.CancelScope] = set()
        self._refusing = 0
        self._delays: list[float] = []
        self._silences = 0
        self._deaf: set[anyio.CancelScope] = set()
        self._trickles = 0
        self._open = anyio.Event()
        self._open.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listen_port}"

    async def start(self, tasks: TaskGroup) -> None:
        """Until the group is cancelled."""
        listener = await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=self.listen_port, reuse_port=False
        )
        tasks.start_soon(self._serve, listener)

    async def cut(self, lasts_s: float) -> None:
        """End all connections, and take none for a while."""
        self._refusing += 1
        try:
            for scope in tuple(self._connections):
                scope.cancel()
            await anyio.sleep(lasts_s)
        finally:
            self._refusing -= 1

    async def silence(self, lasts_s: float) -> None:
        """Hold every byte back; nobody is told."""
        self._silences += 1
        if self._open.is_set():
            self._open = anyio.Event()
        try:
            await anyio.sleep(lasts_s)
        finally:
            self._silences -= 1
            if not self._silences:
                self._open.set()

    async def delay(self, lasts_s: float, by_s: float) -> None:
        """Every piece comes later."""
        self._delays.append(by_s)
        try:
            await anyio.sleep(lasts_s)
        finally:
            self._delays.remove(by_s)

    async def lose_answers(self, lasts_s: float) -> None:
        """What is asked arrives and nothing comes back; then the connections of now end."""
        deaf = set(self._connections)
        self._deaf |= deaf
        try:
            await anyio.sleep(lasts_s)
        finally:
            for scope in deaf:
                scope.cancel()
            self._deaf -= deaf

    async def trickle(self, lasts_s: float) -> None:
        """A few bytes at a time, until all connections end in the midst of what they say."""
        self._trickles += 1
        try:
            await anyio.sleep(lasts_s)
        finally:
            self._trickles -= 1
            for scope in tuple(self._connections):
                scope.cancel()

    async def _serve(self, listener: anyio.abc.Listener[SocketStream]) -> None:
        async with listener:
            await listener.serve(self._connected)

    async def _connected(self, near: SocketStream) -> None:
        async with near:
            if self._refusing:
                return
            with anyio.CancelScope() as scope, suppress(*BROKEN):
                self._connections.add(scope)
                try:
                    async with await anyio.connect_tcp("127.0.0.1", self._target_port) as far:
                        await self._relay(near, far, scope)
                finally:
                    self._connections.discard(scope)

    async def _relay(self, near: ByteStream, far: ByteStream, scope: anyio.CancelScope) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._copy, near, far, scope)
            tasks.start_soon(self._copy, far, near, scope, self._deaf)

    async def _copy(
        self,
        source: ByteStream,
        sink: ByteStream,
        scope: anyio.CancelScope,
        deaf: Collection[anyio.CancelScope] = (),
    ) -> None:
        with suppress(*BROKEN):
            while True:
                piece = await source.receive(CHUNK_BYTES)
                if self._delays:
                    await anyio.sleep(max(self._delays))
                await self._open.wait()
                if scope not in deaf:
                    await self._send(piece, sink)
        scope.cancel()

    async def _send(self, piece: bytes, sink: ByteStream) -> None:
        while self._trickles and len(piece) > TRICKLE_BYTES:
            await sink.send(piece[:TRICKLE_BYTES])
            piece = piece[TRICKLE_BYTES:]
            await anyio.sleep(TRICKLE_S)
        await sink.send(piece)
