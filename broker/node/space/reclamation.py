"""Gives back the space of what was dropped and purged, one segment of one pchannel at a time.

A pass over a pchannel begins when the number of drops or purges has grown and then stays the same
for a second, or for `retention_period_s` at the latest; and after a start if there were any. It
looks at every segment that was begun before it: what it holds of each vchannel,
what of that is dead and not held, and whether it is worth rewriting. Then nothing is read until the
next drop or purge. A segment waits until it is sealed (an active one that is worth it is sealed for
that) and until the snapshot lies behind it, because a restart replays what follows the snapshot.

A pass always ends before the next one begins, and pchannels take turns, so that drops that keep
coming hold up nothing.

Why an actor of its own, and one segment a turn: rewriting takes seconds, and must stop at once when
the node does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio
import structlog

from actors import Actor, ActorError, Context, Envelope, Ref, Request, Timer
from broker.model.channel import AccessMode
from broker.model.failure import Refusal, Refused
from broker.model.ids import PChannelName, TimeTick
from broker.model.retention.policy import SealedSegment
from broker.node.appender_messages import SealLog
from broker.node.space.drop_records import DropRecords, DropUnrecorded
from broker.node.space.given_back import ANSWER_S
from broker.node.space.purging import PURGE_S, PurgeVChannel
from broker.node.space.space_pass import SpacePass, SpaceVersion
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.wal import LogClosed, NotNow, WalError

LOOK_S = 1.0

_FAILURES = (WalError, DropUnrecorded, Refused)
"""Of one pchannel: they hold up no other."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReclaimSpace(Request[None]):
    """A timer: go on where the passes stand, or look for drops. Answered after one segment."""


@dataclass(frozen=True, slots=True)
class PendingPass:
    """A pass that is to begin: for this version, since `changed_s`; since `first_s` for any."""

    version: SpaceVersion
    first_s: float
    changed_s: float


