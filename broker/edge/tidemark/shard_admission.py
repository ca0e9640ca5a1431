"""Decide whether a vchannel takes plain messages or rows, by what the catalog knows of it.

A collection with a schema takes rows only, because those who read rows would never see a message.
A vchannel whose collection was dropped takes neither, because nobody would look for them there.

No append waits for the metadata store except the first on a vchannel. What was read is read again
at most once every `REFRESH_S`; at once after a change made by this process. So a
collection that another process dropped may take appends for that long.

Whether a collection has a schema is decided when it is created, and ids are never used again: an
outdated answer is about drops only.
"""

from asyncio import get_running_loop
from collections.abc import Callable
from typing import Final

import anyio

from broker.core.naming import collection_id_of
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.ports.row_schemas import CollectionShards, RowSchemas, Shard

REFRESH_S: Final = 1.0
REFRESH_WAIT_S: Final = 0.05
"""An append waits no longer for a refresh, so that a metadata store that hangs stops none."""
OTHERS_MAX: Final = 65_536


class Dropped(Refusal):
    """The collection of the vchannel was dropped."""


class ShardAdmission:
    """The checks of vchannels, shared by all Append streams of a server."""

    def __init__(self, schemas: RowSchemas, now_s: Callable[[], float] | None = None) -> None:
        self._schemas = schemas
        self._now_s = now_s or get_running_loop().time
        self._known = CollectionShards()
        self._changes = -1
        self._due_s = 0.0
        self._others: set[str] = set()
        """Vchannels that were of no collection when they were first appended to."""

    async def refusal(self, vchannel: str, *, rows: bool, raw: bool = False) -> Refusal | None:
        """Why the vchannel takes no rows, or no messages; None if it does.

        `raw`: it may have been dropped. INNER when the metadata store does not answer for a
        vchannel that is new to this server.
        """
        shard = self._known.shards.get(vchannel)
        outdated = self._changes != self._schemas.changes
        try:
            if outdated or (shard is None and vchannel not in self._others):
                await self._read()
            elif self._now_s() >= self._due_s:
                await self._refresh()
        except Refused as error:
            return error.refusal
        return self._judged(vchannel, rows=rows, raw=raw)

    def _judged(self, vchannel: str, *, rows: bool, raw: bool) -> Refusal | None:
        shard = self._known.shards.get(vchannel)
        if shard is not None:
            return _rows_only(vchannel, shard) if shard.rows and not rows else None
        if len(self._others) >= OTHERS_MAX:
            self._others.clear()
        self._others.add(vchannel)
        collection = collection_id_of(vchannel)
        if raw or collection is None or not self._known.was_dropped(collection):
            return None
        cause = (
            f"collection {collection} of vchannel {vchannel!r} was dropped;"
            " look up the vchannels of the collection by its name"
        )
        return Dropped(StreamingCode.INVALID_ARGUMENT, cause)

    async def _refresh(self) -> None:
        """Read again what may be outdated; keep it when the store does not answer in time."""
        # Before the read: other streams continue with what is known.
        self._due_s = self._now_s() + REFRESH_S
        with anyio.move_on_after(REFRESH_WAIT_S):
            try:
                await self._read()
            except Refused:
                return

    async def _read(self) -> None:
        # Before the read: a change during it makes another read necessary.
        changes = self._schemas.changes
        self._known = await self._schemas.shards()
        self._changes = changes
        self._due_s = self._now_s() + REFRESH_S


def _rows_only(vchannel: str, shard: Shard) -> Refusal:
    cause = (
        f"collection {shard.collection!r} has a schema, so {vchannel!r} takes rows, not messages;"
        " use append_arrow, or `tidemark produce --format`"
    )
    return Refusal(StreamingCode.SCHEMA_VERSION_MISMATCH, cause)
