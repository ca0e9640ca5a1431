"""What one pchannel's log comes to: the state that a restart goes on from.

It owns the checkpoint, the vchannels and segments, what open transactions will do to them, the
transactions that ended, and what producers have stored. It is fed with the records of a log in
order, from wherever an earlier snapshot says, and gives snapshots. It never reads or writes.

Why a replay from any snapshot ends in the same state, even from one that was only half written: a
record counts once, because the checkpoint passes it; an object that was saved after the checkpoint
knows by its own tick what it has seen; what a transaction will do is gathered again from its begin,
which is never before the checkpoint's id.
Next: broker/core/log/recovery_objects.py
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from broker.core.log.numbered_producers import NumberedProducers, ProducerLimits
from broker.core.log.recovery_objects import SCHEMA_KEPT_MS, RecoveryObjects
from broker.core.naming import is_control_channel
from broker.core.segments.segment_table import DROPPED_MAX
from broker.core.txn.finished_txns import FinishedTxns
from broker.core.txn.txn_limits import TxnLimits
from broker.model.effect import Deleted, Effect, Inserted
from broker.model.ids import (
    TICK_LOGICAL_BITS,
    MessageId,
    SegmentId,
    TimeTick,
    TxnId,
    VChannelName,
)
from broker.model.message import BODY_TYPES, PREPARE_TXN, MessageType
from broker.model.producer_numbers import ProducedBatch
from broker.model.record import Record
from broker.model.snapshot import (
    SegmentState,
    Snapshot,
    SnapshotChange,
    VChannelState,
    WalCheckpoint,
)

EffectOf = Callable[[int, bytes], Effect | str | None]
"""What a message of this type and stored form means; a text says why it cannot be read."""

_OURS = frozenset({MessageType.CREATE_SEGMENT, MessageType.FLUSH})
"""The log writes them for collections only."""

_OF_COLLECTIONS = frozenset(
    {
        MessageType.INSERT,
        MessageType.DELETE,
        MessageType.DROP_COLLECTION,
        MessageType.CREATE_PARTITION,
        MessageType.DROP_PARTITION,
        MessageType.SCHEMA_CHANGE,
        MessageType.ALTER_COLLECTION,
        MessageType.TRUNCATE_COLLECTION,
        MessageType.MANUAL_FLUSH,
    }
)
"""On a vchannel without a collection these are nobody's business: many use a log as just that."""

_NEVER = WalCheckpoint(MessageId(0), TimeTick(0))

_Pending = dict[SegmentId | None, Inserted | Deleted]
"""What a transaction will do at its commit: rows by segment, and deletes."""


