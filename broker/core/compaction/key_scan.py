"""One look at the keys of a log: which message of each key is the newest up to a tick.

Readers get a transaction at its commit, so that is where its messages count: the newest message of
a key is the one that a reader would get last, whatever their ids are.

The map holds only keys of what is not clean yet, as in Kafka: of all that is, each key has one
message left already. So its size does not depend on the log. When it is full, the scan ends early,
the pass covers what was seen, and the next pass goes on from there.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.core.compaction.keyed_messages import HASH_BYTES, PlainKey, hashes_of, is_keyed
from broker.model.ids import TimeTick, TxnId
from broker.model.message import MessageType
from broker.model.record import Record

ENTRY_BYTES: Final = 180
"""Of one key in memory: the hash, the id, and their places in a dictionary."""


@dataclass(frozen=True, slots=True)
class Target:
    """A vchannel to compact. Up to `clean` only the newest of each key is left.

    Tombstones up to `horizon` may go, if nothing is left that they delete.
    """

    clean: TimeTick = TimeTick(0)
    horizon: TimeTick = TimeTick(0)


@dataclass(slots=True)
class _Bodies:
    """Of one open transaction: hashes, ids, and which of them are tombstones."""

    hashes: bytearray = field(default_factory=bytearray)
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    empty: bytearray = field(default_factory=bytearray)


class KeyScan:
    """Takes the records of a log in order, beginning before every transaction of its messages.

    `newest`: by hash the id of the newest message behind `clean`. `tombstones`: by hash the id of
    each that may go. `upto`: what it has seen, once it has ended.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        upto: TimeTick,
        bytes_max: int,
        plain_key: PlainKey,
    ) -> None:
        self.targets = targets
        self.upto = upto
        self.newest: dict[bytes, int] = {}
        self.tombstones: dict[bytes, int] = {}
        self._entries_max = max(1, bytes_max // ENTRY_BYTES)
        self._plain_key = plain_key
        self._open: dict[TxnId, _Bodies] = {}
        self._waiting = 0

    def take(self, record: Record) -> bool:
        """Look at the next record; False if it has seen enough."""
        if record.base_tick > self.upto:
            return False
        target = self.targets.get(record.vchannel)
        if target is None:
            return True
        if self._is_full:
            self.upto = TimeTick(record.base_tick - 1)
            return False
        if record.txn is not None:
            self._take_in_txn(record, record.txn.id, target)
        elif is_keyed(record):
            tick = record.base_tick
            for index, (key, empty) in enumerate(hashes_of(record, self._plain_key)):
                if key is not None and tick + index <= self.upto:
                    at = TimeTick(tick + index)
                    self._note(key, record.base_id + index, at, target, tombstone=empty)
        return True

    @property
    def entries(self) -> int:
        """How many keys it holds in memory, those of open transactions among them."""
        return len(self.newest) + len(self.tombstones) + self._waiting

    @property
    def _is_full(self) -> bool:
        # Of what is clean nothing is kept in `newest`; so a scan that is full has got further.
        return bool(self.newest) and self.entries >= self._entries_max

    def _take_in_txn(self, record: Record, txn: TxnId, target: Target) -> None:
        if record.kind == MessageType.BEGIN_TXN:
            self._open[txn] = _Bodies()
            return
        bodies = self._open.get(txn)
        if bodies is None:
            return  # it began before the log does, or is no transaction but a step of the log
        if record.kind in (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN):
            committed = record.kind == MessageType.COMMIT_TXN
            self._end(txn, record.base_tick if committed else None, target)
        elif is_keyed(record):
            for index, (key, empty) in enumerate(hashes_of(record, self._plain_key)):
                if key is not None:
                    bodies.hashes += key
                    bodies.ids.append(record.base_id + index)
                    bodies.empty.append(empty)
                    self._waiting += 1

    def _end(self, txn: TxnId, tick: TimeTick | None, target: Target) -> None:
        bodies = self._open.pop(txn)
        self._waiting -= len(bodies.ids)
        if tick is not None:
            for index, id in enumerate(bodies.ids):
                key = bytes(bodies.hashes[HASH_BYTES * index : HASH_BYTES * (index + 1)])
                self._note(key, id, tick, target, tombstone=bool(bodies.empty[index]))

    def _note(
        self, key: bytes, id: int, tick: TimeTick, target: Target, *, tombstone: bool
    ) -> None:
        if tick > target.clean:
            self.newest[key] = id
        elif tombstone and tick <= target.horizon and len(self.tombstones) < self._entries_max:
            self.tombstones[key] = id

    def keep_shadowing(self, record: Record) -> None:
        """A second look: a tombstone stays while any other message of its key is in the log."""
        if record.vchannel in self.targets and is_keyed(record):
            for index, (key, _) in enumerate(hashes_of(record, self._plain_key)):
                if key is not None and self.tombstones.get(key, 0) not in (
                    0,
                    record.base_id + index,
                ):
                    del self.tombstones[key]
