"""The async client behind synchronous calls, for Spark's readers and writers.

A Gateway runs one event loop on a thread of its own, with one client on it. Both are made by the
first call in the calling process, because Spark pickles and forks a gateway before that. The thread
is a daemon, because Spark ends its processes without notice. Transient failures are retried here,
because Spark ends a query at the first exception of a planning call.

Next: broker/client/client.py
"""

import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from socket import gethostname
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from broker.spark.server_options import Server

if TYPE_CHECKING:
    import pyarrow as pa
    from anyio.from_thread import BlockingPortal

    from broker.client import Client, Collection, Cut, Measurement, TidemarkError
    from broker.model.channel import ChannelOffsets

T = TypeVar("T")
PATIENCE_S = 60.0
"""How long a broker that was reached before may be away before a query fails."""
FIRST_S = 5.0
"""How long a server is tried that was never reached: its address is probably wrong."""
FIRST_ANSWER_S = 8.0
"""A busy broker may be slow to answer."""
UNREACHABLE_S = 6.0
"""How long a task tries a node that was never reached. Its host may have died: its channels move
on when its lease (5 s by default) is over. Or its address is wrong: the task fails within 10 s."""
STALLED_S = FIRST_ANSWER_S + 1.0
"""A first try ends before, unless the machine stood still: then it is tried once more."""
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 2.0
START_S = 30.0
CALL_S = 10.0
TAKEN_ROWS = 32_768
"""Rows handed from the loop to the thread at once: a hand-over costs as much as a small batch."""
TAKEN_BYTES = 8 * 1024 * 1024
"""Bytes handed over at once. Rows may be large, and packed rows grow when they are unpacked."""

Subscription = Mapping[str, Sequence[str]]
"""Each subscribed name with its vchannels in shard order."""


class AnyScanner(Protocol):
    """The common part of `read_batches` and `read_arrow` of a client."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Any: ...

    async def close(self) -> None: ...


class Gateway:
    """Calls to one broker. For one thread at a time."""

    def __init__(
        self, server: Server, first_s: float = FIRST_S, stalled_s: float = STALLED_S
    ) -> None:
        """`first_s`: how long the server is tried until it is reached for the first time."""
        self._server = server
        self._first_s = first_s
        self._stalled_s = stalled_s
        self.proven = False
        """Whether the server was reached, here or by another part of the query."""
        self._open: tuple[int, BlockingPortal, Client] | None = None
        self._shown = ""
        """The token of the open connection."""

    def __getstate__(self) -> dict[str, Any]:
        return {"server": self._server, "proven": self.proven}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["server"])  # type: ignore[misc]
        self.proven = state["proven"]

    # ---- questions ------------------------------------------------------------------------------

    def subscription(self, names: Sequence[str]) -> Subscription:
        """Return each name with its vchannels: a collection's shards, or the vchannel itself."""
        return self._call(lambda client: client.collections.resolve(names))

    def collections(self) -> "list[Collection]":
        """Return every collection."""
        return self._call(lambda client: client.collections.list())

    def columns(self, collection: str) -> "pa.Schema | None":
        """Return the newest schema of a collection's rows; None when it has none."""
        return self._call(lambda client: client.collections.schema(collection))

    def held(self, vchannels: Sequence[str]) -> "dict[str, ChannelOffsets]":
        """Return what the broker holds of each vchannel now; ids below `next_id` are durable."""
        return self._call(lambda client: client.offsets.describe(vchannels))

    def cut(self, vchannels: Sequence[str], tick: int | None = None) -> "Cut":
        """Return the newest cut, which splits no broadcast; with `tick`, the cut at that tick.

        Raises InvalidArgument for a tick in the future.
        """
        # Only a tick that is chosen now can avoid splitting a broadcast.
        whole = tick is None
        return self._call(lambda log: log.cut(vchannels, tick=tick, whole_broadcasts=whole))

    def measure(
        self, vchannels: Sequence[str], after: int, until: int, *, rows_max: int, bytes_max: int
    ) -> "Measurement":
        """Count rows and bytes behind tick `after` up to `until`. A limit of 0 is no limit."""
        return self._call(
            lambda client: client.measure(
                vchannels, after=after, until=until, rows_max=rows_max, bytes_max=bytes_max
            )
        )

    def first_tick(self, vchannel: str, message_id: int) -> int | None:
        """Return the tick of the first message of a vchannel from an id on; None for no message."""

        async def ask(client: "Client") -> int | None:
            import anyio

            from broker.client import DeadlineExceeded

            with anyio.move_on_after(CALL_S):
                async for batch in client.read_batches(vchannel, start=message_id, until="now"):
                    if len(batch):
                        return int(batch.ticks[0])
                return None
            raise DeadlineExceeded(f"{vchannel} was not read within {CALL_S:g} s")

        return self._call(ask)

    def cursor_ticks(self, name: str) -> dict[str, int]:
        """Return up to which tick a named cursor has processed each of its vchannels."""

        async def ask(client: "Client") -> dict[str, int]:
            view = await client.cursor(name).get(measured=False)
            # Not the tick of the cursor, which is that of its last vchannel.
            return {channel: int(it.closed) for channel, it in view.positions.items()}

        return self._call(ask)

    def group_ticks(self, name: str, vchannels: Sequence[str]) -> dict[str, int]:
        """Return up to which tick a consumer group has acknowledged all of each vchannel.

        Without those where it does not exist; raises NoSuchGroup when it exists on none.
        """

        async def ask(client: "Client") -> dict[str, int]:
            views = await client.groups.named(name).describe_on(vchannels)
            return {view.group.key.vchannel: int(view.group.floor) for view in views}

        return self._call(ask)

    def attempt(self, ask: Callable[["Client"], Awaitable[None]]) -> None:
        """Call once, without a retry; `ask` has its own deadline."""
        portal, client = self._connected()
        portal.call(ask, client)

    def begin(self, ask: Callable[["Client"], Awaitable[T]]) -> "Future[T]":
        """Start a call on the client's loop, once; `ask` has its own deadline.

        Waits for a broker that is away.
        """
        self._reach()
        portal, client = self._connected()
        return portal.start_task_soon(ask, client)

    # ---- reading --------------------------------------------------------------------------------

    def read(self, open: Callable[["Client"], AnyScanner]) -> Iterator[Any]:
        """Yield the batches of a scanner until it ends, while the next ones are fetched."""
        self._reach()
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
            # Spark may stop early, as at a LIMIT, while the next batches are fetched.
            ahead.cancel()
            portal.call(scanner.close)

    # ---- the thread -----------------------------------------------------------------------------

    def close(self) -> None:
        """End the client and its loop; the next call makes new ones."""
        # After a fork the loop runs in the parent only; a call to it would never return here.
        if self._open is not None and self._open[0] == os.getpid():
            portal = self._open[1]
            portal.call(portal.stop)
        self._open = None

    def renew(self) -> bool:
        """Connect anew when there is another token to show, as in a replaced file.

        Returns whether there is. Raises BadOption for a file without a token.
        """
        if self._open is None or self._server.current_token() == self._shown:
            return False
        self.close()
        return True

    def _reach(self) -> None:
        if self._open is None or self._open[0] != os.getpid():
            self._call(_nothing)

    def _call(self, ask: Callable[["Client"], Awaitable[T]]) -> T:
        """Call, and retry while the error is retriable, for as long as a broker may be away."""
        from broker.client import TidemarkError
        from broker.client.errors import NotAuthenticated

        patience_s = PATIENCE_S if self.proven else self._first_s
        began_s = time.monotonic()  # noqa: TID251 - Spark calls us synchronously
        pause_s, tries = RETRY_FIRST_S, 0
        while True:
            tries += 1
            try:
                portal, client = self._connected()
                answer = portal.call(ask, client)
            except TidemarkError as error:
                if isinstance(error, NotAuthenticated) and self.renew():
                    continue
                took_s = time.monotonic() - began_s  # noqa: TID251
                stalled = tries == 1 and took_s > self._stalled_s
                late = took_s + pause_s > patience_s and not stalled
                if late and not self.proven:
                    raise self._unreachable(error) from error
                if late or not error.retriable:
                    raise
            else:
                self.proven = True
                return answer
            time.sleep(pause_s)  # noqa: TID251
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    def _unreachable(self, error: "TidemarkError") -> "TidemarkError":
        """Return the error of a server that was never reached."""
        from broker.client import ConnectionLost
        from broker.client.errors import NodeUnreachable

        if not error.retriable or isinstance(error, NodeUnreachable):
            return error
        return ConnectionLost(
            f"no broker at {self._server.address}, tried for {self._first_s:g} s from"
            f" {gethostname()}: {error}. Check option server; executors must reach it, too"
        )

    def _connected(self) -> "tuple[BlockingPortal, Client]":
        # A forked process inherits this object, but not the thread and the loop behind it.
        if self._open is None or self._open[0] != os.getpid():
            from broker.client import DeadlineExceeded

            ready: Future[tuple[BlockingPortal, Client]] = Future()
            self._shown = self._server.current_token()
            given = (self._server, self._shown, ready)
            threading.Thread(target=_run, args=given, daemon=True).start()
            try:
                self._open = (os.getpid(), *ready.result(START_S))
            except TimeoutError as error:
                cause = f"{self._server.address} cannot be reached within {START_S:g} s"
                raise DeadlineExceeded(cause) from error
        return self._open[1], self._open[2]