class Reclamation(Actor[ReclaimSpace]):
    """See the module."""

    _context: Context[ReclaimSpace]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._purging = ""
        self._passes: dict[PChannelName, SpacePass] = {}
        self._last: PChannelName | None = None
        self._pending: dict[PChannelName, PendingPass] = {}
        self._held_s = self._began_s = 0.0
        self._retry_s: dict[PChannelName, float] = {}
        """When those go on whose log has refused."""
        self._given_back = self._rewritten = self._failures = 0
        self._error = ""
        self._beat: Timer | None = None
        self._period_s = 0.0

    async def started(self, context: Context[ReclaimSpace]) -> None:
        """Look every second, or every `retention_period_s` if that is less."""
        self._context = context
        self._purging = f"{context.path.rpartition('/')[0]}/purging"
        self._set_beat()
        self._node.live.listen("reclamation", lambda: context.self.tell(ReclaimSpace()))

    async def receive(self, batch: Sequence[Envelope[ReclaimSpace]]) -> None:
        """Deal with one segment; come again at once if there may be more."""
        self._set_beat()
        try:
            if await self._step():
                self._context.after(0.0, ReclaimSpace())
        except (Refused, TimeoutError) as error:
            self._failed(f"what is needed is not known: {str(error) or 'no answer'}")
        for envelope in batch:
            envelope.reply(None)

    def statistics(self) -> Mapping[str, int | float | str]:
        """What was given back since the start, what is left to do, and why it does not go on."""
        passes = self._passes.values()
        return {
            "given_back_bytes": self._given_back,
            "rewritten_segments": self._rewritten,
            "failures": self._failures,
            "pchannels_left": sum([not it.looked_at_all for it in passes]),
            "held_segments": sum([len(it.held) for it in passes]),
            **({"error": self._error} if self._error else {}),
        }

    def _set_beat(self) -> None:
        period_s = min(self._node.limits.retention_period_s, LOOK_S)
        if period_s != self._period_s:
            if self._beat is not None:
                self._beat.cancel()
            self._period_s = period_s
            self._beat = self._context.on_beat(period_s, ReclaimSpace())

    async def _step(self) -> bool:
        """Whether a segment was dealt with, so that the next one may follow. Raises Refused."""
        with anyio.fail_after(ANSWER_S):
            drops = (await self._node.catalog.version()).drops
        channels = {it.channel.name: it for it in self._node.open_channels.all() if _gives(it)}
        self._passes = {
            name: it
            for name, it in self._passes.items()
            # One that is opened again is another log.
            if name in channels and channels[name] is it.channel
        }
        now_s = self._began_s = self._context.clock.monotonic_s()
        looks_at_held = now_s - self._held_s >= self._node.limits.retention_period_s
        for name in self._in_turn(channels):
            channels[name].purges.forget_below(channels[name].log.bounds().first_id)
            at = self._pass_of(channels[name], drops)
            if at is not None and await self._go_on(at, looks_at_held=looks_at_held):
                self._last = name
                return True
        # Not before all had their turn: passes that keep coming must not hold up those that wait.
        if looks_at_held:
            self._held_s = now_s
        return False

    def _in_turn(self, channels: Mapping[PChannelName, OpenChannel]) -> list[PChannelName]:
        """All of them, first those behind the one that was served last."""
        names, last = sorted(channels), self._last or ""
        return [*(it for it in names if it > last), *(it for it in names if it <= last)]

    def _pass_of(self, channel: OpenChannel, drops: int) -> SpacePass | None:
        """The pass to go on with; None where nothing was ever dropped or purged."""
        name = channel.channel.name
        at = self._passes.get(name)
        if at is None and not drops and not channel.purges.purges:
            return None
        version = SpaceVersion(drops, channel.purges.version)
        if at is None or (at.looked_at_all and at.version_now != version):
            if not self._settled(name, version):
                return at
            del self._pending[name]
            until_id = channel.log.bounds().next_id
            records = DropRecords(channel, self._record_drop)
            at = self._passes[name] = SpacePass(channel, self._node, version, until_id, records)
        return at

    def _settled(self, name: PChannelName, version: SpaceVersion) -> bool:
        """Whether drops and purges have paused: each pass may write the same segments anew."""
        now_s, period_s = self._context.clock.monotonic_s(), self._node.limits.retention_period_s
        known = self._pending.get(name)
        if known is None or known.version != version:
            first_s = now_s if known is None else known.first_s
            self._pending[name] = known = PendingPass(version, first_s, now_s)
        quiet_s = min(LOOK_S, period_s)
        return now_s - known.changed_s >= quiet_s or now_s - known.first_s >= period_s

    async def _go_on(self, at: SpacePass, *, looks_at_held: bool) -> bool:
        name = at.channel.channel.name
        if self._context.clock.monotonic_s() < self._retry_s.get(name, 0.0):
            return False
        try:
            segment = at.next_segment()
            if segment is not None:
                await self._reclaim(at, segment)
                return True
            if not at.looked_at_all:
                # What is sealed here is one of those that are left in the next round.
                at.looked_at_all = not at.waits and not await self._seals(at)
            if looks_at_held:
                await self._reclaim_held(at)
        except LogClosed:
            pass  # its next owner begins anew
        except NotNow:
            self._wait(name)
        except _FAILURES as error:
            self._failed(f"{name}: {error}")
            # Not sooner: what fails for want of room has written much by then.
            self._wait(name)
        return False

    async def _reclaim_held(self, at: SpacePass) -> None:
        """Try each held segment: on a full disk one that fails keeps no other from making room."""
        name, error = at.channel.channel.name, ""
        for held in at.held_segments():
            try:
                await self._reclaim(at, held)
            except (LogClosed, NotNow):
                raise
            except _FAILURES as failure:
                error = f"{name}: {failure}"
                self._failed(error)
        if error:
            # Also when another one was rewritten after it.
            self._error = error
            self._wait(name)

    def _wait(self, name: PChannelName) -> None:
        self._retry_s[name] = self._began_s + self._node.limits.retention_period_s

    async def _reclaim(self, at: SpacePass, segment: SealedSegment) -> None:
        given = await at.reclaim(segment, self._context.clock.wall_ms())
        self._error = ""
        if given:
            self._given_back += given
            self._rewritten += 1
            name = at.channel.channel.name
            log.info("space given back", pchannel=name, bytes=given, below_id=segment.next_id)

    async def _record_drop(self, vchannel: str, upto: TimeTick) -> None:
        purging: Ref[PurgeVChannel] = self._context.tree.find(self._purging)
        try:
            request = PurgeVChannel(vchannel, upto, dropped=True)
            done = await purging.ask(request, deadline_s=PURGE_S)
        except ActorError as error:
            cause = str(error) or "no answer"
            raise DropUnrecorded(f"the drop of {vchannel} is not recorded: {cause}") from error
        if isinstance(done, Refusal):
            raise DropUnrecorded(f"the drop of {vchannel} is not recorded: {done.cause}")

    async def _seals(self, at: SpacePass) -> bool:
        if not await at.is_worth_sealing():
            return False
        try:
            at.channel.appender.tell(SealLog())
        except ActorError:
            pass  # full or dying: the next round comes soon
        return True

    def _failed(self, why: str) -> None:
        self._failures += 1
        if why != self._error:
            log.warning("no space can be given back now", error=why)
        self._error = why


def _gives(channel: OpenChannel) -> bool:
    writes = channel.channel.access is AccessMode.READ_WRITE
    return writes and channel.log.gives_back and channel.snapshot.checkpoint is not None
