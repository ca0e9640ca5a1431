"""The pchannels that serve on this node now: published by Appenders, read by all actors.

It also holds every opened log until it is closed, so that an Appender that dies leaks no log.
"""

from collections.abc import Awaitable, Iterator, Mapping, MutableSet, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from weakref import WeakSet

import anyio

from actors import ActorError, Ref
from broker.core.cluster.channel_lifetime import ServingState
from broker.core.compaction.compaction_table import CompactionTable
from broker.core.log.backlog import Backlog
from broker.core.log.mvcc import MvccTicks
from broker.core.segments.segment_table import SegmentTable
from broker.core.space.log_sizes import LogSizes
from broker.core.space.purges import PurgeTable
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_state import TxnState
from broker.model.channel import ChannelOffsets, PChannel
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, PChannelName, Term, TimeTick, TxnId
from broker.model.measured import RecordHead
from broker.model.message import NewMessage
from broker.model.record import head_of
from broker.model.retention.holders import Passed
from broker.model.snapshot import WalCheckpoint
from broker.node.appender_messages import AppenderMessage
from broker.node.state.channel_events import ChannelEvent, ChannelOpened
from broker.node.state.channel_groups import ChannelGroups
from broker.node.state.collection_holders import CollectionHolders
from broker.node.state.segment_contents import SegmentContents
from broker.node.state.tail import Tail, TailMemory
from broker.node.state.wal_refusals import refused
from broker.ports.wal import Log, LogBounds, WalError

HEADS_BYTES = 4 << 20
T = TypeVar("T")


@dataclass(slots=True)
class SnapshotProgress:
    """How far the stored snapshot reaches; `checkpoint` None: no snapshot is known. Only grows.

    Set by the Appender when it opens and by Recovery after each save; truncation may not pass it.
    `observed_tick`: Recovery has applied every record up to it, in memory.
    """

    checkpoint: WalCheckpoint | None = None
    log_start_tick: TimeTick = TimeTick(0)
    """The first tick of a log that was empty when it was opened."""
    observed_tick: TimeTick = TimeTick(0)


