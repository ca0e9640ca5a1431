"""One look at the segments of a log, for dead records that are worth giving back.

Of a segment whose dead records are held, what it has of their vchannels is remembered: it is not
read again before the holders have moved on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import structlog

from broker.core.space.dead_records import WORTH_BYTES, worth_rewriting
from broker.core.space.space_floors import not_held
from broker.model.ids import MessageId, TimeTick
from broker.model.retention.dead import Contents, Dead
from broker.model.retention.holders import Holding
from broker.model.retention.policy import SealedSegment
from broker.node.space.drop_records import DropRecords
from broker.node.space.given_back import ANSWER_S
from broker.node.space.space_holds import holds_on
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.truncation import behind_tick
from broker.ports.wal import Corrupt

KNOWN_MAX: Final = 100_000
"""Vchannels whose answer is remembered during a pass."""
HELD_MAX: Final = 4096
"""Segments whose contents are remembered while they are held; others wait for the next pass."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SpaceVersion:
    """When it changes, there may be more to give back: drops of the catalog, purges of the log."""

    drops: int
    purges: int


@dataclass(slots=True)
class SpacePass:
    """One look at all segments of a log that were begun before `until_id`.

    `finished`: the ends of those that were dealt with. `held`: what those hold of dead vchannels
    that wait for a holder. `known`: of vchannels met, when their collection was dropped. `tried`:
    without what they were rewritten last.
    """

    channel: OpenChannel
    node: NodeRuntime
    version: SpaceVersion
    until_id: MessageId
    drops: DropRecords
    finished: set[MessageId] = field(default_factory=set)
    held: dict[MessageId, Contents] = field(default_factory=dict)
    known: dict[str, TimeTick | None] = field(default_factory=dict)
    behind: dict[TimeTick, MessageId] = field(default_factory=dict)
    tried: dict[MessageId, Dead] = field(default_factory=dict)
    looked_at_all: bool = False

    def next_segment(self) -> SealedSegment | None:
        """One that was not dealt with, and that a restart does not replay."""
        return next((it for it in self._left() if self._is_behind(it)), None)

    @property
    def version_now(self) -> SpaceVersion:
        """That of its beginning, and what it has recorded itself."""
        return replace(self.version, purges=self.version.purges + self.drops.count)

    @property
    def waits(self) -> bool:
        """Whether segments are left that the snapshot has not passed."""
        return bool(self._left())

    def held_segments(self) -> list[SealedSegment]:
        """Those that wait for a holder."""
        return [it for it in self.channel.log.segments() if it.next_id in self.held]

    async def reclaim(self, segment: SealedSegment, now_ms: int) -> int:
        """Rewrite a segment if that is worth it; the bytes given back. Raises WalError, Refused.

        One that is damaged stays as it is.
        """
        end = segment.next_id
        given = 0
        try:
            contents = self.held.get(end) or await self._contents(segment)
            dead = await self.dead(contents)
            if self._is_worth(dead, contents, segment):
                given = await self._give_back(segment, dead, contents, now_ms)
            else:
                self.held.pop(end, None)
        except Corrupt as damage:
            name = self.channel.channel.name
            log.warning("a damaged segment gives no space back", pchannel=name, error=str(damage))
            self.held.pop(end, None)
        # One that was rewritten is read once more: somebody may hold a part of what it has now.
        (self.finished.discard if given else self.finished.add)(end)
        return given

    async def is_worth_sealing(self) -> bool:
        """Whether the active segment has so much dead that it is sealed: only sealed ones give."""
        sealed, bounds = self.channel.log.segments(), self.channel.log.bounds()
        if (sealed[-1].next_id if sealed else bounds.first_id) >= self.until_id:
            return False
        contents = await self.channel.contents.active(self.channel.log, WORTH_BYTES // 2)
        dead = await self.dead(contents)
        size_bytes = sum(part.bytes for part in contents.values())
        return worth_rewriting(dead.bytes_in(contents), size_bytes)

    async def dead(self, contents: Contents) -> Dead:
        """What nobody needs of these vchannels, if nobody holds it. Raises Refused, WalError."""
        dropped = await self._dropped(contents)
        purges = self.channel.purges.purges
        purged = {it: purges[it].whole_id for it in contents if it in purges and it not in dropped}
        return Dead({name: await self._behind(tick) for name, tick in dropped.items()}, purged)

    async def _give_back(
        self, segment: SealedSegment, dead: Dead, contents: Contents, now_ms: int
    ) -> int:
        names = {*dead.dropped, *dead.purged}
        holds = await holds_on(self.channel, self.node, names, segment.next_id)
        found = not_held(dead, holds, self.channel.log.segments(), now_ms)
        self._warn_of(found.beyond)
        end, given = segment.next_id, 0
        # Tried once: what is estimated to be dead may be definitions, which stay.
        if self._is_worth(found.dead, contents, segment) and self.tried.get(end) != found.dead:
            free = await self.drops.add(found.dead)
            async with self.channel.rewrites:
                given = await self.channel.log.give_back(segment, free)
            self.tried[end] = found.dead
        # Not before: one whose rewrite failed stays held, so that it is tried again.
        self.held.pop(end, None)
        if not given and found.dead != dead and len(self.held) < HELD_MAX:
            self.held[end] = {it: contents[it] for it in names if it in contents}
        return given

    async def _contents(self, segment: SealedSegment) -> Contents:
        return await self.channel.contents.sealed(self.channel.log, segment)

    async def _dropped(self, contents: Contents) -> Mapping[str, TimeTick]:
        # One that the log knows to exist was created again by a client of Milvus.
        alive = self.channel.segments.collections
        names = [it for it in contents if it and it not in alive]
        if len(self.known) > KNOWN_MAX:
            self.known = {}
        for name in names:
            if name not in self.known:
                with anyio.fail_after(ANSWER_S):
                    self.known[name] = await self.node.catalog.dropped_at(name)
        return {it: tick for it in names if (tick := self.known[it]) is not None}

    async def _behind(self, tick: TimeTick) -> MessageId:
        """No transaction that ends behind the tick has a record below."""
        if tick not in self.behind:
            self.behind[tick] = await behind_tick(self.channel.log, tick)
        return self.behind[tick]

    def _is_worth(self, dead: Dead, contents: Contents, segment: SealedSegment) -> bool:
        return worth_rewriting(dead.bytes_in(contents), segment.size_bytes)

    def _left(self) -> list[SealedSegment]:
        segments = self.channel.log.segments()
        bases = [self.channel.log.bounds().first_id, *(it.next_id for it in segments)]
        return [
            it
            for it, base_id in zip(segments, bases, strict=False)
            if base_id < self.until_id and it.next_id not in self.finished
        ]

    def _is_behind(self, segment: SealedSegment) -> bool:
        """Whether a restart replays nothing of it, and readers find something published behind."""
        saved = self.channel.snapshot.checkpoint
        assert saved is not None, self.channel.channel
        return segment.next_id <= saved.id and segment.next_id < self.channel.tail.next_id

    def _warn_of(self, beyond: tuple[Holding, ...]) -> None:
        for it in beyond:
            log.warning(
                "a holder is beyond its limits, so dead records that it needs are given back",
                pchannel=self.channel.channel.name,
                holder=f"{it.kind} {it.name}",
                bytes=it.bytes,
            )
