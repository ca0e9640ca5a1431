"""Which vchannels are of collections that were dropped: by the log, or by the catalog.

The log of a vchannel has the drop only of a collection whose creation it has, which plain
collections of clients do not announce there; the catalog knows of every drop.
"""

from collections.abc import Iterable
from typing import Final

import anyio

from broker.model.failure import Refused, StreamingCode
from broker.node.state.open_channels import OpenChannel
from broker.ports.row_schemas import NoShard, RowSchemas

ANSWER_S: Final = 5.0
VERSION_S: Final = 1.0
"""So long one read of the catalog's version serves: many groups may be created at once."""


class DroppedVChannels:
    """For one actor. The catalog is asked about a vchannel again only after another drop."""

    def __init__(self, opened: OpenChannel, catalog: RowSchemas) -> None:
        self._opened = opened
        self._catalog = catalog
        self._drops = -1
        self._due_s = 0.0
        self._alive: set[str] = set()
        """Those that were not dropped when there were so many drops."""

    async def among(self, vchannels: Iterable[str]) -> set[str]:
        """The dropped ones; only those that the log knows while the catalog does not answer."""
        asked = set(vchannels)
        try:
            return await self._found(asked)
        except Refused:
            return self._in_log(asked)

    async def is_dropped(self, vchannel: str) -> bool:
        """For who must not guess. Raises Refused if only the catalog can tell and is silent."""
        return bool(await self._found({vchannel}))

    def _in_log(self, asked: set[str]) -> set[str]:
        return {it for it in asked if it in self._opened.segments.dropped}

    async def _found(self, asked: set[str]) -> set[str]:
        dropped, known = self._in_log(asked), self._opened.segments.collections
        # One that the log knows to exist was created again by a client of Milvus.
        left = {it for it in asked - dropped if it not in known}
        if not left:
            return dropped
        try:
            with anyio.fail_after(ANSWER_S):
                return dropped | await self._dropped_for_catalog(left)
        except TimeoutError as error:
            cause = (
                f"the metadata store has not said within {ANSWER_S} s whether the collection of"
                f" {min(left)} was dropped; see whether the store is up"
            )
            raise Refused(StreamingCode.INNER, cause) from error

    async def _dropped_for_catalog(self, vchannels: set[str]) -> set[str]:
        now_s = anyio.current_time()
        if now_s >= self._due_s:
            # Read before the look-ups, which are newer then.
            drops = (await self._catalog.version()).drops
            self._due_s = now_s + VERSION_S
            if drops != self._drops:
                self._drops, self._alive = drops, set()
        found: set[str] = set()
        # Not of the time behind a drop that another task learns of meanwhile.
        alive = self._alive
        for name in vchannels - alive:
            if await self._catalog.shard(name) is NoShard.DROPPED:
                found.add(name)
            else:
                alive.add(name)
        return found
