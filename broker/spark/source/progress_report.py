"""Reports the progress of a query to the broker: a named cursor and a hard barrier.

A report never stops a query: each call has a short deadline, and a failed one is only logged. The
next report makes up for it.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from broker.client import TidemarkError
from broker.client.errors import ChannelFenced, CursorMovedBack, PermissionDenied
from broker.spark.gateway import Gateway

if TYPE_CHECKING:
    from broker.client import Client, Peer

PEER: Final = "spark"
"""The query's name in its barrier. A restarted query takes over its own place."""
REPORT_S: Final = 2.0
AWAY_S: Final = 10.0
"""Pause after a call without an answer: the query waits during each call."""
log = logging.getLogger("tidemark.spark")


class ProgressReporter:
    """Reports for one query under one name; without a name it does nothing. Never raises."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reported = 0
        self._peer: Peer | None = None
        self._peer_of: Client | None = None
        """The client that has joined: a gateway makes a new one when its token was replaced."""
        self._replaced = False
        self._forbidden = False
        self._told_ahead = False
        self._silent_until_s = 0.0

    def __getstate__(self) -> dict[str, str]:
        return {"name": self._name}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__init__(state["name"])  # type: ignore[misc]

    def processed(self, gateway: Gateway, vchannels: Sequence[str], tick: int) -> None:
        """Report that everything on these vchannels up to this tick is processed."""
        if not self._name or tick <= self._reported or self._is_away():
            return
        moved = self._try(gateway, tick, lambda client: self._move(client, vchannels, tick))
        # The first call may have timed out; the query does not wait for a second one.
        if not (self._replaced or self._forbidden or self._is_away()):
            self._try(gateway, tick, lambda client: self._report(client, tick))
        if moved:
            self._reported = tick

    def _is_away(self) -> bool:
        return time.monotonic() < self._silent_until_s  # noqa: TID251 - Spark calls us synchronously

    def _try(
        self, gateway: Gateway, tick: int, tell: Callable[["Client"], Awaitable[None]]
    ) -> bool:
        async def within(client: "Client") -> None:
            with anyio.fail_after(REPORT_S):
                await tell(client)

        try:
            gateway.attempt(within)
        except (TidemarkError, TimeoutError) as error:
            # A newer run of the query has taken this one's place, for good.
            self._replaced = self._replaced or isinstance(error, ChannelFenced)
            if isinstance(error, TimeoutError) or (error.retriable and not self._replaced):
                self._silent_until_s = time.monotonic() + AWAY_S  # noqa: TID251
            log.warning(
                "tidemark: cannot report tick %d to cursor %r: %s",
                tick,
                self._name,
                str(error) or "no answer",
            )
            return False
        return True

    async def _move(self, client: "Client", vchannels: Sequence[str], tick: int) -> None:
        try:
            await client.cursor(self._name).move(tick, vchannels, deadline_s=REPORT_S)
        except CursorMovedBack:
            # A query that was idle reports more than its checkpoint has, and restarts from there.
            if not self._told_ahead:
                self._told_ahead = True
                log.warning(
                    "tidemark: cursor %r is ahead of tick %d, where this query is, and stays until"
                    " the query is ahead of it: an earlier run moved it, or another program does",
                    self._name,
                    tick,
                )

    async def _report(self, client: "Client", tick: int) -> None:
        try:
            await self._report_to_barrier(client, tick)
        except PermissionDenied as error:
            # The cursor is what counts, and its right is of that cursor alone.
            self._forbidden = True
            log.warning("tidemark: barrier %r gets no reports of this query: %s", self._name, error)

    async def _report_to_barrier(self, client: "Client", tick: int) -> None:
        if self._peer is None or self._peer_of is not client:
            # Entered for good: Spark does not tell when a query ends; then the peer's lease
            # expires.
            self._peer = await client.barrier(self._name).join(PEER).__aenter__()
            self._peer_of = client
        await self._peer.report(tick, deadline_s=REPORT_S)