class HoldingReader(Protocol):
    """A reader of a pchannel, from its first message to its end."""

    @property
    def reads(self) -> str:
        """The vchannel, or whatever else it has selected, in words."""
        ...

    @property
    def vchannels(self) -> frozenset[str]:
        """What it has selected; none: every vchannel."""
        ...

    @property
    def read_to(self) -> TimeTick:
        """It was given every message up to this tick."""
        ...

    @property
    def needed_from(self) -> MessageId | None:
        """It needs every message from this id on; None while it takes whatever is left."""
        ...


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """A pchannel serving at one term. Also the `ChannelView` that the edge reads through."""

    channel: PChannel
    log: Log
    tail: Tail
    appender: Ref[AppenderMessage]
    backlog: Backlog
    mvcc: MvccTicks
    transactions: Transactions
    snapshot: SnapshotProgress
    segments: SegmentTable
    groups: ChannelGroups
    purges: PurgeTable
    compactions: CompactionTable
    contents: SegmentContents = field(default_factory=SegmentContents)
    sizes: LogSizes = field(default_factory=LogSizes)
    kept: CollectionHolders = field(default_factory=CollectionHolders)
    # Weak: one that died without a word must not hold the log for ever.
    readers: MutableSet[HoldingReader] = field(default_factory=WeakSet)
    purging: set[str] = field(default_factory=set)
    """Vchannels of which a purge is being decided, or written."""
    closed: anyio.Event = field(default_factory=anyio.Event)
    rewrites: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while a segment is written anew: one at a time."""

    def passed(self) -> Iterator[tuple[str, Passed]]:
        """Who was passed by the retention of a collection in the last days, with the vchannel."""
        return self.purges.passed(self.tail.closed.tick >> TICK_LOGICAL_BITS)

    def offsets(self) -> ChannelOffsets:
        bounds = self.log.bounds()
        return ChannelOffsets(
            name=self.channel.name,
            term=self.channel.term,
            first_id=bounds.first_id,
            # Not the log's: a group is readable only once it is published.
            next_id=self.tail.next_id,
            closed_tick=self.tail.closed.tick,
            size_bytes=bounds.size_bytes,
            last_confirmed_id=self.tail.closed.last_confirmed_id,
            open_txns=self.transactions.open_count,
            open_txn_bytes=self.transactions.open_bytes,
            checkpoint=self.snapshot.checkpoint,
            observed_tick=self._observed_tick(bounds),
            prepared_txns=self.transactions.prepared_count,
            segments=self.segments.counts(),
            removed_tick=bounds.removed_tick,
        )

    def _observed_tick(self, bounds: LogBounds) -> TimeTick:
        """Recovery sees records only: with all of them observed, so is every closed tick."""
        observed = self.snapshot.observed_tick
        return max(observed, self.tail.closed.tick) if observed >= bounds.last_tick else observed

    @property
    def recovery_tick(self) -> TimeTick:
        """A restart need not replay the log up to this tick."""
        checkpoint = self.snapshot.checkpoint
        if checkpoint is None:
            return self.snapshot.log_start_tick
        if checkpoint.tick < self.log.bounds().last_tick:
            return checkpoint.tick
        return self.mvcc.persisted_tick

    async def seek(self, tick: TimeTick) -> MessageId:
        try:
            return await self.log.seek_tick(tick)
        except WalError as error:
            raise refused(error) from error

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        try:
            return await self.log.advance(from_id, until_id, bytes_max)
        except WalError as error:
            raise refused(error) from error

    def purged(self) -> Mapping[str, TimeTick]:
        return self.purges.floors()

    def has_collection(self, vchannel: str) -> bool:
        return self.segments.is_ours(vchannel)

    def has_living_collection(self, vchannel: str) -> bool:
        return vchannel in self.segments.collections

    def has_open_txn(self, txn: TxnId) -> bool:
        found = self.transactions.find(txn)
        return found is not None and found.outcome is None and not self.closed.is_set()

    def superseded_by(self, begin: NewMessage) -> int:
        stage = begin.stage
        if stage is None:
            return 0
        others = [it.stage for it in self.transactions.views() if it.state is TxnState.IN_FLIGHT]
        return sum(it is not None and stage.supersedes(it) for it in others)

    async def has_vchannel(self, vchannel: str) -> bool:
        named = self.tail.named
        while not self.has_collection(vchannel):
            known = named.knows(vchannel)
            if known is not None:
                return known
            at = max(named.searched_to, self.log.bounds().first_id)
            try:
                heads = await self.heads(at)
            except Refused:
                # Damage, or a log that is closing: what cannot be read may have named it.
                return True
            if not heads:
                return False  # retention has removed what was to be searched
            named.add_found({it.vchannel for it in heads}, heads[-1].next_id)
        return True

    async def heads(self, from_id: MessageId) -> Sequence[RecordHead]:
        from_id = max(from_id, self.log.bounds().first_id)
        records = self.tail.read(from_id)
        if records is None:
            try:
                records = await self.log.read(from_id, HEADS_BYTES)
            except WalError as error:
                raise refused(error) from error
        end = self.tail.next_id  # the log may hold a group that is not yet published
        return [head_of(it) for it in records if it.next_id <= end]


class OpenChannels:
    """See the module."""

    def __init__(self, tail_total_bytes_max: int) -> None:
        self.memory = TailMemory(tail_total_bytes_max)
        self.listener: Ref[ChannelEvent] | None = None
        self._serving: dict[PChannelName, OpenChannel] = {}
        self._logs: dict[PChannelName, Log] = {}
        self._opening: dict[PChannelName, anyio.CancelScope] = {}
        self._wanted: dict[PChannelName, ServingState] = {}

    def find(self, name: PChannelName) -> OpenChannel | None:
        """The pchannel if it serves."""
        return self._serving.get(name)

    def all(self) -> list[OpenChannel]:
        """Every pchannel that serves, sorted by name."""
        return [self._serving[name] for name in sorted(self._serving)]

    async def opened(self, name: PChannelName, opening: Awaitable[T]) -> T:
        """Await the opening of a pchannel; Refused(ON_SHUTDOWN) when `leave_opening` ends it."""
        with anyio.CancelScope() as scope:
            self._opening[name] = scope
            try:
                return await opening
            finally:
                if self._opening.get(name) is scope:
                    del self._opening[name]
        cause = f"{name} is wanted here no longer, or at a later term"
        raise Refused(StreamingCode.ON_SHUTDOWN, cause)

    def is_overtaken(self, name: PChannelName, stage: ServingState) -> bool:
        """Whether `leave_opening` was told of another stage since."""
        return self._wanted.get(name, stage) != stage

    def leave_opening(self, name: PChannelName, wanted: ServingState) -> None:
        """End an opening that is under way, at once: it may wait long for its storage."""
        self._wanted[name] = wanted
        if name in self._opening:
            self._opening[name].cancel()

    def hold(self, name: PChannelName, log: Log) -> None:
        """Remember an opened log, so that `release` closes it even if the Appender dies."""
        assert name not in self._logs, name
        self._logs[name] = log

    def publish(self, opened: OpenChannel) -> None:
        """Make a pchannel visible and report it to the Directory."""
        self._serving[opened.channel.name] = opened
        self.report(ChannelOpened(opened.channel))

    def withdraw(self, name: PChannelName, term: Term) -> None:
        """Stop serving a pchannel, unless a later term serves already."""
        serving = self._serving.get(name)
        if serving is not None and serving.channel.term <= term:
            serving.tail.release()
            # An append would else be refused for lack of room, and retried here, not at the new
            # owner.
            serving.backlog.retire()
            serving.closed.set()
            del self._serving[name]

    async def release(self, name: PChannelName) -> None:
        """Withdraw a pchannel and close its log, which earlier incarnations may have left open."""
        serving = self._serving.get(name)
        if serving is not None:  # before the log closes, so that nobody finds a closed one
            self.withdraw(name, serving.channel.term)
        log = self._logs.pop(name, None)
        if log is not None:
            await log.close()

    def report(self, event: ChannelEvent) -> None:
        """Tell the Directory. While it restarts the event is dropped: it then reads `all`."""
        if self.listener is None:
            return
        try:
            self.listener.tell(event)
        except ActorError:
            return
