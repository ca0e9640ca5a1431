"""Purges vchannels of this node up to a tick: durably in the log first, before anything goes.

A purge is refused when a transaction that is open may still deliver below the tick, or when anybody
holds a message there. Whoever comes later is told that the messages are gone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from actors import Actor, Context, Envelope, Request
from broker.core.naming import pchannel_of
from broker.core.space.purges import encode_purge
from broker.core.space.removal import exceeded
from broker.model.channel import AccessMode
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import MessageId, TimeTick
from broker.model.message import PURGE, NewMessage
from broker.model.retention.dead import PURGED_KINDS
from broker.model.retention.holders import Holding, Passed
from broker.model.retention.purge import Purge
from broker.node.append.intake import append_then
from broker.node.appender_messages import PlacedApart, RunOutcome
from broker.node.directory_messages import Located
from broker.node.space.newest_message import newest_tick
from broker.node.space.space_holds import needs_of
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.state.oracle_view import OracleView
from broker.node.state.wal_refusals import refused
from broker.node.truncation import behind_tick
from broker.ports.wal import WalError

PURGE_S = 60.0
"""Within which a caller has an answer: purges before it take their time, too."""
WRITE_S = 30.0
OUTCOME_S = 1e9
"""The outcome itself comes whenever the Appender knows it, or when the Appender ends."""
LOOKS_MAX = 64
"""Reads of the log, of up to 4 MiB each, that look whether a holder needs anything."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PurgeVChannel(Request[Purge | Refusal]):
    """Purge up to a tick, or what has a smaller id than `before_id` (if above 0).

    Answered once it is durable; with `only_check`, whether it would be refused, and nothing is
    done. One that reaches no further than an earlier purge is answered by that. `dropped`: the
    collection is dropped, and the caller knows what its holders need. `passed`: who loses messages.
    """

    vchannel: str
    upto: TimeTick
    before_id: MessageId = MessageId(0)
    only_check: bool = False
    dropped: bool = False
    passed: tuple[Passed, ...] = ()


class Purging(Actor[PurgeVChannel]):
    """One purge at a time, each within seconds."""

    _context: Context[PurgeVChannel]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node

    async def started(self, context: Context[PurgeVChannel]) -> None:
        """Nothing to do before the first request."""
        self._context = context

    async def receive(self, batch: Sequence[Envelope[PurgeVChannel]]) -> None:
        """Answer one after the other."""
        for envelope in batch:
            try:
                answer: Purge | Refusal = await self._purge(envelope.message)
            except Refused as error:
                answer = error.refusal
            except TimeoutError:
                cause = "who holds the messages is not known: no answer; nothing was purged, retry"
                answer = Refusal(StreamingCode.INNER, cause)
            except WalError as error:
                answer = refused(error).refusal
            envelope.reply(answer)

    async def _purge(self, request: PurgeVChannel) -> Purge | Refusal:
        vchannel, channel = request.vchannel, self._channel_of(request.vchannel)
        upto = await _tick_of(channel, request)
        known = channel.purges.purges.get(vchannel)
        if known is not None and known.upto >= upto:
            return known
        if not upto or not await channel.has_vchannel(vchannel):
            # Nothing was appended there: nothing to purge, and nothing to remember.
            first_id = channel.tail.next_id if upto else channel.offsets().first_id
            return Purge(vchannel, upto, first_id, first_id)
        _refuse_open(channel, vchannel, upto)
        next_id = await channel.log.seek_tick(TimeTick(upto + 1))
        purge = Purge(vchannel, upto, next_id, await behind_tick(channel.log, upto))
        # Who begins to read at the oldest message waits for the outcome; see the Scanner.
        channel.purging.add(vchannel)
        try:
            if not request.dropped:
                await self._refuse_held(channel, purge)
            if request.only_check:
                return purge
            from_id = MessageId(0) if known is None else known.next_id
            newest = await newest_tick(channel, vchannel, from_id, next_id)
            now_ms = self._context.clock.wall_ms()
            named = purge.removing(newest, known).passing(request.passed, known, now_ms)
            return await self._write(channel, named)
        finally:
            channel.purging.discard(vchannel)

    def _channel_of(self, vchannel: str) -> OpenChannel:
        name = pchannel_of(vchannel)
        channel = self._node.open_channels.find(name)
        if channel is None or channel.channel.access is not AccessMode.READ_WRITE:
            cause = f"{name} does not serve here now; locate it again"
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
        if vchannel == name:
            raise invalid_argument(f"{vchannel} is a pchannel; name a vchannel or a collection")
        return channel

    async def _refuse_held(self, channel: OpenChannel, purge: Purge) -> None:
        """Raise Refused for a holder within its limits that has not got all of it."""
        now_ms, segments = self._context.clock.wall_ms(), channel.log.segments()
        for need in await needs_of(channel, self._node, purge.vchannel, purge.next_id):
            hold = need.hold
            size = sum([it.size_bytes for it in segments if it.next_id > hold.from_id])
            holding = Holding(hold.kind, hold.name, size, hold.bytes_max, hold.until_ms)
            if need.read_to >= purge.upto or exceeded(holding, now_ms) is not None:
                continue
            if not await has_messages(channel, purge, hold.from_id, need.read_to):
                continue
            raise Refused(
                StreamingCode.RESOURCE_ACQUIRED,
                f"{hold.kind} {hold.name!r} still needs messages of {purge.vchannel} above tick"
                f" {need.read_to}, so they cannot be purged up to {purge.upto}; let it read on,"
                " drop it, or purge less. Nothing was purged",
            )

    async def _write(self, channel: OpenChannel, purge: Purge) -> Purge | Refusal:
        body = encode_purge(purge)
        oracle = OracleView(
            self._node.ticks, self._context.clock, self._node.limits.barrier_wait_s_max
        )
        located = Located(
            *(channel.channel, channel.appender, channel.backlog, channel, channel.closed, oracle),
            groups=channel.groups,
        )
        message = NewMessage(purge.vchannel, PURGE, body, len(body))
        answer: asyncio.Future[Purge | Refusal] = asyncio.get_running_loop().create_future()

        def settle(outcomes: tuple[RunOutcome, ...]) -> None:
            (outcome,) = outcomes
            assert not isinstance(outcome, PlacedApart), "a purge is no row"
            written: Purge | Refusal
            if isinstance(outcome, Refusal):
                written = outcome
            else:
                written = done = replace(purge, tick=outcome.tick)
                # Here, so that it counts from the moment it is durable, however late that is.
                channel.purges.apply(done)
                log.info("purged", vchannel=purge.vchannel, upto=purge.upto)
            if not answer.done():
                answer.set_result(written)

        append_then(located, (message,), settle, deadline_s=OUTCOME_S)
        cause = f"the purge of {purge.vchannel} is still being written; ask again"
        late = Refusal(StreamingCode.UNKNOWN, cause)
        timer = self._context.clock.call_later(
            WRITE_S, lambda: None if answer.done() else answer.set_result(late)
        )
        try:
            return await answer
        finally:
            timer.cancel()


