"""The async client behind plain calls, for Spark's synchronous readers.

Owns one event loop on a thread of its own and one client on it, both made at the first call in the
process that calls: a gateway may be pickled and forked before that. Transient failures are retried
here, because Spark ends a query at the first exception of a planning call.
"""

import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from broker.spark.offsets import Held, Span, Subscription

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from broker.client import Batch, Client

T = TypeVar("T")
ATTEMPTS_MAX = 5
RETRY_FIRST_S = 0.2


class Gateway(AbstractContextManager["Gateway"]):
    """Calls to one broker. Not for several threads at once."""

    def __init__(self, server: str, cluster: str) -> None:
        self._server = server
        self._cluster = cluster
        self._open: tuple[int, BlockingPortal, Client] | None = None
        self._stack = ExitStack()

    def __getstate__(self) -> dict[str, Any]:
        return {"server": self._server, "cluster": self._cluster}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["server"], state["cluster"])  # type: ignore[misc]

    def subscription(self, names: Sequence[str]) -> Subscription:
        """Each name with its vchannels: a collection's shards, or the one vchannel that it is."""
        return self._call(lambda client: client.resolve(names))

    def held(self, vchannels: Sequence[str]) -> dict[str, Held]:
        """What the broker holds now; ids below `next_id` are durable."""

        async def ask(client: "Client") -> dict[str, Held]:
            offsets = await client.describe(vchannels)
            return {name: Held(it.first_id, it.next_id) for name, it in offsets.items()}

        return self._call(ask)

    def advance(self, vchannel: str, start: int, until: int, bytes_max: int) -> int:
        """The furthest id in (start, until] with about `bytes_max` stored bytes before it."""

        async def ask(client: "Client") -> int:
            return int(await client.advance(vchannel, start, until, bytes_max))

        return self._call(ask)

    def read(self, span: Span) -> Iterator["Batch"]:
        """The messages of one span in order; ends by itself at the span's end."""
        portal, client = self._connected()
        batches = client.read_range(span.vchannel, span.start, span.end)
        try:
            while True:
                try:
                    yield portal.call(batches.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            portal.call(batches.close)

    def __exit__(self, *_: object) -> None:
        self._open = None
        self._stack.close()

    def _call(self, ask: Callable[["Client"], Awaitable[T]]) -> T:
        from broker.client import TidemarkError

        for attempt in range(ATTEMPTS_MAX):
            try:
                portal, client = self._connected()
                return portal.call(ask, client)
            except TidemarkError as error:
                if not error.retriable or attempt == ATTEMPTS_MAX - 1:
                    raise
                self.__exit__()
                time.sleep(RETRY_FIRST_S * 2**attempt)  # noqa: TID251 - Spark calls us synchronously
        raise AssertionError("the loop returns or raises")

    def _connected(self) -> tuple["BlockingPortal", "Client"]:
        if self._open is None or self._open[0] != os.getpid():
            from anyio.from_thread import start_blocking_portal

            from broker.client import connect

            self._stack = ExitStack()
            portal = self._stack.enter_context(start_blocking_portal())
            client = self._stack.enter_context(
                portal.wrap_async_context_manager(connect(self._server, cluster=self._cluster))
            )
            self._open = (os.getpid(), portal, client)
        return self._open[1], self._open[2]
