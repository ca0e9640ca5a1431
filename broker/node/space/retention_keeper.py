"""Has what collections do not keep purged: their retention, of the vchannels that this node serves.

What is too old, or more than its limit, is purged as on request (`purging.py`), but only as far as
nobody holds it. Holders within their limits keep it; those beyond lose it and are named as passed.
The records of the purges then have its space given back (`reclamation.py`).

Limits are read again every second, and in force from then on; each vchannel is looked at after a
change of any, and every `retention_period_s`. A few vchannels a turn, so that the node can stop.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import structlog

from actors import Actor, ActorError, Context, Envelope, Ref, Request
from broker.core.naming import pchannel_of
from broker.core.space.retention_due import AgeBound, due_by_age
from broker.model.channel import AccessMode
from broker.model.failure import Refusal, Refused
from broker.model.ids import PChannelName, TimeTick
from broker.model.retention.policy import Retention
from broker.node.space.given_back import ANSWER_S
from broker.node.space.kept_sizes import VChannelSize, due_by_size
from broker.node.space.newest_message import newest_tick
from broker.node.space.purging import PURGE_S, PurgeVChannel
from broker.node.space.unheld import unheld
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.space.collection_retentions import Retentions
from broker.ports.wal import WalError

LOOK_S = 1.0
AT_ONCE = 32
"""Vchannels of one turn."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeepRetention(Request[None]):
    """A timer: go on with the vchannels, or look whether limits have changed."""


@dataclass(slots=True)
class Seen:
    """What is remembered of a vchannel between two looks, at one opening of its log."""

    channel: OpenChannel
    size: VChannelSize = field(default_factory=VChannelSize)
    looked_at: TimeTick = TimeTick(0)
    """The MVCC tick, an upper bound only, at which the log was read for the newest message."""
    newest: TimeTick = TimeTick(0)
    """The tick of that message; it holds until the MVCC tick changes."""


