"""The records of named cursors: one line of JSON each, changed by compare-and-set."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from broker.model.failure import Refusal, invalid_argument
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition, NamedCursor
from broker.ports.meta import MetaError, MetaStore
from broker.ports.meta_writes import VALUE_BYTES_MAX, all_entries
from broker.unreadable import UNREADABLE

VERSION = 2
ONE_TICK_VERSION = 1
"""Records of that version have one tick for all channels."""
CURSOR_PREFIX = "cursor/"
_POSITION_BYTES = 70
"""Three numbers of 20 digits."""


@dataclass(frozen=True, slots=True)
class RecordedCursor:
    """A cursor and the revision of its record; None and 0 without one."""

    cursor: NamedCursor | None
    revision: int


class CursorRecords:
    """The records of one store. MetaError: nothing has changed, unless it is WriteUnconfirmed."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def read(self, name: str) -> RecordedCursor:
        """The current record."""
        key = CURSOR_PREFIX + name
        entry = await self._store.get(key)
        if entry is None:
            return RecordedCursor(None, 0)
        return RecordedCursor(decode_cursor(key, entry.value), entry.revision)

    async def list(self) -> Sequence[NamedCursor]:
        """All cursors, by name."""
        return [
            decode_cursor(key, entry.value)
            async for key, entry in all_entries(self._store, CURSOR_PREFIX)
        ]

    async def save(self, before: RecordedCursor, cursor: NamedCursor) -> None:
        """Replace exactly `before`; Conflict when the record has changed."""
        key = CURSOR_PREFIX + cursor.name
        await self._store.write({key: encode_cursor(cursor)}, expect={key: before.revision})

    async def drop(self, before: RecordedCursor, name: str) -> None:
        """Delete exactly `before`; Conflict when the record has changed."""
        key = CURSOR_PREFIX + name
        await self._store.write({}, deletes=[key], expect={key: before.revision})


def record_refusal(cursor: NamedCursor) -> Refusal | None:
    """Why this cursor is too large for the metadata store; None if it fits, wherever it moves."""
    size = len(json.dumps(list(cursor.positions))) + _POSITION_BYTES * len(cursor.positions) + 2000
    if size <= VALUE_BYTES_MAX:
        return None
    return invalid_argument(
        f"the record of cursor {cursor.name!r} takes {size} bytes, at most {VALUE_BYTES_MAX} are"
        " possible; use several cursors with fewer channels each"
    ).refusal


def encode_cursor(cursor: NamedCursor) -> bytes:
    """The record of one cursor."""
    fields = {
        "version": VERSION,
        "name": cursor.name,
        "epoch": cursor.epoch,
        "positions": {name: _encoded(at) for name, at in cursor.positions.items()},
        "moved_ms": cursor.moved_ms,
        **({} if cursor.holds else {"holds": False}),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_cursor(key: str, value: bytes) -> NamedCursor:
    """The cursor; raises MetaError for a record this version cannot read."""
    try:
        fields = json.loads(value)
        version = fields["version"]
        if version == ONE_TICK_VERSION:
            at = ChannelPosition(TimeTick(int(fields["tick"])))
            positions = {str(it): at for it in fields["channels"]}
        elif version == VERSION:
            positions = {str(it): _decoded(at) for it, at in fields["positions"].items()}
        else:
            cause = f"{key}: record version {version}; this program knows version {VERSION}"
            raise MetaError(cause)
        return NamedCursor(
            name=str(fields["name"]),
            positions=positions,
            moved_ms=int(fields["moved_ms"]),
            epoch=int(fields.get("epoch", 0)),
            holds=bool(fields.get("holds", True)),
        )
    except UNREADABLE as error:
        raise MetaError(f"{key}: stored record is unreadable: {error!r}") from error


def _encoded(at: ChannelPosition) -> list[int]:
    # 0 for the whole tick, which is what nearly every position has.
    return [at.tick, 0 if at.id == WHOLE_TICK else at.id, at.from_id]


def _decoded(numbers: Sequence[int]) -> ChannelPosition:
    tick, id, from_id = map(int, numbers)
    return ChannelPosition(TimeTick(tick), MessageId(id) or WHOLE_TICK, MessageId(from_id))
