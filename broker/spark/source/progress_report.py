"""Tells the broker how far a query is, so that others see it: a named cursor, and a hard barrier.

Nothing here can stop a query: each call has a short deadline, and what fails is a line in the log
and is made good by the next. Next: broker/client/cluster/cursor.py
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from broker.client import ChannelFenced, TidemarkError
from broker.spark.gateway import Gateway

if TYPE_CHECKING:
    from broker.client import Client, Peer

PEER: Final = "spark"
"""The query's name in its barrier: started again, it takes its own place there."""
REPORT_S: Final = 2.0
AWAY_S: Final = 10.0
"""A broker that did not answer is not told for so long: the query waits while it is told."""
log = logging.getLogger("tidemark.spark")


class ProgressReporter:
    """Of one query, under one name; without a name it is told to nobody. Never raises."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = 0
        self._peer: Peer | None = None
        self._replaced = False
        self._silent_until_s = 0.0

    def __getstate__(self) -> dict[str, str]:
        return {"name": self._name}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__init__(state["name"])  # type: ignore[misc]

    def processed(self, gateway: Gateway, vchannels: Sequence[str], tick: int) -> None:
        """Everything on these with a tick up to this one is processed."""
        if not self._name or tick <= self._told or self._is_away():
            return
        moved = self._try(gateway, tick, lambda client: self._move(client, vchannels, tick))
        if not self._replaced and not self._is_away():
            self._try(gateway, tick, lambda client: self._report(client, tick))
        if moved:
            self._told = tick

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
            self._replaced = self._replaced or isinstance(error, ChannelFenced)
            if isinstance(error, TimeoutError) or (error.retriable and not self._replaced):
                self._silent_until_s = time.monotonic() + AWAY_S  # noqa: TID251
            log.warning(
                "tidemark: tick %d is not told to %r: %s",
                tick,
                self._name,
                str(error) or "no answer",
            )
            return False
        return True

    async def _move(self, client: "Client", vchannels: Sequence[str], tick: int) -> None:
        await client.cursor(self._name).move(tick, vchannels, deadline_s=REPORT_S)

    async def _report(self, client: "Client", tick: int) -> None:
        if self._peer is None:
            self._peer = await client.barrier(self._name).join(PEER).__aenter__()
        await self._peer.report(tick, deadline_s=REPORT_S)