class RecoveryState:
    """See the module. `dirty`: records observed since the last `take`; `wrong`: what cannot be."""

    def __init__(
        self,
        snapshot: Snapshot,
        effect_of: EffectOf,
        txns: TxnLimits | None = None,
        producers: ProducerLimits | None = None,
    ) -> None:
        self.checkpoint = snapshot.checkpoint or _NEVER
        self.objects = RecoveryObjects(snapshot.vchannels, snapshot.segments)
        self.finished = FinishedTxns(txns or TxnLimits(), snapshot.finished, snapshot.finished_tick)
        self.producers = NumberedProducers(producers, snapshot.producers, snapshot.producers_tick)
        self.dirty = 0
        self.wrong = 0
        self._effect_of = effect_of
        self._pending: dict[TxnId, _Pending] = {}
        self._saved_producers_tick = self.producers.tick
        self._gone = _Removals()
        self._bury(self.checkpoint)

    def observe(self, record: Record) -> list[str]:
        """Take in the next record of the log; gives what about it cannot be, for people to see.

        Records up to the checkpoint are only looked at for transactions that end after it.
        """
        known = record.last_tick <= self.checkpoint.tick
        self.producers.replay(record)
        if record.txn is not None:
            wrong = self._observe_txn(record, record.txn.id, known=known)
        elif known:
            wrong = []
        else:
            wrong = self._observe_plain(record)
        if not known:
            self.checkpoint = WalCheckpoint(_confirmed_by(record), record.last_tick)
            self.dirty += 1
        self.wrong += len(wrong)
        return wrong

    def pending(self) -> dict[TxnId, tuple[Inserted | Deleted, ...]]:
        """What each transaction that is open will do at its commit; not in any snapshot."""
        return {txn_id: tuple(effects.values()) for txn_id, effects in self._pending.items()}

    def snapshot(self) -> Snapshot:
        """Everything, as of the checkpoint."""
        return Snapshot(
            checkpoint=self.checkpoint,
            vchannels=tuple(self.objects.vchannels.values()),
            segments=tuple(self.objects.segments.values()),
            finished=self.finished.all(),
            finished_tick=self.checkpoint.tick,
            producers=self.producers.runs(),
            producers_tick=self.checkpoint.tick,
        )

    def take(self) -> SnapshotChange:
        """What a store needs to come up to here; the next one begins where this one ends."""
        objects, gone = self.objects, self._gone
        change = SnapshotChange(
            checkpoint=self.checkpoint,
            vchannels=tuple([objects.vchannels[name] for name in objects.changed_vchannels]),
            segments=tuple([objects.segments[id] for id in objects.changed_segments]),
            gone_vchannels=tuple(
                [each for each in gone.vchannels if each not in objects.vchannels]
            ),
            gone_segments=tuple([it for it in gone.segments if it not in objects.segments]),
            finished=self.finished.all() if self.finished.changed else None,
            producers=self._changed_producers(),
        )
        objects.changed_vchannels.clear()
        objects.changed_segments.clear()
        self.finished.changed = False
        self._saved_producers_tick = self.producers.tick
        self._gone = _Removals()
        self.dirty = 0
        return change

    def saved(self, change: SnapshotChange) -> None:
        """The store has it: what is dropped or flushed, and known as such, leaves the memory."""
        self._bury(change.checkpoint)

    def renounce(self, snapshot: Snapshot) -> None:
        """Whatever this snapshot holds is to leave the store: it is of another log."""
        self._gone.vchannels += [each.name for each in snapshot.vchannels]
        self._gone.segments += [each.id for each in snapshot.segments]
        self.finished.changed = True
        self._saved_producers_tick = TimeTick(-1)

    # ---- observing --------------------------------------------------------------------------

    def _observe_plain(self, record: Record) -> list[str]:
        wrong: list[str] = []
        if not self._concerns(record):
            if record.kind in _OURS:
                wrong.append(f"tick {record.base_tick}: {record.vchannel} has no collection")
            return wrong
        if record.kind in BODY_TYPES:  # a record is saved whole or not at all: one step for all
            rows: _Pending = {}
            wrong = self._gather(record, rows)
            return wrong + self.objects.apply(
                record.vchannel, tuple(rows.values()), record.last_tick
            )
        for message in record.messages():
            effect = self._effect_of(record.kind, message.body)
            if isinstance(effect, str):
                wrong.append(f"message {message.id} cannot be read: {effect}")
            elif effect is not None:
                wrong += self.objects.apply(record.vchannel, (effect,), message.tick)
        return wrong

    def _observe_txn(self, record: Record, txn_id: TxnId, *, known: bool) -> list[str]:
        """A transaction whose begin was not met ended before the checkpoint, if at all."""
        if record.kind == MessageType.BEGIN_TXN:
            self._pending[txn_id] = {}
            return []
        if record.kind in BODY_TYPES:
            pending = self._pending.get(txn_id)
            return [] if pending is None else self._gather(record, pending)
        if record.kind == PREPARE_TXN:
            return []
        self.finished.learn(record)
        effects = self._pending.pop(txn_id, {})
        if known or record.kind != MessageType.COMMIT_TXN:
            return []
        return self.objects.apply(record.vchannel, tuple(effects.values()), record.last_tick)

    def _gather(self, record: Record, pending: _Pending) -> list[str]:
        wrong: list[str] = []
        if not self._concerns(record):
            return wrong
        for message in record.messages():
            effect = self._effect_of(record.kind, message.body)
            if isinstance(effect, str):
                wrong.append(f"message {message.id} cannot be read: {effect}")
            elif isinstance(effect, Inserted | Deleted):
                _add_up(pending, effect)
        return wrong

    def _concerns(self, record: Record) -> bool:
        """Whether it may mean something here. Copies on the control channel are for others.

        A flush of all concerns the whole pchannel, whatever vchannel it names.
        Batches of the native protocol are payloads of programs, which no collection counts.
        """
        if record.batch is not None:
            return False
        if record.kind == MessageType.FLUSH_ALL:
            return True
        if record.kind == MessageType.CREATE_COLLECTION:
            return not is_control_channel(record.vchannel)
        if record.kind in _OF_COLLECTIONS or record.kind in _OURS:
            return record.vchannel in self.objects.vchannels
        return False

    # ---- snapshots --------------------------------------------------------------------------

    def _changed_producers(self) -> tuple[ProducedBatch, ...] | None:
        return None if self.producers.tick == self._saved_producers_tick else self.producers.runs()

    def _bury(self, saved: WalCheckpoint) -> None:
        """Let go of what is at its end and stored as such; replays begin behind it."""
        objects, gone = self.objects, self._gone
        for name in self._dropped_long_ago(saved.tick):  # what changed since has a later tick
            del objects.vchannels[name]
            gone.vchannels.append(name)
        for id, segment in list(objects.segments.items()):
            ended = segment.state is SegmentState.FLUSHED and segment.tick <= saved.tick
            if ended and id not in objects.changed_segments:
                objects.forget_segment(id)
                gone.segments.append(id)

    def _dropped_long_ago(self, tick: TimeTick) -> list[VChannelName]:
        """A dropped vchannel is known for as long as rows may be late for it, if they are few."""
        dropped = [
            (each.tick, each.name)
            for each in self.objects.vchannels.values()
            if each.state is VChannelState.DROPPED and each.tick <= tick
        ]
        old = tick - (SCHEMA_KEPT_MS << TICK_LOGICAL_BITS)
        too_many = max(0, len(dropped) - DROPPED_MAX)
        dropped.sort()
        return [name for at, (ended, name) in enumerate(dropped) if at < too_many or ended <= old]


@dataclass(slots=True)
class _Removals:
    """What the store still has and nobody needs."""

    vchannels: list[VChannelName] = field(default_factory=list)
    segments: list[SegmentId] = field(default_factory=list)


def _confirmed_by(record: Record) -> MessageId:
    """The last confirmed id of its last message."""
    if record.last_confirmed_id == record.base_id:
        return MessageId(record.next_id - 1)
    return record.last_confirmed_id


def _add_up(pending: _Pending, effect: Inserted | Deleted) -> None:
    key = effect.segment_id if isinstance(effect, Inserted) else None
    before = pending.get(key)
    if isinstance(before, Inserted) and isinstance(effect, Inserted):
        rows, size_bytes = before.rows + effect.rows, before.size_bytes + effect.size_bytes
        effect = replace(effect, rows=rows, size_bytes=size_bytes)
    elif before is not None:
        effect = replace(effect, rows=before.rows + effect.rows)
    pending[key] = effect
