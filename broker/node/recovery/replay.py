"""Replays a log into the state of a pchannel, from a snapshot's checkpoint or from its beginning.

A damaged snapshot is reported and ignored: the whole log is replayed instead. Damage in the log is
stepped over, because a log must open. Transactions open there may have lost messages, so those that
do not end further on are rolled back.
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
    """The state of a log up to `next_id`."""

    state: RecoveryState
    next_id: MessageId

    def observe(self, records: Sequence[Record]) -> list[str]:
        """Apply records; return what in them is inconsistent."""
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
    """The replay that continues a claimed snapshot; logs an error for one that is not usable."""
    for damage in claim.damage:
        notes.error("%s: part of the snapshot is unusable, replaying the log: %s", name, damage)
    snapshot = claim.snapshot
    at = snapshot.checkpoint
    if at is not None and (at.id > bounds.next_id or at.tick > bounds.last_tick):
        notes.error(
            "%s: ignoring the snapshot: it reaches id %s and tick %s, the log only %s and %s;"
            " it belongs to another log, or this one lost its end",
            *(name, at.id, at.tick, bounds.next_id, bounds.last_tick),
        )
        state = RecoveryState(Snapshot(), effect_of(headers), limits.txns, limits.producers)
        state.renounce(snapshot)
        return Replay(state, bounds.first_id)
    state = RecoveryState(snapshot, effect_of(headers), limits.txns, limits.producers)
    return Replay(state, max(bounds.first_id, state.checkpoint.id))


async def read_through(replay: Replay, log: Log, transactions: Transactions) -> None:
    """Replay to the end of the log; `transactions` learns which are open or ended."""
    bounds = log.bounds()
    needed = await _oldest_open(log, bounds)
    doubtful: set[TxnId] = set()
    while replay.next_id < bounds.next_id:
        try:
            records = await log.read(replay.next_id, READ_BYTES)
        except Corrupt as damage:
            notes.warning(
                "skipping damaged records, what they said is lost to the snapshot: %s", damage
            )
            # Behind `needed` every open transaction is whole; before it only the snapshot loses.
            if replay.next_id < needed:
                replay.next_id = needed
            else:
                doubtful |= {view.context.id for view in transactions.views()}
                replay.next_id = await _behind(log, replay.next_id, bounds.next_id)
            continue
        if not records:
            break  # a restored log may end where space was given back
        for record in records:
            transactions.replay(record)
        transactions.remember(())  # `state` knows which ended and how long that matters
        transactions.stored()
        warn_inconsistent(replay.observe(records))
    transactions.remember(replay.state.finished.all())
    transactions.abort(doubtful)


def effect_of(headers: Headers) -> EffectOf:
    """The port as a function that returns, not raises, why a header cannot be read."""

    def read(kind: int, stored: bytes, *, of_batch: bool = False) -> Effect | str | None:
        try:
            return (headers.batch_effect if of_batch else headers.effect)(kind, stored)
        except BadHeader as error:
            return str(error)

    return read


def stage_of(headers: Headers) -> StageOf:
    """The port as a function; a begin whose header cannot be read belongs to no stage."""

    def read(stored: bytes) -> StageName | None:
        try:
            return headers.stage(stored)
        except BadHeader as error:
            warn_inconsistent([str(error)])
            return None

    return read


def warn_inconsistent(wrong: Sequence[str]) -> None:
    """Log one line for any number of inconsistencies."""
    if wrong:
        notes.warning("the log is inconsistent: %s (and %s more)", wrong[0], len(wrong) - 1)


async def _oldest_open(log: Log, bounds: LogBounds) -> MessageId:
    if bounds.first_id == bounds.next_id:
        return bounds.next_id
    try:
        newest = await log.read(MessageId(bounds.next_id - 1), 1)
    except Corrupt:
        newest = ()
    # If the newest record does not tell, transactions are looked for in the whole log.
    return max([bounds.first_id, *[it.last_confirmed_id for it in newest[-1:]]])


async def _behind(log: Log, damaged_id: MessageId, next_id: MessageId) -> MessageId:
    """The id behind damage from which the log is readable again, or its end.

    Galloping, then binary search: damage does not say how many messages it covers. Several damaged
    places close together are stepped over at once.
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
