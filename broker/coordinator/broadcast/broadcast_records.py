"""The records of broadcasts in the metadata store: one line of JSON, then the message body."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.coordinator.counters import count_up
from broker.coordinator.json_records import decode_fields, encode_fields
from broker.coordinator.records import decode_number, encode_number
from broker.core.cluster.broadcast_state import BroadcastPhase, BroadcastState
from broker.core.cluster.forgotten_broadcasts import ForgottenIds
from broker.model.broadcast import Broadcast, ResourceDomain, ResourceKey
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from broker.model.message import Appended
from broker.ports.meta import MetaStore

TASK_PREFIX = "broadcast/task/"
HORIZON_PREFIX = "broadcast/horizon/"
FORGOTTEN_PREFIX = "broadcast/forgotten/"
INCARNATION_KEY = "counter/broadcast"
SEQUENCE_BITS = 32


@dataclass(frozen=True, slots=True)
class RecordedBroadcast:
    """A broadcast and the revision of its record."""

    task: BroadcastState
    revision: int


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
        entries = await self._store.list(TASK_PREFIX)
        return [
            RecordedBroadcast(decode_task(key, entry.value), entry.revision)
            for key, entry in entries
        ]

    async def read(self, name: str) -> RecordedBroadcast | None:
        """One record; None when it was deleted."""
        key = task_key(name)
        entry = await self._store.get(key)
        return (
            None
            if entry is None
            else RecordedBroadcast(decode_task(key, entry.value), entry.revision)
        )

    async def create(self, tasks: Iterable[BroadcastState]) -> int:
        """Create records, all or none; their revision. Conflict when one exists."""
        puts = {task_key(task.name): encode_task(task) for task in tasks}
        return await self._store.write(puts, expect=dict.fromkeys(puts, 0))

    async def save(self, before: RecordedBroadcast, task: BroadcastState) -> RecordedBroadcast:
        """Replace exactly `before`; Conflict when another incarnation has changed the record."""
        key = task_key(task.name)
        revision = await self._store.write({key: encode_task(task)}, expect={key: before.revision})
        return RecordedBroadcast(task, revision)

    async def forgotten(self) -> dict[str, ForgottenIds]:
        """For each other cluster, the broadcasts whose records were deleted."""
        found = {
            key.removeprefix(HORIZON_PREFIX): ForgottenIds(
                BroadcastId(decode_number(key, entry.value))
            )
            for key, entry in await self._store.list(HORIZON_PREFIX)
        }
        for key, entry in await self._store.list(FORGOTTEN_PREFIX):
            ids = decode_fields(key, entry.value, lambda fields: list(map(int, fields["ids"])))
            origin = key.removeprefix(FORGOTTEN_PREFIX)
            known = found.get(origin, ForgottenIds())
            found[origin] = known.and_also(map(BroadcastId, ids))
        return found

    async def forget(
        self, tasks: Iterable[BroadcastState], forgotten: Mapping[str, ForgottenIds]
    ) -> None:
        """Delete the records; store which broadcasts of other clusters are forgotten."""
        puts = {HORIZON_PREFIX + it: encode_number(ids.horizon) for it, ids in forgotten.items()}
        puts |= {
            FORGOTTEN_PREFIX + it: encode_fields({"ids": sorted(ids.ids)})
            for it, ids in forgotten.items()
        }
        # Without `expect`: one Broadcaster of the leader writes these, and LedStore fences.
        await self._store.write(puts, deletes=[task_key(task.name) for task in tasks])


def task_key(name: str) -> str:
    """The key of a record; padded to 20 digits, so that keys sort by id."""
    return TASK_PREFIX + (f"{int(name):020d}" if name.isdigit() else name)


def encode_task(task: BroadcastState) -> bytes:
    """The record of one broadcast."""
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
    }
    # Beside the JSON, not in it: base64 would make the body a third larger at each write.
    return encode_fields(fields) + b"\n" + broadcast.body


def decode_task(key: str, value: bytes) -> BroadcastState:
    """The broadcast; raises MetaError for a record this version cannot read."""
    line, _, body = value.partition(b"\n")  # JSON on one line has no newline: it escapes them
    return decode_fields(key, line, lambda fields: _task(fields, body))


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
