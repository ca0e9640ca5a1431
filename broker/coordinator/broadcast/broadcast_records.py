"""The records of broadcasts in the metadata store: one line of JSON, then the message body.

A body above BODY_INLINE_MAX is stored in parts beside its record: before the record, so that every
record has its body, and until the record no longer needs it. A crash in between leaves parts that
no record names; the next Broadcaster removes them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.coordinator.counters import count_up
from broker.coordinator.json_records import decode_fields, encode_fields
from broker.coordinator.records import decode_number, encode_number
from broker.core.cluster.broadcast_state import (
    CAUSE_LENGTH_MAX,
    BroadcastPhase,
    BroadcastState,
)
from broker.core.cluster.forgotten_broadcasts import ForgottenIds
from broker.model.broadcast import Broadcast, ResourceDomain, ResourceKey
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from broker.model.message import Appended
from broker.ports.callbacks import EndRecord
from broker.ports.meta import Conflict, MetaEntry, MetaError, MetaStore
from broker.ports.meta_writes import (
    SPLIT_BYTES,
    SPLIT_KEYS,
    VALUE_BYTES_MAX,
    all_entries,
    in_parts,
    split_write,
)

TASK_PREFIX = "broadcast/task/"
HORIZON_PREFIX = "broadcast/horizon/"
FORGOTTEN_PREFIX = "broadcast/forgotten/"
INCARNATION_KEY = "counter/broadcast"
SEQUENCE_BITS = 32
BODY_PREFIX: Final = "broadcast/body/"
BODY_INLINE_MAX: Final = 256 * 1024
DELETED_WITH_MAX: Final = 80
"""Parts deleted in the write of a tombstone; of a larger body the next Broadcaster removes more."""
_PLACE_BYTES: Final = 80
_NO_PLACE_BYTES: Final = 12
"""Of one vchannel's place and acknowledgement: at most, and at first."""
_CAUSE_BYTES: Final = 12 * CAUSE_LENGTH_MAX
"""A character takes up to 12 bytes in JSON."""


@dataclass(frozen=True, slots=True)
class RecordedBroadcast:
    """A broadcast and the revision of its record. `parts`: of its body, if stored in parts."""

    task: BroadcastState
    revision: int
    parts: int = 0


def record_problem(broadcast: Broadcast) -> str:
    """Why the record of this broadcast cannot be stored; "" if it can, to its end."""
    size = _size(broadcast, _PLACE_BYTES, _CAUSE_BYTES)
    if size <= VALUE_BYTES_MAX:
        return ""
    return (
        f"the record of the broadcast takes {size} bytes, at most {VALUE_BYTES_MAX} are possible;"
        " name fewer vchannels and resource keys, or shorter ones"
    )


def _size(broadcast: Broadcast, place: int, cause: int) -> int:
    """An upper bound of its record, with so many bytes for each vchannel's place, and a cause."""
    texts = [*broadcast.vchannels, *[key.key for key in broadcast.keys], broadcast.request_key]
    texts.append(broadcast.answer)
    body = 0 if len(broadcast.body) > BODY_INLINE_MAX else len(broadcast.body)
    return len(json.dumps(texts)) + (place + 20) * len(texts) + 1000 + cause + body


def fitting_groups(tasks: Sequence[BroadcastState]) -> Iterator[Sequence[BroadcastState]]:
    """Cut into groups that `create` can record with one write each; in order."""
    start = size = 0
    for number, task in enumerate(tasks):
        more = _size(task.broadcast, _NO_PLACE_BYTES, 0)
        full = number - start == SPLIT_KEYS or size + more > SPLIT_BYTES
        if number > start and full:
            yield tasks[start:number]
            start, size = number, 0
        size += more
    if start < len(tasks):
        yield tasks[start:]


class RecordUnknown(Exception):
    """Broadcasts may be recorded or not: only a Broadcaster that reads all records can go on."""


