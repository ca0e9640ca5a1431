"""Where all named cursors are, for metrics: read from their records now and then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final

import structlog

from actors import Actor, Context, Envelope
from broker.core.naming import collection_id_of
from broker.core.time import tso
from broker.model.failure import Refused
from broker.model.ids import CollectionId, TimeTick
from broker.model.named_cursor import NamedCursor
from broker.ports.meta import MetaError, MetaStore
from broker.ports.row_schemas import CatalogVersion, RowSchemas
from broker.timesync.cursor_records import CursorRecords

log = structlog.get_logger(__name__)

LOOK_S: Final = 5.0
PLACES_MAX: Final = 1000
"""Cursors times collections that are shown: those furthest behind. Each is a time series."""
NO_COLLECTION: Final = ""


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """Everything up to `tick` is processed. `collection`: "" for channels of no collection."""

    cursor: str
    collection: str
    tick: TimeTick


class CursorPlaces:
    """What was seen last; shared by the actor that looks and the metrics that show."""

    def __init__(self) -> None:
        self.seen: Sequence[CursorPlace] = ()


@dataclass(frozen=True, slots=True)
class LookAtCursors:
    """A timer."""


class CursorWatch(Actor[LookAtCursors]):
    """Reads the records; a store that is away leaves what was seen before."""

    def __init__(self, store: MetaStore, collections: RowSchemas, places: CursorPlaces) -> None:
        self._records = CursorRecords(store)
        self._collections = collections
        self._places = places
        self._names: dict[CollectionId, str] = {}
        self._version: CatalogVersion | None = None

    async def started(self, context: Context[LookAtCursors]) -> None:
        context.self.tell(LookAtCursors())
        context.on_beat(LOOK_S, LookAtCursors())

    async def receive(self, batch: Sequence[Envelope[LookAtCursors]]) -> None:
        """Look once, however many timers have fired."""
        try:
            cursors = [furthest_behind(it) for it in await self._records.list()]
            names = await self._names_of([channel for it in cursors for channel in it.positions])
        except (MetaError, Refused) as error:
            log.warning("cannot read the cursors for the metrics", error=str(error))
            return
        found = [it for cursor in cursors for it in places_of(cursor, names)]
        self._places.seen = sorted(found, key=lambda it: it.tick)[:PLACES_MAX]

    async def _names_of(self, channels: Sequence[str]) -> Mapping[str, str]:
        """The collections by channel. Names are read again when the catalog has changed."""
        if not channels:
            return {}
        version = await self._collections.version()
        if version != self._version:
            self._names, self._version = {}, version
        ids = {channel: collection_id_of(channel) for channel in channels}
        for id in {id for id in ids.values() if id is not None} - self._names.keys():
            self._names[id] = await self._collections.name_of(id) or NO_COLLECTION
        return {channel: self._names[id] for channel, id in ids.items() if id is not None}


def furthest_behind(cursor: NamedCursor) -> NamedCursor:
    """The cursor with its PLACES_MAX slowest channels: no other one can be shown."""
    if len(cursor.positions) <= PLACES_MAX:
        return cursor
    slowest = nsmallest(PLACES_MAX, cursor.positions.items(), key=lambda it: it[1].closed)
    return replace(cursor, positions=dict(slowest))


def places_of(cursor: NamedCursor, names: Mapping[str, str]) -> list[CursorPlace]:
    """One for each collection: where its slowest channel is. `names`: collections by vchannel."""
    slowest: dict[str, TimeTick] = {}
    for channel, position in cursor.positions.items():
        # One that has processed nothing counts from when it was made, not from the year 1970.
        tick = position.closed or tso.compose(cursor.moved_ms, 0)
        collection = names.get(channel, NO_COLLECTION)
        slowest[collection] = min(tick, slowest.get(collection, tick))
    return [CursorPlace(cursor.name, it, tick) for it, tick in slowest.items()]