class RetentionKeeper(Actor[KeepRetention]):
    """See the module."""

    _context: Context[KeepRetention]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._known = Retentions()
        self._seen: dict[str, Seen] = {}
        self._left: deque[str] = deque()
        self._looked_s = 0.0
        self._purging = ""
        self._purges = self._failures = 0
        self._error = ""

    async def started(self, context: Context[KeepRetention]) -> None:
        """Look every second whether limits have changed."""
        self._context = context
        self._purging = f"{context.path.rpartition('/')[0]}/purging"
        context.on_beat(LOOK_S, KeepRetention())

    async def receive(self, batch: Sequence[Envelope[KeepRetention]]) -> None:
        """Deal with a few vchannels; come again at once if more are left."""
        try:
            await self._refresh()
        except (Refused, TimeoutError) as error:
            self._failed(f"the limits of collections are not known: {str(error) or 'no answer'}")
        for _ in range(min(AT_ONCE, len(self._left))):
            await self._keep(self._left.popleft())
        if self._left:
            self._context.after(0.0, KeepRetention())
        for envelope in batch:
            envelope.reply(None)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Purges since the start, vchannels with limits, and why it does not go on."""
        return {
            "purges": self._purges,
            "failures": self._failures,
            "vchannels": len(self._known.limits),
            **({"error": self._error} if self._error else {}),
        }

    async def _refresh(self) -> None:
        """Read limits that have changed, and begin a round when it is time. Raises Refused."""
        with anyio.fail_after(ANSWER_S):
            newer = await self._node.retentions.newer(self._known.revision)
        now_s = self._context.clock.monotonic_s()
        if newer is not None:
            self._adopt(newer)
        elif self._left or now_s - self._looked_s < self._node.limits.retention_period_s:
            return
        self._looked_s = now_s
        served = {it.channel.name for it in self._node.open_channels.all() if _keeps(it)}
        self._left = deque(it for it in self._known.limits if pchannel_of(it) in served)

    def _adopt(self, newer: Retentions) -> None:
        for vchannel in self._seen.keys() - newer.limits.keys():
            self._seen.pop(vchannel).channel.kept.forget(vchannel)
        for vchannel, seen in self._seen.items():
            if newer.limits[vchannel] != self._known.limits.get(vchannel):
                seen.size = VChannelSize()
        self._known = newer

    async def _keep(self, vchannel: str) -> None:
        limits = self._known.limits.get(vchannel)
        channel = self._node.open_channels.find(PChannelName(pchannel_of(vchannel)))
        # Both may have changed since the round began.
        if limits is None or channel is None or not _keeps(channel):
            return
        seen = self._seen.get(vchannel)
        if seen is None or seen.channel is not channel:
            seen = self._seen[vchannel] = Seen(channel)
        try:
            await self._purge_due(seen, vchannel, limits)
        except (Refused, WalError, ActorError, TimeoutError) as error:
            self._failed(f"{vchannel}: {str(error) or 'no answer'}")

    async def _purge_due(self, seen: Seen, vchannel: str, limits: Retention) -> None:
        channel = seen.channel
        upto = await self._due(seen, vchannel, limits)
        purge = channel.purges.purges.get(vchannel)
        if not upto or (purge is not None and upto <= purge.upto):
            return channel.kept.note(vchannel, ())
        found = await unheld(channel, self._node, vchannel, upto, self._context.clock.wall_ms())
        channel.kept.note(vchannel, found.holders)
        if found.upto <= (0 if purge is None else purge.upto):
            return None
        for it in found.passed:
            log.warning(
                "a holder is passed by the retention of a collection: what it needs is removed",
                vchannel=vchannel,
                holder=f"{it.kind} {it.name}",
                bytes=it.bytes,
            )
        purging: Ref[PurgeVChannel] = self._context.tree.find(self._purging)
        request = PurgeVChannel(vchannel, found.upto, passed=found.passed)
        done = await purging.ask(request, deadline_s=PURGE_S)
        if isinstance(done, Refusal):
            raise Refused(done.code, done.cause)
        self._purges += 1
        self._error = ""
        return None

    async def _due(self, seen: Seen, vchannel: str, limits: Retention) -> TimeTick:
        channel = seen.channel
        period_ms = int(self._node.limits.retention_period_s * 1000)
        closed = channel.tail.closed.tick
        bound = AgeBound(self._context.clock.wall_ms(), period_ms, closed)
        newest, purged = await _newest_data(seen, vchannel), channel.purges.upto(vchannel)
        upto = due_by_age(limits, purged, newest, bound)
        if limits.bytes_max:
            upto = max(upto, await due_by_size(channel, vchannel, limits.bytes_max, seen.size))
        return upto

    def _failed(self, why: str) -> None:
        self._failures += 1
        if why != self._error:
            log.warning("the retention of a collection is not applied now", error=why)
        self._error = why


async def _newest_data(seen: Seen, vchannel: str) -> TimeTick:
    """No message of a vchannel has a larger tick.

    After a restart the log is read behind the last purge. Otherwise each vchannel, however empty,
    would be purged once more. Raises WalError and Refused.
    """
    channel = seen.channel
    purge, tick = channel.purges.purges.get(vchannel), channel.mvcc.of(vchannel)
    if purge is None or tick <= purge.upto or channel.mvcc.is_exact(vchannel):
        return tick
    if seen.looked_at != tick:
        # Messages behind that tick would be known exactly. The end of the log would be another one
        # for each vchannel, and the active segment be read again.
        until_id = await channel.log.seek_tick(TimeTick(tick + 1))
        found = await newest_tick(channel, vchannel, purge.next_id, until_id)
        seen.looked_at, seen.newest = tick, tick if found is None else found
    return seen.newest


def _keeps(channel: OpenChannel) -> bool:
    return channel.channel.access is AccessMode.READ_WRITE
