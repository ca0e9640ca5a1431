"""Recovers the state of a pchannel before its Appender writes: the snapshot plus the log after it.

It claims the snapshot, so that no earlier owner can change it, and replays the log from the
checkpoint. Without a usable snapshot it replays the whole log and saves the result.
"""

import logging
from dataclasses import dataclass

from broker.core.compaction.compaction_table import CompactionTable
from broker.core.groups.group_table import GroupTable
from broker.core.log.log_recovery import RecoveryState
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.segments.segment_recovery import recovered_segments
from broker.core.segments.segment_table import SegmentTable
from broker.core.space.purges import PurgeTable
from broker.core.txn.transactions import Transactions
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.model.snapshot import WalCheckpoint
from broker.node.recovery.replay import Replay, begin, read_through, stage_of
from broker.node.state.channel_groups import ChannelGroups
from broker.node.state.node_limits import NodeLimits
from broker.node.state.node_runtime import NodeRuntime
from broker.ports.meta import MetaError
from broker.ports.recovery_store import SnapshotClaim, Superseded
from broker.ports.wal import Fenced, Log

notes = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class RecoveredChannel:
    """A pchannel as the last writer left it. `saved`: the checkpoint where a restart begins."""

    transactions: Transactions
    segments: SegmentTable
    producers: NumberedProducers
    groups: ChannelGroups
    purges: PurgeTable
    compactions: CompactionTable
    saved: WalCheckpoint | None


async def recover_channel(name: PChannelName, log: Log, node: NodeRuntime) -> RecoveredChannel:
    """Claim the snapshot and replay the log. Raises what the log raises.

    Fenced when a newer owner has claimed the snapshot. Refused(INNER) when the metadata store does
    not answer: the log alone is not enough, its beginning may have been truncated.
    """
    # Before the replay: from here on an earlier owner cannot change the snapshot under us.
    try:
        claim = await node.recovery.claim(name, log.term)
    except Superseded as error:
        raise Fenced(name, log.term, error.newer) from error
    except MetaError as error:
        cause = f"{name}: cannot read the snapshot: {error}; retry"
        raise Refused(StreamingCode.INNER, cause) from error
    replay = begin(name, claim, log.bounds(), node.headers, node.limits)
    known = replay.state.checkpoint
    transactions = Transactions(node.limits.txns, stage_of(node.headers))
    await read_through(replay, log, transactions)
    state = replay.state
    return RecoveredChannel(
        transactions=transactions,
        segments=_segment_table(state, transactions, node.limits),
        producers=state.producers,
        groups=ChannelGroups(_groups(state, transactions), transactions),
        purges=state.purges,
        compactions=state.compactions,
        # Without a checkpoint the whole log was replayed: save one, or the next restart does it
        # again.
        saved=known if known.tick else await _saved(name, claim, replay),
    )


def _groups(state: RecoveryState, transactions: Transactions) -> GroupTable:
    """The groups, with what the transactions hold that are open still."""
    lives = {view.context.id for view in transactions.views()}
    for txn_id in [it for it in state.groups.holding if it not in lives]:
        state.groups.end_txn(txn_id, None)  # its end is lost to damage, or it is
    return state.groups


def _segment_table(
    state: RecoveryState, transactions: Transactions, limits: NodeLimits
) -> SegmentTable:
    pending = {
        txn_id: effects
        for txn_id, effects in state.pending().items()
        if transactions.find(txn_id) is not None
    }
    return recovered_segments(
        tuple(state.objects.vchannels.values()),
        tuple(state.objects.segments.values()),
        pending,
        limits.segments,
        required=limits.require_collection,
    )


async def _saved(name: PChannelName, claim: SnapshotClaim, replay: Replay) -> WalCheckpoint | None:
    """Save the first snapshot; None when there is none. On failure the Recovery actor retries.

    A stored snapshot of another log must be replaced now, or the open fails: once this log has
    grown past that snapshot's positions, the mismatch could not be detected any more.
    """
    change = replay.state.take()
    if not change.checkpoint.tick and claim.snapshot.checkpoint is None:
        return None  # a new log
    try:
        await claim.save(change)
    except (MetaError, Superseded) as error:
        if claim.snapshot.checkpoint is not None:
            cause = f"{name}: cannot replace the snapshot of another log: {error}; retry"
            raise Refused(StreamingCode.INNER, cause) from error
        notes.warning("%s: cannot save the first snapshot: %s", name, error)
        return None
    return change.checkpoint
