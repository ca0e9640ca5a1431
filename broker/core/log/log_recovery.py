"""Replays the log of one pchannel into the state that the next owner starts from.

The state: a checkpoint, the vchannels and segments, the pending effects of open transactions, the
transactions that ended recently, and the batches of numbered producers. It is fed with records in
log order, starting where an earlier snapshot says, and produces snapshots.

Why replay is idempotent, even from a snapshot that was written only in part: a record counts once,
because the checkpoint moves past it; an object saved after the checkpoint carries the tick of the
newest message it includes; the effects of a transaction are collected again from its begin, which
is never before the checkpoint's id.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from broker.core.compaction.compaction_table import CompactionTable
from broker.core.groups.group_table import GroupTable
from broker.core.log.numbered_producers import NumberedProducers, ProducerLimits
from broker.core.log.recovery_objects import SCHEMA_KEPT_MS, RecoveryObjects
from broker.core.naming import is_control_channel
from broker.core.segments.batch_rows import stored_rows
from broker.core.segments.segment_table import DROPPED_MAX
from broker.core.space.purges import PurgeTable
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
from broker.model.message import (
    BODY_TYPES,
    COMPACTION,
    GROUP_CHANGE,
    PREPARE_TXN,
    PURGE,
    MessageType,
)
from broker.model.producer_numbers import ProducedBatch
from broker.model.record import Record
from broker.model.snapshot import (
    SegmentState,
    Snapshot,
    SnapshotChange,
    VChannelState,
    WalCheckpoint,
)


class EffectOf(Protocol):
    """Decodes the effect of a message from its type and stored form; a text is the error.

    `of_batch`: of a whole batch, from its shared properties; zeros where they say nothing.
    """

    def __call__(
        self, kind: int, stored: bytes, *, of_batch: bool = False
    ) -> Effect | str | None: ...


_OURS = frozenset({MessageType.CREATE_SEGMENT, MessageType.FLUSH})
"""Written by the log itself, for collections only."""

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
"""Ignored on a vchannel without a collection: many programs use vchannels as plain logs."""

_NEVER = WalCheckpoint(MessageId(0), TimeTick(0))

_Pending = dict[SegmentId, Inserted | Deleted]
"""The effects of a transaction at its commit, by the segment that took them."""


class RecoveryState:
    """The replayed state. `dirty`: records since the last `take`; `wrong`: contradictions found."""

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
        self.groups = GroupTable(snapshot.groups)
        self.purges = PurgeTable(snapshot.purges)
        self.compactions = CompactionTable(snapshot.compacted)
        self.dirty = 0
        self.wrong = 0
        self._effect_of = effect_of
        self._pending: dict[TxnId, _Pending] = {}
        self._saved_producers_tick = self.producers.tick
        self._gone = _Removals()
        # The snapshot may still hold ended objects: they leave the store with the change after the
        # one that ended them, and a crash may come between.
        self._bury(self.checkpoint)

    def observe(self, record: Record) -> list[str]:
        """Apply the next record of the log; returns its contradictions, as texts for people.

        Of records up to the checkpoint only transactions that end after it are of interest.
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
            # The last confirmed id: a replay from there sees every open transaction from its begin.
            self.checkpoint = WalCheckpoint(_confirmed_by(record), record.last_tick)
            self.dirty += 1
        self.wrong += len(wrong)
        return wrong

    def pending(self) -> dict[TxnId, tuple[Inserted | Deleted, ...]]:
        """The effects that open transactions have at their commit; not part of snapshots."""
        return {txn_id: tuple(effects.values()) for txn_id, effects in self._pending.items()}

    def snapshot(self) -> Snapshot:
        """The whole state as of the checkpoint."""
        return Snapshot(
            checkpoint=self.checkpoint,
            vchannels=tuple(self.objects.vchannels.values()),
            segments=tuple(self.objects.segments.values()),
            finished=self.finished.all(),
            finished_tick=self.checkpoint.tick,
            producers=self.producers.runs(),
            producers_tick=self.checkpoint.tick,
            groups=self.groups.snapshots(),
            purges=self.purges.all(),
            compacted=self.compactions.all(),
        )

    def take(self) -> SnapshotChange:
        """The change since the last call, for the store."""
        objects, gone = self.objects, self._gone
        change = SnapshotChange(
            checkpoint=self.checkpoint,
            vchannels=tuple([objects.vchannels[name] for name in objects.changed_vchannels]),
            segments=tuple([objects.segments[id] for id in objects.changed_segments]),
            gone_vchannels=tuple(
                [each for each in gone.vchannels if each not in objects.vchannels]
            ),
            # One that was created again since is in the change as an object; do not remove it.
            gone_segments=tuple([it for it in gone.segments if it not in objects.segments]),
            finished=self.finished.all() if self.finished.changed else None,
            producers=self._changed_producers(),
            groups=self.groups.changes(),
            gone_groups=tuple(self.groups.gone),
            purges=self.purges.changes(),
            gone_purges=tuple(self.purges.gone),
            compacted=self.compactions.changes(),
            gone_compacted=tuple(self.compactions.gone),
        )
        objects.clear_changes()
        self.groups.clear_changes()
        self.purges.clear_changes()
        self.compactions.clear_changes()
        self.finished.changed = False
        self._saved_producers_tick = self.producers.tick
        self._gone = _Removals()
        self.dirty = 0
        return change

    def saved(self, change: SnapshotChange) -> None:
        """The store has saved the change: forget objects that it knows as dropped or flushed."""
        self._bury(change.checkpoint)

    def renounce(self, snapshot: Snapshot) -> None:
        """Remove this snapshot's objects from the store: they belong to another log."""
        self._gone.vchannels += [each.name for each in snapshot.vchannels]
        self._gone.segments += [each.id for each in snapshot.segments]
        self.groups.gone |= {each.key for each in snapshot.groups}
        self.purges.gone |= {each.vchannel for each in snapshot.purges}
        self.compactions.gone |= {each.vchannel for each in snapshot.compacted}
        self.finished.changed = True
        # Unlike any tick, so that the next change replaces the stored ones, even by none.
        self._saved_producers_tick = TimeTick(-1)

    # ---- observing --------------------------------------------------------------------------

    def _observe_plain(self, record: Record) -> list[str]:
        wrong: list[str] = []
        if not self._concerns(record):
            if record.kind in _OURS:
                wrong.append(f"tick {record.base_tick}: {record.vchannel} has no collection")
            return wrong
        if record.kind in BODY_TYPES:  # a record is stored whole or not at all, so apply it at once
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
        """A transaction whose begin was not replayed had ended before the checkpoint."""
        if record.kind == MessageType.BEGIN_TXN:
            self._pending[txn_id] = {}
            return []
        if record.kind in BODY_TYPES:
            pending = self._pending.get(txn_id)
            return [] if pending is None else self._gather(record, pending)
        if record.kind == PREPARE_TXN:
            return []
        if record.kind == GROUP_CHANGE:
            # Below the checkpoint for the sake of transactions that end above it.
            wrong = self.groups.observe(record, self._pending.keys(), known=known)
            return [] if known else wrong
        if record.kind == PURGE:
            return [] if known else self.purges.observe(record)
        if record.kind == COMPACTION:
            return [] if known else self.compactions.observe(record)
        # Below the checkpoint, too: these skip by their own ticks what they know.
        self.finished.learn(record)
        committed = record.kind == MessageType.COMMIT_TXN
        self.groups.end_txn(txn_id, record.last_tick if committed else None)
        effects = self._pending.pop(txn_id, {})
        if known or not committed:
            return []
        return self.objects.apply(record.vchannel, tuple(effects.values()), record.last_tick)

    def _gather(self, record: Record, pending: _Pending) -> list[str]:
        wrong: list[str] = []
        if not self._concerns(record):
            return wrong
        for message_id, tick, effect in self._rows_in(record):
            if isinstance(effect, str):
                wrong.append(f"message {message_id} cannot be read: {effect}")
            elif isinstance(effect, Deleted):
                # Now, not at the commit: the writer may have created the next segment by then.
                taking = self.objects.taking_deletes(VChannelName(record.vchannel), tick)
                if taking:
                    _add_up(pending, replace(effect, segment_id=taking))
            elif isinstance(effect, Inserted) and not self._is_older(effect, record):
                _add_up(pending, effect)
        return wrong

    def _is_older(self, rows: Inserted, record: Record) -> bool:
        """Whether rows without a segment came before the collection, which ended no transaction."""
        if rows.segment_id:
            return False
        found = self.objects.vchannels.get(VChannelName(record.vchannel))
        return found is not None and found.created_tick > record.last_tick

    def _rows_in(self, record: Record) -> Iterator[tuple[MessageId, TimeTick, Effect | str | None]]:
        """The effects of a record of rows, each with its id and tick; a batch has one."""
        if record.batch is None:
            for message in record.messages():
                yield message.id, message.tick, self._effect_of(record.kind, message.body)
            return
        effect = self._effect_of(record.kind, record.batch.properties, of_batch=True)
        if isinstance(effect, Inserted | Deleted):
            effect = stored_rows(effect, record.sizes, record.batch)
        yield record.base_id, record.base_tick, effect

    def _concerns(self, record: Record) -> bool:
        """Whether the record may affect collections or segments of this pchannel.

        Copies on the control channel do not: they inform watchers of all collections. A FlushAll
        covers the whole pchannel, whatever vchannel it names. A batch holds rows, or payloads that
        no collection counts.
        """
        if record.batch is not None and record.kind not in BODY_TYPES:
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
        """Forget ended objects that are saved as such: replays begin after their end."""
        objects, gone = self.objects, self._gone
        for name in self._dropped_long_ago(saved.tick):  # changed later: has a tick above it
            del objects.vchannels[name]
            gone.vchannels.append(name)
        for id, segment in list(objects.segments.items()):
            ended = segment.state is SegmentState.FLUSHED and segment.tick <= saved.tick
            if ended and id not in objects.changed_segments:
                objects.forget_segment(id)
                gone.segments.append(id)

    def _dropped_long_ago(self, tick: TimeTick) -> list[VChannelName]:
        """A dropped vchannel is remembered while late rows may arrive for it, up to a number."""
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
    """Objects that the store still has and that are not needed any more."""

    vchannels: list[VChannelName] = field(default_factory=list)
    segments: list[SegmentId] = field(default_factory=list)


def _confirmed_by(record: Record) -> MessageId:
    """The last confirmed id of its last message."""
    if record.last_confirmed_id == record.base_id:
        return MessageId(record.next_id - 1)
    return record.last_confirmed_id


def _add_up(pending: _Pending, effect: Inserted | Deleted) -> None:
    before = pending.get(effect.segment_id)
    if before is not None:
        rows, size_bytes = before.rows + effect.rows, before.size_bytes + effect.size_bytes
        effect = replace(effect, rows=rows, size_bytes=size_bytes)
    pending[effect.segment_id] = effect
