"""The records of what retention removes: one line of JSON for each pchannel, written before it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.retention.holders import (
    HolderKind,
    PassCause,
    Passed,
)
from broker.model.retention.policy import LogStart
from broker.ports.meta import MetaError, MetaStore
from broker.ports.meta_writes import all_entries
from broker.unreadable import UNREADABLE

VERSION = 1
REMOVED_PREFIX = "removed/"


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """Where the log may begin by now, and who was passed and has not moved on."""

    start: LogStart = LogStart()
    passed: tuple[Passed, ...] = ()


class RemovedRecords:
    """The records of one store. A call that raises MetaError has changed nothing."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def list(self) -> Mapping[PChannelName, RemovedRecord]:
        """All records, by pchannel."""
        return {
            PChannelName(key.removeprefix(REMOVED_PREFIX)): decode_removed(key, entry.value)
            async for key, entry in all_entries(self._store, REMOVED_PREFIX)
        }

    async def save(self, records: Mapping[PChannelName, RemovedRecord]) -> None:
        """Replace the records of these pchannels. The leader is their only writer."""
        # One after the other: a write has few keys, and each pchannel is a matter of its own.
        for name, record in records.items():
            await self._store.write({REMOVED_PREFIX + name: encode_removed(record)})


def encode_removed(record: RemovedRecord) -> bytes:
    """The record of one pchannel."""
    fields = {
        "version": VERSION,
        "first_id": record.start.first_id,
        "tick": record.start.removed_tick,
        "passed": [_encoded(it) for it in record.passed],
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_removed(key: str, value: bytes) -> RemovedRecord:
    """The record; raises MetaError for one that this version cannot read."""
    try:
        fields = json.loads(value)
        version = fields["version"]
        if version == VERSION:
            start = LogStart(MessageId(int(fields["first_id"])), TimeTick(int(fields["tick"])))
            return RemovedRecord(start, tuple(map(_decoded, fields["passed"])))
    except UNREADABLE as error:
        raise MetaError(f"{key}: stored record is unreadable: {error!r}") from error
    raise MetaError(f"{key}: record version {version}; this program knows version {VERSION}")


def _encoded(it: Passed) -> list[str | int]:
    return [it.kind, it.name, it.cause, it.bytes, it.limit, it.removed_tick, it.passed_ms]


def _decoded(fields: list[Any]) -> Passed:
    kind, name, cause, size, limit, tick, at_ms = fields
    return Passed(
        HolderKind(kind),
        str(name),
        PassCause(cause),
        int(size),
        int(limit),
        TimeTick(int(tick)),
        int(at_ms),
    )
