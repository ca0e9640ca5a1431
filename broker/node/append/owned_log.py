"""Opens a pchannel's log for its Appender: fence older owners, recover, write the first tick."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.log.log_end import LogEnd, time_tick_record
from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refused, StreamingCode
from broker.model.record import Record
from broker.node.append.takeover import RecoveredChannel, recover_channel
from broker.node.append.write_permit import WritePermit
from broker.node.state.node_runtime import NodeRuntime
from broker.ports.wal import Log

notes = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class OwnedLog:
    """An open log. `end`: before `first`, the tick record of this term; none when read-only."""

    log: Log
    recovered: RecoveredChannel
    end: LogEnd
    first: Sequence[Record]
    empty: bool


async def open_owned_log(channel: PChannel, node: NodeRuntime, permit: WritePermit) -> OwnedLog:
    """Open the log at the channel's term and write one tick, unless it is read-only.

    Raises what the log raises (Fenced when a newer owner exists), and Refused when the snapshot or
    the oracle is not available, or this node should not open it any more. `OpenChannels` closes
    the log even when this fails.
    """
    return await node.open_channels.opened(channel.name, _open(channel, node, permit))


async def _open(channel: PChannel, node: NodeRuntime, permit: WritePermit) -> OwnedLog:
    name, channels = channel.name, node.open_channels
    notes.debug("opening")
    # An incarnation that was killed could not close its log, and its channel may still be found.
    await channels.release(name)
    log = await node.wal.open(name, channel.term)
    # Before the next await: if this Appender dies during recovery, the next one closes the log.
    channels.hold(name, log)
    bounds = log.bounds()
    notes.debug("log opened")
    recovered = await recover_channel(name, log, node)
    notes.debug("recovered")
    oldest_id = recovered.transactions.oldest_begin_id
    end = LogEnd(channel.term, bounds.next_id, bounds.last_tick, oldest_id)
    first: Sequence[Record] = ()
    if channel.access is not AccessMode.READ_ONLY:
        tick = await _first_tick(channel, node, permit, end)
        first = (tick,)
        await log.append(first)
        notes.debug("first tick written")
    return OwnedLog(log, recovered, end, first, empty=bounds.first_id == bounds.next_id)


async def _first_tick(
    channel: PChannel, node: NodeRuntime, permit: WritePermit, end: LogEnd
) -> Record:
    """The record of the first tick of this term."""
    # The last owner may have announced ticks that no record holds. Ticks reserved after this
    # point are larger than any of them, so no closed tick is broken.
    node.ticks.drop()
    tick = await permit.take(1, end.last_tick)
    if tick <= end.last_tick:
        cause = (
            f"{channel.name}: the oracle gave tick {tick}, but the log already holds"
            f" {end.last_tick}; the oracle's metadata is older than this log"
        )
        raise Refused(StreamingCode.INNER, cause)
    return time_tick_record(tick, end)