class BroadcastRecords:
    """The records of one store. A call that raises MetaError has changed nothing."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def first_id(self) -> BroadcastId:
        """The first of 2^32 ids that are reserved for the caller; durable on return."""
        # One durable counter for each start instead of one write for each id; unused ids are lost.
        counted = await count_up(self._store, INCARNATION_KEY)
        return BroadcastId((counted.number << SEQUENCE_BITS) + 1)

    async def load(self) -> Sequence[RecordedBroadcast]:
        """The records of all broadcasts."""
        found = []
        async for key, entry in all_entries(self._store, TASK_PREFIX):
            found.append(await self._recorded(key, entry))
        return found

    async def remove_bodies(self, but: Iterable[RecordedBroadcast]) -> None:
        """Remove parts of bodies that a crash left, which none of all records, `but`, needs."""
        needed = {key for it in but for key in _part_keys(it.task, it.parts)}
        # Few at a time: these are large.
        parts = all_entries(self._store, BODY_PREFIX, page=8)
        for _, some in split_write({}, [key async for key, _ in parts if key not in needed]):
            await self._store.write({}, deletes=some)

    async def read(self, name: str) -> RecordedBroadcast | None:
        """One record; None when it was deleted."""
        key = task_key(name)
        entry = await self._store.get(key)
        return None if entry is None else await self._recorded(key, entry)

    async def create(self, tasks: Sequence[BroadcastState]) -> Sequence[RecordedBroadcast]:
        """Create the records of one of `fitting_groups`, all or none. Conflict when one exists.

        A failed write may have taken effect all the same, when a disk or a store lost its answer.
        So it is read back: raises MetaError when nothing was recorded, RecordUnknown when that
        cannot be told.
        """
        for task in tasks:
            await self._write_body(task)
        counts = [_parts_of(task) for task in tasks]
        puts = {
            task_key(task.name): encode_task(task, count)
            for task, count in zip(tasks, counts, strict=True)
        }
        try:
            revision = await self._store.write(puts, expect=dict.fromkeys(puts, 0))
        except Conflict:
            raise
        except MetaError as error:
            revision = await self._written_after_all(puts, error)
        return [
            RecordedBroadcast(task, revision, count)
            for task, count in zip(tasks, counts, strict=True)
        ]

    async def _written_after_all(self, puts: Mapping[str, bytes], error: MetaError) -> int:
        """The revision of a write that failed and took effect; raises its error if it did not."""
        key, value = next(iter(puts.items()))
        try:
            found = await self._store.get(key)
        except MetaError as unread:
            raise RecordUnknown(f"{error}; reading it back: {unread}") from unread
        # All were written at once, and nobody else writes below these ids.
        if found is None or found.value != value:
            raise error
        return found.revision

    async def save(self, before: RecordedBroadcast, task: BroadcastState) -> RecordedBroadcast:
        """Replace exactly `before`; Conflict when another incarnation has changed the record."""
        key, count = task_key(task.name), _parts_of(task)
        # An earlier release has written it whole: such a record does not fit the store again.
        if count and not before.parts:
            await self._write_body(task)
        gone = () if count else _part_keys(task, before.parts)[:DELETED_WITH_MAX]
        revision = await self._store.write(
            {key: encode_task(task, count)}, deletes=gone, expect={key: before.revision}
        )
        return RecordedBroadcast(task, revision, count)

    @staticmethod
    def end(before: RecordedBroadcast, task: BroadcastState) -> EndRecord | None:
        """What `save` would write of a task without a body; None if parts of its body go, too."""
        if before.parts:
            return None
        return EndRecord(task_key(task.name), encode_task(task), before.revision)

    async def forgotten(self) -> dict[str, ForgottenIds]:
        """For each other cluster, the broadcasts whose records were deleted."""
        found = {
            key.removeprefix(HORIZON_PREFIX): ForgottenIds(
                BroadcastId(decode_number(key, entry.value))
            )
            async for key, entry in all_entries(self._store, HORIZON_PREFIX)
        }
        async for key, entry in all_entries(self._store, FORGOTTEN_PREFIX):
            ids = decode_fields(key, entry.value, lambda fields: list(map(int, fields["ids"])))
            origin = key.removeprefix(FORGOTTEN_PREFIX)
            known = found.get(origin, ForgottenIds())
            found[origin] = known.and_also(map(BroadcastId, ids))
        return found

    async def forget(
        self, tasks: Iterable[BroadcastState], forgotten: Mapping[str, ForgottenIds]
    ) -> None:
        """Store which broadcasts of other clusters are forgotten, then delete the records.

        After an error some records may be gone; a repeat deletes the rest.
        """
        # Before the records: with one deleted and its id lost, a copy would run again. The two of a
        # cluster in one write: ids below a horizon that is not stored would be lost.
        # Without `expect`: one Broadcaster of the leader writes these, and LedStore fences.
        for origin, ids in forgotten.items():
            horizon, newest = encode_number(ids.horizon), encode_fields({"ids": sorted(ids.ids)})
            puts = {HORIZON_PREFIX + origin: horizon, FORGOTTEN_PREFIX + origin: newest}
            await self._store.write(puts)
        for _, gone in split_write({}, [task_key(task.name) for task in tasks]):
            await self._store.write({}, deletes=gone)

    async def _recorded(self, key: str, entry: MetaEntry) -> RecordedBroadcast:
        task, count = decode_task(key, entry.value)
        parts = [await self._store.get(it) for it in _part_keys(task, count)]
        whole = b"".join([it.value for it in parts if it is not None])
        if None in parts:
            raise MetaError(f"{key}: {parts.count(None)} of {count} parts of its body are missing")
        if count:
            task = replace(task, broadcast=replace(task.broadcast, body=whole))
        return RecordedBroadcast(task, entry.revision, count)

    async def _write_body(self, task: BroadcastState) -> None:
        """Store the body in parts if it is large; again has no effect: it never changes."""
        parts = in_parts(task.broadcast.body) if _parts_of(task) else []
        for key, part in zip(_part_keys(task, len(parts)), parts, strict=True):
            await self._store.write({key: part})


def task_key(name: str) -> str:
    """The key of a record; padded to 20 digits, so that keys sort by id."""
    return TASK_PREFIX + (f"{int(name):020d}" if name.isdigit() else name)


def _parts_of(task: BroadcastState) -> int:
    body = task.broadcast.body
    return len(in_parts(body)) if len(body) > BODY_INLINE_MAX else 0


def _body_prefix(task: BroadcastState) -> str:
    return BODY_PREFIX + task_key(task.name).removeprefix(TASK_PREFIX)


def _part_keys(task: BroadcastState, count: int) -> Sequence[str]:
    return [f"{_body_prefix(task)}/{number:04d}" for number in range(count)]


def encode_task(task: BroadcastState, parts: int = 0) -> bytes:
    """The record of one broadcast, whose body is stored in so many parts; 0: in the record."""
    broadcast = task.broadcast
    fields = {
        "id": task.id,
        "origin": task.origin,
        "state": task.state.name,
        "type": broadcast.type,
        "vchannels": broadcast.vchannels,
        "keys": [[key.domain.name, key.key, key.shared] for key in broadcast.keys],
        "size": broadcast.size,
        "request_key": broadcast.request_key,
        "fingerprint": broadcast.fingerprint,
        "ack_sync_up": broadcast.ack_sync_up,
        "pchannel_level": broadcast.pchannel_level,
        "landed": [_place(it) for it in task.landed],
        "acked": task.acked,
        "poison": task.poison,
        "skipped": task.skipped,
        "done_ms": task.done_ms,
        **({"body_parts": parts} if parts else {}),
        **({"answer": broadcast.answer} if broadcast.answer else {}),
        **({"timestamp": broadcast.timestamp} if broadcast.timestamp else {}),
    }
    # Beside the JSON, not in it: base64 would make the body a third larger at each write.
    return encode_fields(fields) + b"\n" + (b"" if parts else broadcast.body)


def decode_task(key: str, value: bytes) -> tuple[BroadcastState, int]:
    """The broadcast, and the number of parts that its body is to be read from.

    Raises MetaError for a record this version cannot read.
    """
    line, _, body = value.partition(b"\n")  # JSON on one line has no newline: it escapes them
    return decode_fields(
        key, line, lambda fields: (_task(fields, body), int(fields.get("body_parts", 0)))
    )


def _task(fields: dict[str, Any], body: bytes) -> BroadcastState:
    broadcast = Broadcast(
        type=fields["type"],
        vchannels=tuple(VChannelName(name) for name in fields["vchannels"]),
        keys=tuple(
            ResourceKey(ResourceDomain[domain], key, shared)
            for domain, key, shared in fields["keys"]
        ),
        body=body,
        size=fields["size"],
        request_key=fields["request_key"],
        fingerprint=fields["fingerprint"],
        ack_sync_up=fields["ack_sync_up"],
        pchannel_level=fields["pchannel_level"],
        answer=fields.get("answer", ""),
        timestamp=fields.get("timestamp", 0),
    )
    return BroadcastState(
        id=BroadcastId(fields["id"]),
        state=BroadcastPhase[fields["state"]],
        broadcast=broadcast,
        landed=tuple(None if it is None else _appended(*it) for it in fields["landed"]),
        acked=tuple(fields["acked"]),
        origin=fields["origin"],
        poison=fields["poison"],
        skipped=fields["skipped"],
        done_ms=fields["done_ms"],
    )


def _place(landed: Appended | None) -> tuple[int, int, int] | None:
    return None if landed is None else (landed.id, landed.tick, landed.last_confirmed_id)


def _appended(message_id: int, tick: int, last_confirmed_id: int) -> Appended:
    return Appended(MessageId(message_id), TimeTick(tick), MessageId(last_confirmed_id))
