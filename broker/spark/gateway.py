"""The async client behind plain calls, for Spark's synchronous readers and writers.

Owns one event loop on a thread of its own and one client on it, both made at the first call in the
process that calls: a gateway may be pickled and forked before that. The thread is a daemon, because
Spark ends its processes without a word. Transient failures are tried again here, because Spark ends
a query at the first exception of a planning call.
Next: broker/client/client.py
"""

import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from anyio.from_thread import BlockingPortal

    from broker.client import Client, Collection, Cut, Measure
    from broker.model.channel import ChannelOffsets

T = TypeVar("T")
PATIENCE_S = 60.0
"""How long a broker may be away before a query ends."""
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 2.0
START_S = 30.0
TAKEN_ROWS = 32_768
"""Handed from loop to thread at once: a step between them costs as much as a small batch."""
TAKEN_BYTES = 8 * 1024 * 1024
"""At once as well, as rows may be large; packed ones are far larger here than in the log."""

Subscription = Mapping[str, Sequence[str]]
"""Each subscribed name with its vchannels in shard order."""


class Scanner(Protocol):
    """What a client's `read_batches` and `read_arrow` have in common."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Any: ...

    async def close(self) -> None: ...


class Gateway:
    """Calls to one broker. Not for several threads at once."""

    def __init__(self, server: str, cluster: str) -> None:
        self._server = server
        self._cluster = cluster
        self._open: tuple[int, BlockingPortal, Client] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"server": self._server, "cluster": self._cluster}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["server"], state["cluster"])  # type: ignore[misc]

    # ---- questions ------------------------------------------------------------------------------

    def subscription(self, names: Sequence[str]) -> Subscription:
        """Each name with its vchannels: a collection's shards, or the one vchannel that it is."""
        return self._call(lambda client: client.resolve(names))

    def collections(self) -> "list[Collection]":
        """All there are."""
        return self._call(lambda client: client.collections.list())

    def columns(self, collection: str) -> "pa.Schema | None":
        """The newest schema of a collection's rows; None when it has none."""
        return self._call(lambda client: client.collections.schema(collection))

    def held(self, vchannels: Sequence[str]) -> "dict[str, ChannelOffsets]":
        """What the broker holds now; ids below `next_id` are durable."""
        return self._call(lambda client: client.describe(vchannels))

    def cut(self, vchannels: Sequence[str], tick: int | None = None) -> "Cut":
        """The newest of these, which splits no broadcast; or that at a tick.

        Raises InvalidArgument for one to come.
        """
        whole = tick is None
        return self._call(lambda log: log.cut(vchannels, tick=tick, whole_broadcasts=whole))

    def measure(
        self, vchannels: Sequence[str], after: int, until: int, *, rows_max: int, bytes_max: int
    ) -> "Measure":
        """How much lies behind one tick and up to another; 0: no limit."""
        return self._call(
            lambda client: client.measure(
                vchannels, after=after, until=until, rows_max=rows_max, bytes_max=bytes_max
            )
        )

    def attempt(self, ask: Callable[["Client"], Awaitable[None]]) -> None:
        """Once; the deadline is the asker's."""
        portal, client = self._connected()
        portal.call(ask, client)

    def begin(self, ask: Callable[["Client"], Awaitable[T]]) -> "Future[T]":
        """Set going on the client's loop, once; the deadline is the asker's.

        A broker that cannot be reached for a first time is waited for.
        """
        if self._open is None:
            self._call(_nothing)
        portal, client = self._connected()
        return portal.start_task_soon(ask, client)

    # ---- reading --------------------------------------------------------------------------------

    def read(self, open: Callable[["Client"], Scanner]) -> Iterator[Any]:
        """What a scanner gives, until its end; the next batches are fetched meanwhile."""
        portal, client = self._connected()
        scanner = portal.call(_opened, open, client)
        ahead = portal.start_task_soon(_take, scanner)
        try:
            while True:
                batches, ended = ahead.result()
                if not ended:
                    ahead = portal.start_task_soon(_take, scanner)
                yield from batches
                if ended:
                    return
        finally:
            ahead.cancel()
            portal.call(scanner.close)

    # ---- the thread -----------------------------------------------------------------------------

    def close(self) -> None:
        """End client and loop; the next call makes new ones."""
        if self._open is not None and self._open[0] == os.getpid():
            portal = self._open[1]
            portal.call(portal.stop)
        self._open = None

    def _call(self, ask: Callable[["Client"], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
        """Tried again while that may help, for about `patience_s`."""
        from broker.client import TidemarkError

        until_s = time.monotonic() + patience_s  # noqa: TID251 - Spark calls us synchronously
        pause_s = RETRY_FIRST_S
        while True:
            try:
                portal, client = self._connected()
                return portal.call(ask, client)
            except TidemarkError as error:
                late = time.monotonic() + pause_s > until_s  # noqa: TID251
                if late or not error.retriable:
                    raise
            time.sleep(pause_s)  # noqa: TID251
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    def _connected(self) -> "tuple[BlockingPortal, Client]":
        if self._open is None or self._open[0] != os.getpid():
            from broker.client import DeadlineExceeded

            ready: Future[tuple[BlockingPortal, Client]] = Future()
            threading.Thread(
                target=_run, args=(self._server, self._cluster, ready), daemon=True
            ).start()
            try:
                self._open = (os.getpid(), *ready.result(START_S))
            except TimeoutError as error:
                cause = f"{self._server} cannot be reached within {START_S:g} s"
                raise DeadlineExceeded(cause) from error
        return self._open[1], self._open[2]


@cache
def gateway_here(server: str, cluster: str) -> Gateway:
    """The one of this process, so that the tasks of a worker share a connection."""
    return Gateway(server, cluster)


def _run(server: str, cluster: str, ready: "Future[tuple[BlockingPortal, Client]]") -> None:
    import anyio

    try:
        anyio.run(_serve, server, cluster, ready, backend_options={"use_uvloop": True})
    except BaseException as error:  # noqa: BLE001 - whoever waits is told, on another thread
        if not ready.done():
            ready.set_exception(_cause(error))


def _cause(error: BaseException) -> BaseException:
    """What the tasks around it ended with: only that says whether to try again."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve(server: str, cluster: str, ready: "Future[tuple[BlockingPortal, Client]]") -> None:
    from anyio.from_thread import BlockingPortal

    from broker.client import connect

    async with BlockingPortal() as portal, connect(server, cluster=cluster) as client:
        ready.set_result((portal, client))
        await portal.sleep_until_stopped()


async def _nothing(_: "Client") -> None:
    """Asks for the connection alone."""


async def _opened(open: Callable[["Client"], Scanner], client: "Client") -> Scanner:
    return open(client)


async def _take(scanner: Scanner) -> tuple[list[Any], bool]:
    """Some batches that have rows, and whether they are the last."""
    batches: list[Any] = []
    rows = size = 0
    async for batch in scanner:
        if len(batch):
            batches.append(batch)
            rows, size = rows + len(batch), size + batch.nbytes
        if rows >= TAKEN_ROWS or size >= TAKEN_BYTES:
            return batches, False
    return batches, True