def gateway_here(server: Server) -> Gateway:
    """Return the one gateway of this process, so that the tasks of a worker share a connection.

    Connects anew when a token file has another token than before. Raises BadOption.
    """
    gateway = _gateway_of(server)
    gateway.renew()
    return gateway


@cache
def _gateway_of(server: Server) -> Gateway:
    return Gateway(server)


def _run(server: Server, token: str, ready: "Future[tuple[BlockingPortal, Client]]") -> None:
    import anyio

    try:
        anyio.run(_serve, server, token, ready, backend_options={"use_uvloop": True})
    except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
        if not ready.done():
            ready.set_exception(_cause(error))


def _cause(error: BaseException) -> BaseException:
    """Return the error inside nested groups: only it says whether a retry may help."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve(
    server: Server, token: str, ready: "Future[tuple[BlockingPortal, Client]]"
) -> None:
    from anyio.from_thread import BlockingPortal

    from broker.client import Deadlines, connect

    deadlines = Deadlines(connect_s=FIRST_ANSWER_S)
    connecting = connect(
        server.address,
        cluster=server.cluster,
        deadlines=deadlines,
        tls=server.client_tls(),
        token=token,
    )
    async with BlockingPortal() as portal, connecting as client:
        ready.set_result((portal, client))
        await portal.sleep_until_stopped()


async def _nothing(_: "Client") -> None:
    """Do nothing: the call is made for the connection alone."""


async def _opened(open: Callable[["Client"], AnyScanner], client: "Client") -> AnyScanner:
    return open(client)


async def _take(scanner: AnyScanner) -> tuple[list[Any], bool]:
    """Return some batches that have rows, and whether the scanner has ended."""
    batches: list[Any] = []
    rows = size = 0
    async for batch in scanner:
        if len(batch):
            batches.append(batch)
            rows, size = rows + len(batch), size + batch.nbytes
        if rows >= TAKEN_ROWS or size >= TAKEN_BYTES:
            return batches, False
    return batches, True
