"""Follows the log of one pchannel and saves the snapshot that a restart continues from.

A snapshot is saved every `snapshot_period_s`, sooner after `snapshot_records` or with a new segment
or collection, always between two records. This actor polls the tail, so no append waits for it and
no message costs a hop.

Why it replays what the Appender has already read: its state then depends on the stored snapshot and
the log alone. Killed at any moment, even between two writes of a snapshot, it builds the same one.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import assert_never

import anyio

from actors import Actor, Context, Envelope
from broker.model.ids import PChannelName
from broker.model.record import Record
from broker.model.snapshot import SnapshotChange
from broker.node.recovery.replay import READ_BYTES, Replay, begin, warn_inconsistent
from broker.node.state.beat_phase import beat_offset_s
from broker.node.state.node_limits import NodeLimits
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.meta import MetaError
from broker.ports.recovery_store import SnapshotClaim, Superseded
from broker.ports.wal import Corrupt, OutOfRange, WalError

RETRY_FIRST_S = 0.01
RETRY_MAX_S = 1.0
RECORDS_A_TURN = 2000
"""Then the other actors get a turn: after a restart there may be much to catch up with."""

notes = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class FollowLog:
    """A timer: read what was appended since the last look."""


@dataclass(frozen=True, slots=True)
class SaveAgain:
    """A timer: the store refused the snapshot; retry the same one."""


RecoveryMessage = FollowLog | SaveAgain
FOLLOW_LOG = FollowLog()
SAVE_AGAIN = SaveAgain()


class Recovery(Actor[RecoveryMessage]):
    """See the module."""

    _context: Context[RecoveryMessage]
    _claim: SnapshotClaim
    _opened: OpenChannel

    def __init__(self, name: PChannelName, node: NodeRuntime) -> None:
        self._name = name
        self._node = node
        self._replay: Replay | None = None
        self._change: SnapshotChange | None = None
        self._saves = self._failures = self._in_a_row = 0
        self._saved_s = 0.0

    @property
    def _limits(self) -> NodeLimits:
        return self._node.limits

    async def started(self, context: Context[RecoveryMessage]) -> None:
        """Start by a timer: the actors beside this one may still be starting."""
        self._context = context
        context.after(0.0, FOLLOW_LOG)

    async def receive(self, batch: Sequence[Envelope[RecoveryMessage]]) -> None:
        """Follow the log, and save when a snapshot is due."""
        for envelope in batch:
            match envelope.message:
                case FollowLog():
                    await self._look()
                case SaveAgain():
                    await self._save()
                case _:
                    assert_never(envelope.message)

    async def stopped(self) -> None:
        """Save once more, within `snapshot_flush_s`, so that the next owner replays little."""
        if self._replay is None:
            return
        # The log may close meanwhile (WalError). What is not saved now is replayed.
        with anyio.move_on_after(self._limits.snapshot_flush_s), suppress(WalError):
            while not await self._follow(self._replay):
                pass
            while await self._unsaved():
                await self._context.clock.sleep(self._backoff_s())

    def statistics(self) -> Mapping[str, int | float | str]:
        """Progress, saves, and how many inconsistent records the log holds."""
        if self._replay is None:
            return {}
        state, saved = self._replay.state, self._opened.snapshot.checkpoint
        return {
            "checkpoint_id": saved.id if saved else 0,
            "checkpoint_tick": saved.tick if saved else 0,
            "behind": self._opened.tail.next_id - self._replay.next_id,
            "dirty": state.dirty,
            "saves": self._saves,
            "save_failures": self._failures,
            "inconsistent": state.wrong,
            "vchannels": len(state.objects.vchannels),
            "segments": len(state.objects.segments),
            "finished_txns": len(state.finished.all()),
        }

    async def _unsaved(self) -> bool:
        """Save what is new; return whether the store refused it."""
        if self._replay is not None and (self._change or self._replay.state.dirty):
            await self._save()
        return self._change is not None

    async def _look(self) -> None:
        look_s = self._limits.snapshot_look_s
        delay_s: float | None = None
        try:
            replay = self._replay or await self._claim_snapshot()
            if replay is not None:
                if not await self._follow(replay):
                    delay_s = 0.0
                elif self._change is None and self._is_due(replay):
                    await self._save()
                    delay_s = look_s  # the least time between two snapshots
        except WalError as error:  # the channel is closing or reopening
            notes.debug("%s: cannot follow the log now: %s", self._name, error)
        if delay_s is None:
            offset_s = beat_offset_s(self._name, self._limits.tick_interval_s)
            self._context.on_beat(look_s, FOLLOW_LOG, offset_s, once=True)
        else:
            self._context.after(delay_s, FOLLOW_LOG)

    async def _claim_snapshot(self) -> Replay | None:
        """Claim the snapshot and start where it ends; None when that is not possible yet."""
        opened = self._node.open_channels.find(self._name)
        if opened is None:
            return None
        try:
            claim = await self._node.recovery.claim(self._name, opened.channel.term)
        except MetaError as error:
            self._save_failed(error)
            return None
        except Superseded as error:
            self._superseded(error)
            return None
        self._in_a_row = 0
        self._opened, self._claim = opened, claim
        self._saved_s = self._context.clock.monotonic_s()
        headers = self._node.headers
        self._replay = begin(self._name, claim, opened.log.bounds(), headers, self._limits)
        return self._replay

    async def _follow(self, replay: Replay) -> bool:
        """Observe what is readable; False when another turn is needed for the rest."""
        seen = 0
        # The tail ends at the last published group: a snapshot never holds what is not durable.
        while replay.next_id < self._opened.tail.next_id:
            if seen >= RECORDS_A_TURN:
                return False
            records = self._opened.tail.read(replay.next_id)
            if records is None:
                records = await self._read_back(replay)
            records = records[: RECORDS_A_TURN - seen]
            seen += len(records)
            warn_inconsistent(replay.observe(records))
            if records:
                self._opened.snapshot.observed_tick = records[-1].last_tick
        return True

    async def _read_back(self, replay: Replay) -> Sequence[Record]:
        """Records evicted from the tail. Damage is stepped over, as when a log is opened."""
        log, closed = self._opened.log, self._opened.tail.closed
        try:
            found = await log.read(replay.next_id, READ_BYTES)
            if not found:  # a restored log may end where space was given back
                replay.next_id = self._opened.tail.next_id
            return found
        except OutOfRange:
            replay.next_id = log.bounds().first_id
        except Corrupt as damage:
            notes.warning(
                "skipping damaged records, what they said is lost to the snapshot: %s", damage
            )
            before = replay.next_id < closed.last_confirmed_id
            # From the last confirmed id on, every transaction still open is seen from its begin.
            replay.next_id = closed.last_confirmed_id if before else self._opened.tail.next_id
        return ()

    def _is_due(self, replay: Replay) -> bool:
        dirty = replay.state.dirty
        waited_s = self._context.clock.monotonic_s() - self._saved_s
        if dirty >= self._limits.snapshot_records:
            return True
        # The master lists collections and segments from the snapshots: what is new is saved sooner.
        news = replay.state.objects.has_news
        period_s = self._limits.snapshot_look_s if news else self._limits.snapshot_period_s
        return dirty > 0 and waited_s >= period_s

    async def _save(self) -> None:
        """Save once. A change the store refused is retried unchanged before any newer one.

        The failed try may have stored a part of it, which only the same change completes.
        """
        assert self._replay is not None
        state = self._replay.state
        if self._change is None:
            state.purges.forget_below(self._opened.log.bounds().first_id)
            state.compactions.forget_removed(self._opened.log.bounds().removed_tick)
        change = self._change = self._change or state.take()
        try:
            await self._claim.save(change)
        except MetaError as error:
            self._save_failed(error)
            self._context.after(self._backoff_s(), SAVE_AGAIN)
            return
        except Superseded as error:
            self._superseded(error)
            return
        self._change = None
        self._in_a_row = 0
        self._saves += 1
        self._saved_s = self._context.clock.monotonic_s()
        state.saved(change)
        # Only once it is stored: from here on retention may drop what lies before it.
        self._opened.snapshot.checkpoint = change.checkpoint

    def _save_failed(self, error: MetaError) -> None:
        self._failures += 1
        self._in_a_row += 1
        if self._in_a_row == 1:
            notes.warning("%s: cannot save the snapshot, retrying: %s", self._name, error)

    def _backoff_s(self) -> float:
        return min(RETRY_MAX_S, RETRY_FIRST_S * float(2 ** min(self._in_a_row, 10)))

    def _superseded(self, error: Superseded) -> None:
        """Stop: a newer owner has claimed the snapshot."""
        notes.warning("%s", error)
        self._replay = self._change = None
        self._context.stop()