async def _tick_of(channel: OpenChannel, request: PurgeVChannel) -> TimeTick:
    """The largest tick that is purged. Raises Refused when it is not closed yet, or no id."""
    closed, name = channel.tail.closed.tick, channel.channel.name
    upto, before_id = request.upto, request.before_id
    if before_id:
        offsets = channel.offsets()
        if before_id > offsets.next_id:
            raise invalid_argument(
                f"message id {before_id} is not written yet: {name} holds ids up to"
                f" {offsets.next_id - 1}; purge before an id up to {offsets.next_id}"
            )
        if before_id <= offsets.first_id:
            return TimeTick(0)
        upto = await _tick_before(channel, before_id)
    if upto > closed:
        raise invalid_argument(
            f"tick {upto} is not closed yet on {request.vchannel}: the newest closed tick is"
            f" {closed}; purge up to that one, or wait"
        )
    return upto


async def _tick_before(channel: OpenChannel, before_id: MessageId) -> TimeTick:
    if before_id == channel.tail.next_id:
        return channel.tail.closed.tick
    records = await channel.log.read(before_id, 1)
    if not records:
        return channel.tail.closed.tick
    first = records[0]
    return TimeTick(first.base_tick + max(0, before_id - first.base_id) - 1)


def _refuse_open(channel: OpenChannel, vchannel: str, upto: TimeTick) -> None:
    # Those that are ending, too: the log does not show yet that they end behind the tick.
    for view in (*channel.transactions.views(), *channel.transactions.unstored_ends()):
        # The id of a transaction is the tick of its begin.
        if view.vchannel == vchannel and view.context.id <= upto:
            what = f"transaction {view.context.id}"
            if view.stage is not None:
                what = f"the staged batch {view.stage}"
            raise Refused(
                StreamingCode.RESOURCE_ACQUIRED,
                f"{what} is open on {vchannel} since tick {view.context.id}, so it cannot be purged"
                f" up to {upto}; end it, or purge less. Nothing was purged",
            )


async def has_messages(
    channel: OpenChannel, purge: Purge, from_id: MessageId, after: TimeTick
) -> bool:
    """Whether there are messages of the vchannel behind a tick, up to that of the purge.

    True also when there is too much to look at.
    """
    at = from_id
    for _ in range(LOOKS_MAX):
        heads = await channel.heads(at)
        for it in heads:
            if it.base_id >= purge.next_id:
                return False
            is_of = it.vchannel == purge.vchannel and it.kind in PURGED_KINDS
            if is_of and it.base_tick + it.messages - 1 > after:
                return True
        if not heads:
            return False
        at = MessageId(heads[-1].base_id + heads[-1].messages)
    return True
