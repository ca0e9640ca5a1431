"""Waits for changes of the metadata: told by a store that can tell, by time where it cannot."""

from collections.abc import Awaitable, Callable
from typing import Self

import anyio

from broker.ports.meta import MetaError, MetaStore, TellsChanges

Told = Callable[[int | None, float], Awaitable[int]]
"""As `TellsChanges.changed` of one prefix: the revision to wait behind, and for how long."""


class Changes:
    """What changes below one prefix, for one waiter.

    A store that does not answer is a change after `period_s`, as is nothing at all for so long: it
    may be that what tells of changes has gone silent. So whoever reads after each `next` knows what
    holds, at the latest after `period_s` and the time of the read.
    """

    def __init__(self, told: Told | None, period_s: float) -> None:
        """`told` None: by time alone."""
        self._told, self._period_s = told, period_s
        self._since: int | None = None

    @classmethod
    def of(cls, store: MetaStore, prefix: str, period_s: float) -> Self:
        """Those of the keys of a store that start with `prefix`."""
        if not isinstance(store, TellsChanges):
            return cls(None, period_s)

        async def told(since: int | None, wait_s: float) -> int:
            return await store.changed(prefix, since, wait_s=wait_s)

        return cls(told, period_s)

    async def next(self) -> None:
        """Wait until there may be something new; the first time at once."""
        if self._told is None:
            await anyio.sleep(self._period_s)
            return
        try:
            self._since = await self._told(self._since, self._period_s)
        except MetaError:
            await anyio.sleep(self._period_s)
