"""The purges of one pchannel, as its log says: of each vchannel the one that reaches furthest.

A purge is a record of kind PURGE beside the steps of transactions: shown to no reader, folded by
recovery, saved in snapshots. Its body is JSON: a person may have to read it in an emergency.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record
from broker.model.retention.holders import HolderKind, PassCause, Passed
from broker.model.retention.purge import Purge, recently
from broker.unreadable import UNREADABLE

_KINDS, _CAUSES = frozenset(HolderKind), frozenset(PassCause)


class UnreadablePurge(Exception):
    """The body is damaged, or a later release wrote it."""


def encode_purge(purge: Purge) -> bytes:
    """The body of the record, whose vchannel and tick are those of the purge."""
    fields: dict[str, Any] = {
        "upto": purge.upto,
        "next_id": purge.next_id,
        "whole_id": purge.whole_id,
    }
    if purge.newest is not None:
        fields["newest"] = purge.newest
    if purge.passed:
        fields["passed"] = passed_fields(purge.passed)
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_purge(vchannel: str, body: bytes, tick: TimeTick) -> Purge:
    """The purge in the body of a record. Raises UnreadablePurge."""
    try:
        fields = json.loads(body)
        upto, next_id, whole_id = (int(fields[it]) for it in ("upto", "next_id", "whole_id"))
        newest = TimeTick(int(fields["newest"])) if "newest" in fields else None
        passed = read_passed(fields.get("passed", ()))
    except UNREADABLE as error:
        raise UnreadablePurge(f"a purge is damaged: {error!r}") from error
    ids = MessageId(next_id), MessageId(whole_id)
    return Purge(vchannel, TimeTick(upto), *ids, tick, newest, passed)


def passed_fields(passed: Sequence[Passed]) -> list[list[int | str]]:
    """Who was passed, as JSON takes it."""
    return [
        [it.kind, it.name, it.cause, it.bytes, it.limit, it.removed_tick, it.passed_ms]
        for it in passed
    ]


def read_passed(fields: Iterable[Sequence[Any]]) -> tuple[Passed, ...]:
    """The opposite. A holder of a kind that a later release has is left out: the purge counts."""
    found = []
    for kind, name, cause, size, limit, tick, passed_ms in fields:
        if kind in _KINDS and cause in _CAUSES:
            holder = HolderKind(kind), str(name), PassCause(cause)
            found.append(
                Passed(*holder, int(size), int(limit), TimeTick(int(tick)), int(passed_ms))
            )
    return tuple(found)


class PurgeTable:
    """`changed`, `gone`: the vchannels since they were last cleared. `version` grows with each."""

    def __init__(self, saved: Iterable[Purge] = ()) -> None:
        self.purges: dict[str, Purge] = {it.vchannel: it for it in saved}
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self.version = 0
        self._floors: Mapping[str, TimeTick] | None = None

    def observe(self, record: Record) -> list[str]:
        """Apply a record of kind PURGE; returns what cannot be read, as texts."""
        wrong: list[str] = []
        for message in record.messages():
            try:
                self.apply(decode_purge(record.vchannel, message.body, message.tick))
            except UnreadablePurge as error:
                wrong.append(f"message {message.id}: {error}")
        return wrong

    def apply(self, purge: Purge) -> None:
        """Apply a purge that is durable; one that reaches less far does nothing."""
        known = self.purges.get(purge.vchannel)
        if known is not None and known.upto >= purge.upto:
            return
        self.purges[purge.vchannel] = purge
        self._floors = None
        self.changed.add(purge.vchannel)
        self.gone.discard(purge.vchannel)
        self.version += 1

    def forget_below(self, first_id: MessageId) -> None:
        """Forget the purges of what retention has removed: the log begins at `first_id` now.

        Not those of dropped collections: readers of the pchannel would see the messages again.
        """
        for vchannel in [name for name, it in self.purges.items() if it.next_id <= first_id]:
            del self.purges[vchannel]
            self._floors = None
            self.changed.discard(vchannel)
            self.gone.add(vchannel)

    def upto(self, vchannel: str) -> TimeTick:
        """Up to which tick a vchannel is purged; 0: it is not."""
        found = self.purges.get(vchannel)
        return TimeTick(0) if found is None else found.upto

    def removes_upto(self, vchannel: str) -> TimeTick:
        """Of a vchannel: who has read up to this tick misses nothing; 0: it is not purged."""
        found = self.purges.get(vchannel)
        return TimeTick(0) if found is None else found.removes_upto

    def newest_tick(self) -> TimeTick:
        """Of the record of the newest purge; 0: there is none."""
        return max([it.tick for it in self.purges.values()], default=TimeTick(0))

    def floors(self) -> Mapping[str, TimeTick]:
        """`upto` of each purged vchannel."""
        if self._floors is None:
            self._floors = {name: it.upto for name, it in self.purges.items()}
        return self._floors

    def passed(self, now_ms: int) -> Iterator[tuple[str, Passed]]:
        """Who was passed lately, with the vchannel that was purged."""
        for vchannel, it in self.purges.items():
            for each in recently(it.passed, now_ms) if it.passed else ():
                yield vchannel, each

    def all(self) -> tuple[Purge, ...]:
        """One for each purged vchannel."""
        return tuple(self.purges.values())

    def changes(self) -> tuple[Purge, ...]:
        """Those that have changed."""
        return tuple([self.purges[it] for it in self.changed])

    def clear_changes(self) -> None:
        """They are saved."""
        self.changed.clear()
        self.gone.clear()
