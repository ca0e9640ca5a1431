"""Decide whether a vchannel takes plain messages or rows, by what the catalog knows of it.

A collection with a schema takes rows only, because those who read rows would never see a message.
A vchannel whose collection was dropped takes neither, because nobody would look for them there.

No append waits for the metadata store except the first on a vchannel. Whether collections were
created or dropped is read at most once every `REFRESH_S`, with one read; at once after a change
made by this process. So a collection that another process dropped may take appends for that long,
and for some seconds more where a read takes a tenth of a second.

Whether a collection has a schema is decided when it is created, and ids are never used again: an
outdated answer about one is about drops only, and so are only looked at again when there were some.
Any other vchannel is looked at again after every change: a refusal must end when its cause does,
even if the catalog was incomplete when it was read.
"""

from asyncio import get_running_loop
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio

from broker.core.naming import collection_id_of
from broker.model.failure import Dropped, Refusal, Refused, StreamingCode
from broker.ports.row_schemas import CatalogVersion, NoShard, RowSchemas, Shard

REFRESH_S: Final = 1.0
REFRESH_WAIT_S: Final = 0.05
"""An append waits so long for a refresh at first. When that was too short, the next one waits twice
as long, since a slow store would otherwise never tell of a drop."""
REFRESH_WAIT_S_MAX: Final = 0.8
REST: Final = 20
"""After a wait in vain, no append waits for a refresh for 20 times as long: a metadata store that
hangs takes a 20th of the time of appends at most."""
KNOWN_MAX: Final = 16_384
"""Vchannels that are remembered; those remembered first are forgotten first."""


T = TypeVar("T")


@dataclass(slots=True)
class _Patience:
    """How long an append waits for one kind of read: the others take more or fewer of the store."""

    wait_s: float = REFRESH_WAIT_S


@dataclass(slots=True)
class _Known:
    """What was read of a vchannel, at least as new as `version`; tried again from `due_s` on."""

    shard: Shard | NoShard
    version: CatalogVersion
    due_s: float = 0.0

    def outdated(self, now: CatalogVersion) -> bool:
        match self.shard:
            case Shard():
                return self.version.drops < now.drops
            case NoShard.OTHER | NoShard.DROPPED:
                return self.version.revision < now.revision


class ShardAdmission:
    """The checks of vchannels, shared by all Append streams of a server."""

    def __init__(self, schemas: RowSchemas, now_s: Callable[[], float] | None = None) -> None:
        self._schemas = schemas
        self._now_s = now_s or get_running_loop().time
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._version = CatalogVersion(-1, -1)
        self._own = CatalogVersion(-1, -1)
        """The version after the last change by this process: nothing older may be relied on."""
        self._changes = -1
        self._due_s = 0.0
        self._for_versions, self._for_looks = _Patience(), _Patience()
        self._resting_until_s = 0.0

    async def refusal(self, vchannel: str, *, rows: bool, raw: bool = False) -> Refusal | None:
        """Why the vchannel takes no rows, or no messages; None if it does.

        `raw`: it may have been dropped. INNER when the metadata store does not answer for a
        vchannel that is new to this server.
        """
        try:
            if self._changes != self._schemas.changes:
                await self._read_own_change()
            elif self._now_s() >= max(self._due_s, self._resting_until_s):
                await self._refresh_version()
            known = self._known.get(vchannel)
            if known is None or known.outdated(self._own):
                known = await self._look_up(vchannel)
            elif known.outdated(self._version) and self._now_s() >= max(
                known.due_s, self._resting_until_s
            ):
                known.due_s = self._now_s() + REFRESH_S
                known = await self._in_time(self._look_up(vchannel), self._for_looks) or known
        except Refused as error:
            return error.refusal
        return _judged(vchannel, known.shard, rows=rows, raw=raw)

    async def _read_own_change(self) -> None:
        # Before the read: a change during it makes another read necessary.
        changes = self._schemas.changes
        self._own = self._version = await self._schemas.version()
        self._changes = changes
        self._due_s = self._now_s() + REFRESH_S

    async def _refresh_version(self) -> None:
        """Read it again; keep it when the store does not answer in time."""
        # Before the read: other streams continue with what is known.
        self._due_s = self._now_s() + REFRESH_S
        found = await self._in_time(self._schemas.version(), self._for_versions)
        self._version = found or self._version

    async def _in_time(self, reading: Awaitable[T], patience: _Patience) -> T | None:
        """What was read; None when the store refused, or took too long for an append."""
        waits_s = patience.wait_s
        with anyio.move_on_after(waits_s):
            try:
                return await reading
            except Refused:
                return None
        # What was read is lost. Others may have waited as long beside this one.
        self._resting_until_s = self._now_s() + REST * waits_s
        patience.wait_s = max(patience.wait_s, min(2 * waits_s, REFRESH_WAIT_S_MAX))
        return None

    async def _look_up(self, vchannel: str) -> _Known:
        # The version from before the read: a change during it makes another read necessary.
        version = self._version
        known = _Known(await self._schemas.shard(vchannel), version)
        self._known[vchannel] = known
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return known


def _judged(vchannel: str, shard: Shard | NoShard, *, rows: bool, raw: bool) -> Refusal | None:
    match shard:
        case Shard():
            return _rows_only(vchannel, shard) if shard.rows and not rows else None
        case NoShard.OTHER:
            return None
        case NoShard.DROPPED:
            return None if raw else dropped_refusal(vchannel)


def dropped_refusal(vchannel: str) -> Dropped:
    """The refusal of what is appended to a vchannel whose collection the catalog has dropped."""
    cause = (
        f"collection {collection_id_of(vchannel)} of vchannel {vchannel!r} was dropped;"
        " look up the vchannels of the collection by its name"
    )
    return Dropped(StreamingCode.INVALID_ARGUMENT, cause)


def _rows_only(vchannel: str, shard: Shard) -> Refusal:
    cause = (
        f"collection {shard.collection!r} has a schema, so {vchannel!r} takes rows, not messages;"
        " use append_arrow, or `tidemark produce --format`"
    )
    return Refusal(StreamingCode.SCHEMA_VERSION_MISMATCH, cause)
