"""Gives back the space of dropped collections, one segment of one pchannel at a time.

A pass begins when the number of drops has grown, and after a start if there were any. It looks at
every segment that was begun before it: what it holds of each vchannel, whose collection is gone,
and whether it is worth rewriting. Then nothing is read until the next drop. A segment waits until
it is sealed (an active one that is worth it is sealed for that) and until the snapshot lies behind
it, because a restart replays what follows the snapshot.

Why an actor of its own, and one segment a turn: rewriting takes seconds, and must stop at once when
the node does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import structlog

from actors import Actor, ActorError, Context, Envelope, Request, Timer
from broker.core.log.dead_records import worth_rewriting
from broker.model.channel import AccessMode
from broker.model.failure import Refused
from broker.model.ids import MessageId, PChannelName
from broker.model.retention.dead import Contents, Dead
from broker.model.retention.policy import SealedSegment
from broker.node.appender_messages import SealLog
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.row_schemas import NoShard
from broker.ports.wal import Corrupt, LogClosed, WalError

ANSWER_S = 5.0
KNOWN_MAX = 100_000
"""Vchannels whose answer is remembered during a pass."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReclaimSpace(Request[None]):
    """A timer: go on where the pass stands, or look for drops. Answered after one segment."""


@dataclass(slots=True)
class _Pass:
    """One look at all segments of a log that were begun before `until_id`.

    `finished`: the ends of those that were dealt with. `known`: of vchannels met, whether their
    collection is gone.
    """

    drops: int
    until_id: MessageId
    finished: set[MessageId] = field(default_factory=set)
    known: dict[str, bool] = field(default_factory=dict)
    done: bool = False


class Reclamation(Actor[ReclaimSpace]):
    """See the module."""

    _context: Context[ReclaimSpace]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._passes: dict[PChannelName, _Pass] = {}
        self._given_back = self._rewritten = self._failures = 0
        self._error = ""
        self._beat: Timer | None = None
        self._period_s = 0.0

    async def started(self, context: Context[ReclaimSpace]) -> None:
        """Look every `retention_period_s`."""
        self._context = context
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
        open_passes = [it for it in self._passes.values() if not it.done]
        return {
            "given_back_bytes": self._given_back,
            "rewritten_segments": self._rewritten,
            "failures": self._failures,
            "pchannels_left": len(open_passes),
            **({"error": self._error} if self._error else {}),
        }

    def _set_beat(self) -> None:
        period_s = self._node.limits.retention_period_s
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
        self._passes = {name: it for name, it in self._passes.items() if name in channels}
        for name, channel in channels.items():
            at = self._passes.get(name)
            if at is None or at.drops < drops:
                at = self._passes[name] = _Pass(drops, channel.log.bounds().next_id)
                # Without any drop there is nothing to look for.
                at.done = not drops
            if not at.done and await self._go_on(channel, at):
                return True
        return False

    async def _go_on(self, channel: OpenChannel, at: _Pass) -> bool:
        name = channel.channel.name
        try:
            return await self._next_segment(channel, at)
        except LogClosed:
            return False  # its next owner begins anew
        except WalError as error:
            self._failed(f"{name}: {error}")
            return False

    async def _next_segment(self, channel: OpenChannel, at: _Pass) -> bool:
        left = [
            it
            for it, base_id in _with_bases(channel)
            if base_id < at.until_id and it.next_id not in at.finished
        ]
        for segment in left:
            if _is_behind(channel, segment):
                await self._reclaim(channel, at, segment)
                at.finished.add(segment.next_id)
                return True
        # When all of those are done; what is sealed here is one of them in the next round.
        at.done = not left and not await self._seals(channel, at)
        return False

    async def _reclaim(self, channel: OpenChannel, at: _Pass, segment: SealedSegment) -> None:
        """Rewrite a segment if that is worth it. One that is damaged stays as it is."""
        name = channel.channel.name
        try:
            contents = await channel.log.contents(segment)
            dead = await self._dead(channel, at, contents)
            if not worth_rewriting(dead.bytes_in(contents), segment.size_bytes):
                return
            given = await channel.log.give_back(segment, dead)
        except Corrupt as damage:
            log.warning("a damaged segment gives no space back", pchannel=name, error=str(damage))
            return
        self._error = ""
        if given:
            self._given_back += given
            self._rewritten += 1
            log.info("space given back", pchannel=name, bytes=given, below_id=segment.next_id)

    async def _seals(self, channel: OpenChannel, at: _Pass) -> bool:
        """Have the active segment sealed if that is worth it: only sealed ones are rewritten."""
        sealed = channel.log.segments()
        active_from = sealed[-1].next_id if sealed else channel.log.bounds().first_id
        if active_from >= at.until_id:
            return False
        contents = await channel.log.contents(None)
        dead = await self._dead(channel, at, contents)
        size_bytes = sum(part.bytes for part in contents.values())
        if not worth_rewriting(dead.bytes_in(contents), size_bytes):
            return False
        try:
            channel.appender.tell(SealLog())
        except ActorError:
            pass  # full or dying: the next round comes soon
        return True

    async def _dead(self, channel: OpenChannel, at: _Pass, contents: Contents) -> Dead:
        # One that the log knows to exist was created by a client of Milvus, or is not recorded yet.
        names = [it for it in contents if it and not channel.segments.is_ours(it)]
        for name in names:
            if name not in at.known:
                with anyio.fail_after(ANSWER_S):
                    found = await self._node.catalog.shard(name)
                at.known[name] = found is NoShard.DROPPED
        dropped = frozenset(it for it in names if at.known[it])
        if len(at.known) > KNOWN_MAX:
            at.known = {}
        # Now, not at the start of the pass: one that is begun later lies above this segment.
        open_txns = frozenset(view.context.id for view in channel.transactions.views())
        return Dead(dropped, open_txns=open_txns)

    def _failed(self, why: str) -> None:
        self._failures += 1
        if why != self._error:
            log.warning("no space can be given back now", error=why)
        self._error = why


def _with_bases(channel: OpenChannel) -> list[tuple[SealedSegment, MessageId]]:
    """The sealed segments, each with its first id."""
    segments = channel.log.segments()
    bases = [channel.log.bounds().first_id, *(it.next_id for it in segments)]
    return list(zip(segments, bases, strict=False))


def _is_behind(channel: OpenChannel, segment: SealedSegment) -> bool:
    """Whether a restart replays nothing of it, and readers find something published behind it."""
    saved = channel.snapshot.checkpoint
    assert saved is not None, channel.channel
    return segment.next_id <= saved.id and segment.next_id < channel.tail.next_id


def _gives(channel: OpenChannel) -> bool:
    writes = channel.channel.access is AccessMode.READ_WRITE
    return writes and channel.snapshot.checkpoint is not None
