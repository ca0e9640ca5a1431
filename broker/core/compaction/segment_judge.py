"""What compaction leaves of the records of one segment.

It looks at all of them once, then judges each. A message goes if a newer one of its key is in what
the pass covers, or if it is a tombstone that deletes nothing any more. Of a transaction single
messages go, and all of it if none is left and it lies in this segment as a whole.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.core.compaction.key_scan import KeyScan
from broker.core.compaction.keyed_messages import HashedKey, PlainKey, hashes_of, is_keyed
from broker.core.space.record_runs import is_divisible, kept_runs
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import COMPACTION, MessageType
from broker.model.record import Record

Ends = dict[TxnId, TimeTick | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What others say of records.

    `held`: whether somebody needs one whose messages readers get at these ticks, first and last.
    `unpacked`: the same one with a body that is not compressed; None if it cannot be unpacked.
    `outdated`: whether one of kind COMPACTION says less than a later one.
    """

    held: Callable[[Record, TimeTick, TimeTick], bool]
    unpacked: Callable[[Record], Record | None]
    outdated: Callable[[Record], bool]


_LATE: Final = TimeTick((1 << 63) - 1)
_ENDS: Final = frozenset({MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN})


@dataclass(slots=True)
class _Txn:
    """What the segment has of a transaction: `left` and `gone` count messages.

    `held`: somebody may need one that is gone, so that its begin and its end stay, too.
    """

    begins: bool = False
    ends: bool = False
    end_tick: TimeTick | None = None
    left: int = 0
    gone: int = 0
    held: bool = False

    def is_dead(self, upto: TimeTick) -> bool:
        """Whether nothing of it is left, and all of it lies here."""
        if not (self.begins and self.ends):
            return False
        if self.end_tick is None:
            return True
        return not (self.left or self.held) and self.end_tick <= upto


class SegmentJudge:
    """`look` at every record of the segment in order, then `left` says what is left of each.

    Segments are judged from the newest to the oldest. `ends`: of transactions that ended in a later
    one the tick of the commit, None if rolled back; it adds those that began before its own.

    `tombstones`: how many stay, by vchannel.
    """

    def __init__(
        self, scan: KeyScan, base_id: MessageId, ends: Ends, plain_key: PlainKey, by: Judgement
    ) -> None:
        """`base_id`: where the segment begins."""
        self._scan, self._base_id, self._ends = scan, base_id, ends
        self._plain_key, self._by = plain_key, by
        self._txns: dict[TxnId, _Txn] = {}
        self._gone = 0
        self.tombstones: dict[str, int] = {}

    @property
    def gone(self) -> int:
        """How many messages go, once it has looked at all records."""
        of_txns = [
            it.left + it.gone if it.is_dead(self._scan.upto) else it.gone
            for txn, it in self._txns.items()
            if self._is_covered(self._end_of(txn)) or it.is_dead(self._scan.upto)
        ]
        return self._gone + sum(of_txns)

    def look(self, record: Record) -> None:
        """Look at the next record."""
        if record.vchannel not in self._scan.targets:
            return
        if record.txn is None:
            if is_keyed(record):
                self._gone += self._counted(record, record.base_tick).count(False)
            return
        found = self._txns.setdefault(record.txn.id, _Txn())
        if record.kind == MessageType.BEGIN_TXN:
            found.begins = True
        elif record.kind in _ENDS:
            found.ends = True
            found.end_tick = record.base_tick if record.kind == MessageType.COMMIT_TXN else None
            if record.txn.begin_id < self._base_id:
                self._ends[record.txn.id] = found.end_tick
        elif is_keyed(record):
            kept = self._counted(record, None)
            found.left += kept.count(True)
            found.gone += kept.count(False)
            # Where it ends is not known yet, so this says at least as often that it is held.
            found.held = found.held or self._by.held(record, record.base_tick, _LATE)

    def left(self, record: Record) -> Sequence[Record] | None:
        """What is left of a record: None: all of it; else its runs, none if nothing is left."""
        if record.vchannel not in self._scan.targets:
            return None
        if record.kind == COMPACTION:
            return () if self._by.outdated(record) else None
        tick = record.base_tick
        if record.txn is not None:
            found = self._txns.get(record.txn.id)
            if found is not None and found.is_dead(self._scan.upto):
                return ()
            end = self._end_of(record.txn.id)
            if not self._is_covered(end):
                return None
            assert end is not None, record
            tick = end
        if not is_keyed(record):
            return None
        kept = self._kept(record, tick if record.txn is None else None)
        first, last = (tick, record.last_tick) if record.txn is None else (tick, tick)
        if all(kept) or self._by.held(record, first, last):
            return None
        if not any(kept):
            return ()
        whole = record if is_divisible(record) else self._by.unpacked(record)
        return None if whole is None else kept_runs(whole, kept)

    def _end_of(self, txn: TxnId) -> TimeTick | None:
        found = self._txns.get(txn)
        if found is not None and found.ends:
            return found.end_tick
        return self._ends.get(txn)

    def _is_covered(self, end_tick: TimeTick | None) -> bool:
        return end_tick is not None and end_tick <= self._scan.upto

    def _counted(self, record: Record, base_tick: TimeTick | None) -> list[bool]:
        keys = hashes_of(record, self._plain_key)
        kept = self._kept_of(record, keys, base_tick)
        empty = sum([stays and it[1] for stays, it in zip(kept, keys, strict=True)])
        if empty:
            name = record.vchannel
            self.tombstones[name] = self.tombstones.get(name, 0) + empty
        return kept

    def _kept(self, record: Record, base_tick: TimeTick | None) -> list[bool]:
        return self._kept_of(record, hashes_of(record, self._plain_key), base_tick)

    def _kept_of(
        self, record: Record, keys: Sequence[HashedKey], base_tick: TimeTick | None
    ) -> list[bool]:
        """Of each message whether it stays; `base_tick` None: it is in a transaction."""
        newest, dead, upto = self._scan.newest, self._scan.tombstones, self._scan.upto
        kept = []
        for index, (key, _) in enumerate(keys):
            id = record.base_id + index
            if key is None or (base_tick is not None and base_tick + index > upto):
                kept.append(True)
            else:
                kept.append(newest.get(key, id) == id and dead.get(key) != id)
        return kept
