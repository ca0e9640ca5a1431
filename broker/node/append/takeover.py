"""What an Appender must know before it writes: what the snapshot says, and the log after it.

It claims the snapshot, so that no earlier owner changes it any more, and reads the log from its
checkpoint on. Without a snapshot that is of use, it reads the whole log, and saves what it found.
Next: broker/node/recovery/replay.py
"""

import logging
from dataclasses import dataclass

from broker.core.log.log_recovery import RecoveryState
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.segments.segment_recovery import recovered_segments
from broker.core.segments.segment_table import SegmentTable
from broker.core.txn.transactions import Transactions
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.model.snapshot import WalCheckpoint
from broker.node.recovery.replay import Replay, begin, read_through, stage_of
from broker.node.state.node_limits import NodeLimits
from broker.node.state.node_runtime import NodeRuntime
from broker.ports.meta import MetaError
from broker.ports.recovery_store import SnapshotClaim, Superseded
from broker.ports.wal import Fenced, Log

notes = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class RecoveredChannel:
    """A pchannel as the last writer left it. `saved` is the checkpoint that a restart begins at."""

    transactions: Transactions
    shards: SegmentTable
    producers: NumberedProducers
    saved: WalCheckpoint | None


async def taken_over(name: PChannelName, log: Log, node: NodeRuntime) -> RecoveredChannel:
    """Learn all of it. Raises what the log raises; Fenced when somebody newer has claimed it.

    Refused(INNER) when the store is away: its answer is needed, a log may have been truncated.
    """
    try:
        claim = await node.recovery.claim(name, log.term)
    except Superseded as error:
        raise Fenced(name, log.term, error.newer) from error
    except MetaError as error:
        cause = f"{name}: what was remembered cannot be read now: {error}"
        raise Refused(StreamingCode.INNER, cause) from error
    replay = begin(name, claim, log.bounds(), node.headers, node.limits)
    known = replay.state.checkpoint
    transactions = Transactions(node.limits.txns, stage_of(node.headers))
    await read_through(replay, log, transactions)
    state = replay.state
    return RecoveredChannel(
        transactions=transactions,
        shards=_shards(state, transactions, node.limits),
        producers=state.producers,
        saved=known if known.tick else await _saved(name, claim, replay),
    )


def _shards(state: RecoveryState, transactions: Transactions, limits: NodeLimits) -> SegmentTable:
    pending = {
        txn_id: (session.vchannel, effects)
        for txn_id, effects in state.pending().items()
        if (session := transactions.find(txn_id)) is not None
    }
    return recovered_segments(
        tuple(state.objects.vchannels.values()),
        tuple(state.objects.segments.values()),
        pending,
        limits.segments,
        required=limits.require_collection,
    )


async def _saved(name: PChannelName, claim: SnapshotClaim, replay: Replay) -> WalCheckpoint | None:
    """So that nobody has to read the whole log again. If it fails, the Recovery actor does it.

    Unless what is stored is of another log: once this one has grown, nobody could tell any more.
    """
    change = replay.state.take()
    if not change.checkpoint.tick and claim.snapshot.checkpoint is None:
        return None  # a new log
    try:
        await claim.save(change)
    except (MetaError, Superseded) as error:
        if claim.snapshot.checkpoint is not None:
            cause = f"{name}: the snapshot of another log could not be replaced: {error}"
            raise Refused(StreamingCode.INNER, cause) from error
        notes.warning("%s: the first snapshot could not be saved: %s", name, error)
        return None
    return change.checkpoint
