"""Reads a log into the state that a restart goes on from: all of it, or what a snapshot has not.

It only reads. A snapshot is a help and not a condition: what of it is damaged is told loudly, and
then the whole log is read. Damage in the log itself is stepped over: a log must open. Transactions
that are open there may have lost something, so whichever does not end further on is rolled back.
Next: broker/core/log/log_recovery.py
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.log.log_recovery import EffectOf, RecoveryState
from broker.core.txn.transactions import StageOf, Transactions
from broker.model.effect import Effect
from broker.model.ids import MessageId, PChannelName, TxnId
from broker.model.record import Record
from broker.model.snapshot import Snapshot
from broker.model.stage import StageName
from broker.node.state.node_limits import NodeLimits
from broker.ports.headers import BadHeader, Headers
from broker.ports.recovery_store import SnapshotClaim
from broker.ports.wal import Corrupt, Log, LogBounds

notes = logging.getLogger("broker.node")

READ_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Replay:
    """How far a log has been read into `state`: everything below `next_id`."""

    state: RecoveryState
    next_id: MessageId

    def observe(self, records: Sequence[Record]) -> list[str]:
        """Take them in, those below `next_id` left out; gives what about them cannot be."""
        wrong: list[str] = []
        for record in records:
            wrong += self.state.observe(record)
            self.next_id = record.next_id
        return wrong


def begin(
    name: PChannelName,
    claim: SnapshotClaim,
    bounds: LogBounds,
    headers: Headers,
    limits: NodeLimits,
) -> Replay:
    """Where to go on from what was claimed. Says aloud what of it is of no use."""
    for damage in claim.damage:
        notes.error("%s: part of the snapshot is of no use, the log is read: %s", name, damage)
    snapshot = claim.snapshot
    at = snapshot.checkpoint
    if at is not None and (at.id > bounds.next_id or at.tick > bounds.last_tick):
        notes.error(
            "%s: the snapshot is of another log, or this one has lost its end; it is not used:"
            " it goes to id %s and tick %s, the log to %s and %s",
            *(name, at.id, at.tick, bounds.next_id, bounds.last_tick),
        )
        state = RecoveryState(Snapshot(), effect_of(headers), limits.txns, limits.producers)
        state.renounce(snapshot)
        return Replay(state, bounds.first_id)
    state = RecoveryState(snapshot, effect_of(headers), limits.txns, limits.producers)
    return Replay(state, max(bounds.first_id, state.checkpoint.id))


async def read_through(replay: Replay, log: Log, transactions: Transactions) -> None:
    """Read to the end of the log, learning who is open and who ended, too."""
    bounds = log.bounds()
    needed = await _oldest_open(log, bounds)
    doubtful: set[TxnId] = set()
    while replay.next_id < bounds.next_id:
        try:
            records = await log.read(replay.next_id, READ_BYTES)
        except Corrupt as damage:
            notes.warning("what came before the damage is not known any more: %s", damage)
            if replay.next_id < needed:
                replay.next_id = needed
            else:
                doubtful |= {view.context.id for view in transactions.views()}
                replay.next_id = await _behind(log, replay.next_id, bounds.next_id)
            continue
        for record in records:
            transactions.replay(record)
        transactions.remember(())  # the state knows who ended, and for how long that matters
        transactions.stored()
        warn_inconsistent(replay.observe(records))
    transactions.remember(replay.state.finished.all())
    transactions.abort(doubtful)


def effect_of(headers: Headers) -> EffectOf:
    """The port as the state wants it: what cannot be read is told and not raised."""

    def read(kind: int, stored: bytes) -> Effect | str | None:
        try:
            return headers.effect(kind, stored)
        except BadHeader as error:
            return str(error)

    return read


def stage_of(headers: Headers) -> StageOf:
    """The port as transactions want it. A begin that cannot be read was of no stage."""

    def read(stored: bytes) -> StageName | None:
        try:
            return headers.stage(stored)
        except BadHeader as error:
            warn_inconsistent([str(error)])
            return None

    return read


def warn_inconsistent(wrong: Sequence[str]) -> None:
    """What in the log cannot be is one line for people, however much of it there is."""
    if wrong:
        notes.warning("%s (and %s more that cannot be)", wrong[0], len(wrong) - 1)


async def _oldest_open(log: Log, bounds: LogBounds) -> MessageId:
    if bounds.first_id == bounds.next_id:
        return bounds.next_id
    try:
        (newest,) = (await log.read(MessageId(bounds.next_id - 1), 1))[-1:]
    except Corrupt:
        return bounds.first_id
    return max(bounds.first_id, newest.last_confirmed_id)


async def _behind(log: Log, damaged_id: MessageId, next_id: MessageId) -> MessageId:
    """An id right behind damage, from which the log can be read again; its end when there is none.

    Found by larger and larger steps and then by halving, because damage does not say how many
    messages it took. Where a log has more of it nearby, all of that is stepped over at once.
    """
    bad, step = damaged_id, 1
    while bad + step < next_id and not await _is_readable(log, MessageId(bad + step)):
        bad, step = MessageId(bad + step), 2 * step
    good = min(next_id, MessageId(bad + step))
    while good - bad > 1:
        middle = MessageId((bad + good) // 2)
        if await _is_readable(log, middle):
            good = middle
        else:
            bad = middle
    return good


async def _is_readable(log: Log, message_id: MessageId) -> bool:
    try:
        await log.read(message_id, 1)
    except Corrupt:
        return False
    return True
