"""The one writer of a pchannel: its actor term is the pchannel's term.

It owns the open log, the next id, the last tick and the open transactions. It takes all that waits
in its mailbox as one group: while one group syncs, the next gathers. It never acknowledges what is
not durable (unless the asker wanted no more), and shows nothing to readers before it is. After a
failed write it never writes again: the next incarnation reads back what survived.
Why one group at a time: it was tried with a second one on its way to the disk, and batches were
stored no faster; the processor limits them, not the wait between two syncs.
Next: broker/core/log/sequencer.py
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from actors import Actor, Context, Envelope, PlannedRestart
from broker.core.cluster.channel_lifetime import read_only_refusal
from broker.core.log.admission import AdmissionPolicy
from broker.core.log.backlog import Backlog
from broker.core.log.log_end import LogEnd, closed_tick, end_after, time_tick_record
from broker.core.log.mvcc import MvccTicks
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import Sequenced, barrier_of, sequence
from broker.core.segments.segment_assigner import SegmentAssigner
from broker.core.txn.txn_view import staged_usage
from broker.model.batch import ticks_of
from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import PChannelName, Term, TimeTick
from broker.model.message import MessageType, NewMessage
from broker.model.record import Record
from broker.node.append.group_acks import Answers
from broker.node.append.group_commit import gather
from broker.node.append.takeover import taken_over
from broker.node.append.txn_reports import TxnReports
from broker.node.appender_messages import (
    AppendBatch,
    AppenderMessage,
    CloseTick,
    SealOverdue,
    SealSegments,
)
from broker.node.state.channel_events import ChannelFailed
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel, Saved
from broker.node.state.shard_state import ShardState
from broker.node.state.tail import Tail
from broker.node.state.wal_refusals import refusal_of, unknown_outcomes
from broker.ports.wal import Fenced, Log, WalError, WriterFailed

REFUSING = "refusing"
"""The `state` in its statistics of an Appender that reads but does not write."""

log = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class ProbeStorage:
    """A timer, set after a failed write: check whether the storage takes writes again."""


PROBE = ProbeStorage()


@dataclass(frozen=True, slots=True)
class Truncate:
    """A timer: drop the segments that retention allows to drop."""


_Message = AppenderMessage | ProbeStorage | Truncate


class StorageCameBack(PlannedRestart):
    """The storage takes writes again: this incarnation makes room for one that may write."""


class Appender(Actor[_Message]):
    """See the module."""

    _context: Context[_Message]
    _log: Log
    _tail: Tail
    _end: LogEnd
    _known: WriterState
    _news: TxnReports
    _mvcc: MvccTicks
    _saved: Saved
    _shards: ShardState

    def __init__(
        self, name: PChannelName, node: NodeRuntime, access: AccessMode = AccessMode.READ_WRITE
    ) -> None:
        self._name = name
        self._access = access
        self._node = node
        self._limits = node.limits
        self._meter = node.meters.of(name)
        self._admission = AdmissionPolicy(name, node.limits.message_bytes_max)
        if access is AccessMode.READ_ONLY:
            self._admission = replace(self._admission, closed=read_only_refusal(name))
        self._backlog = Backlog(node.limits.backlog_bytes_max)
        self._unmarked = False  # messages were stored since the last tick that was
        self._groups = self._messages = 0

    async def started(self, context: Context[_Message]) -> None:
        """Fence older terms, recover, and prove ownership by writing one tick, if it may write."""
        self._context = context
        term = Term(context.term)
        try:
            await self._open(term)
        except Exception as error:
            final = isinstance(error, Fenced)
            self._fail(term, refusal_of(error), final=final)
            if not final:
                raise
            context.stop()

    async def receive(self, batch: Sequence[Envelope[_Message]]) -> None:
        """Appends first, in groups; a tick is closed after the last one, in the same write."""
        appends: list[Envelope[_Message]] = []
        closes: list[Envelope[_Message]] = []
        for envelope in batch:
            match envelope.message:
                case AppendBatch():
                    appends.append(envelope)
                case CloseTick():
                    closes.append(envelope)
                case ProbeStorage():
                    await self._probe()
                case Truncate():
                    await self._truncate()
                case SealOverdue() | SealSegments() as about:
                    self._shards.seal(about, self._end.last_tick)
                case about:
                    self._news.asked(about, envelope, self._end.last_tick)
        await self._commit_all(appends, closes=bool(closes))
        for envelope in closes:
            envelope.reply(self._admission.closed or self._tail.closed.tick)
        refusing = self._admission.closed is not None
        if closes and not refusing:
            self._news.stored(beats=True)
        self._news.answer(refusing=refusing)

    async def _commit_all(self, appends: Sequence[Envelope[_Message]], *, closes: bool) -> None:
        groups = gather(appends, self._limits)
        for number, group in enumerate(groups, start=1):
            await self._commit(group, closes=closes and number == len(groups))
        if groups:
            return
        due = self._known.transactions.rollbacks_due(()) or self._shards.shards.flushable()
        if closes or due:
            await self._commit([], closes=closes)

    async def stopped(self) -> None:
        """Close the log."""
        await self._node.open_channels.release(self._name)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Empty until it is open."""
        serving = self._node.open_channels.find(self._name)
        if serving is None:
            return {}
        staged = staged_usage(self._known.transactions.views())
        return {
            "next_id": self._end.next_id,
            "closed_tick": serving.tail.closed.tick,
            "groups": self._groups,
            "messages": self._messages,
            "tail_bytes": serving.tail.size_bytes,
            "backlog_bytes": serving.backlog.bytes_waiting,
            "open_txns": self._known.transactions.open_count,
            "open_txn_bytes": self._known.transactions.open_bytes,
            "prepared_txns": self._known.transactions.prepared_count,
            "staged_txns": staged.txns,
            "staged_bytes": staged.size_bytes,
            "staged_since": staged.oldest,
            **self._state(),
        }

    def _state(self) -> Mapping[str, str]:
        closed = self._admission.closed
        if closed is None:
            return {"state": "serving"}
        return {"state": REFUSING, "cause": closed.cause}

    async def _open(self, term: Term) -> None:
        channels = self._node.open_channels
        log.debug("opening")
        self._session = self._node.write_lease.session
        await channels.release(self._name)
        self._log = await self._node.wal.open(self._name, term)
        channels.hold(self._name, self._log)
        bounds = self._log.bounds()
        log.debug("log opened")
        recovered = await taken_over(self._name, self._log, self._node)
        log.debug("recovered")
        self._known = WriterState(recovered.transactions, recovered.producers)
        self._saved = Saved(recovered.saved)
        oldest_id = recovered.transactions.oldest_begin_id
        end = LogEnd(term, bounds.next_id, bounds.last_tick, oldest_id)
        first = await self._first(end)
        log.debug("first tick written")
        self._end = end_after(first, end)
        tick = self._end.last_tick
        if bounds.first_id == bounds.next_id:
            self._saved.nothing_before = tick
        self._known.transactions.renew(tick)
        self._news = TxnReports(self._context, self._known.transactions)
        self._mvcc = MvccTicks(tick)
        random = self._context.random
        self._shards = ShardState(recovered.shards, self._node.headers, random)
        closed = closed_tick(tick, self._end)
        self._tail = Tail(end.next_id, closed, self._limits, channels.memory)
        self._tail.push(first, closed, self._context.clock.monotonic_s())
        self._begin_chores()
        channels.publish(
            OpenChannel(
                channel=PChannel(self._name, term, self._access),
                log=self._log,
                tail=self._tail,
                appender=self._context.self,
                backlog=self._backlog,
                mvcc=self._mvcc,
                transactions=self._known.transactions,
                saved=self._saved,
                shards=self._shards.shards,
            )
        )

    async def _first(self, end: LogEnd) -> Sequence[Record]:
        """The tick that an owner writes first; of one that serves readers only, nothing."""
        if self._access is AccessMode.READ_ONLY:
            return ()
        self._node.ticks.drop()
        tick = await self._take(1, end.last_tick)
        if tick <= end.last_tick:
            cause = f"{self._name}: the oracle is at {tick}, behind the log's {end.last_tick}"
            raise Refused(StreamingCode.INNER, cause)
        first = (time_tick_record(tick, end),)
        await self._log.append(first)
        return first

    def _begin_chores(self) -> None:
        if self._access is AccessMode.READ_ONLY:
            return
        self._context.every(self._limits.seal_check_s, SealOverdue())
        if self._limits.retention.bytes_max or self._limits.retention.age_ms_max:
            self._context.every(self._limits.retention_period_s, Truncate())

    async def _commit(self, group: Sequence[Envelope[_Message]], *, closes: bool) -> None:
        """Sequence, store, show and answer one group; close a tick with it or alone."""
        answers = Answers(group, self._backlog)
        messages = answers.messages()
        if self._admission.closed is not None:
            answers.settled([self._admission.closed] * len(messages))
            self._tail.wake_all()
            return
        assigner = self._shards.assigner_for(messages)
        due = self._known.transactions.rollbacks_due(messages)
        count = sum(map(ticks_of, messages)) + due + closes
        count += 0 if assigner is None else assigner.ticks_needed
        try:
            first_tick = await self._take(count, barrier_of(messages))
        except Refused as error:
            answers.settled([error.refusal] * len(messages))
            return
        tick = TimeTick(first_tick + count - 1) if closes else None
        sequenced = self._sequence(messages, first_tick, assigner)
        records = self._with_tick(sequenced, tick)
        try:
            await self._store(records, sequenced, answers)
        except (Fenced, WriterFailed) as error:
            refusal = self._refuse(error)
            answers.settled(unknown_outcomes(refusal, sequenced.outcomes))
            return
        if tick is not None and not (records and records[-1].kind == MessageType.TIME_TICK):
            self._announce(tick)
        answers.settled(sequenced.outcomes)
        self._news.stored()

    def _sequence(
        self, messages: Sequence[NewMessage], first_tick: TimeTick, assigner: SegmentAssigner | None
    ) -> Sequenced:
        if assigner is not None:
            first_tick = assigner.begin(first_tick)
        end, admission = self._end, self._admission
        return sequence(messages, first_tick, end, admission, self._known, assigner)

    def _with_tick(self, sequenced: Sequenced, tick: TimeTick | None) -> tuple[Record, ...]:
        """The group's records, and one for the tick when messages came since the last stored one.

        Not for a new consumer, unlike Milvus: announced ticks reach every consumer here, and a
        read that writes would give a reader of "what is there now" something new each time.
        """
        records = sequenced.records
        if tick is None or not (records or self._unmarked):
            return records
        return (*records, time_tick_record(tick, sequenced.end))

    async def _store(
        self, records: tuple[Record, ...], sequenced: Sequenced, answers: Answers
    ) -> None:
        """Make the records durable, then visible. No waiting between a tick and its place.

        Who asked alone, with nothing waiting behind, is answered between the two, and finds what it
        wrote all the same: nobody else has a turn of the loop before it is shown.
        """
        if not records:
            return
        when_written = answers.placed(sequenced.outcomes)
        clock = self._context.clock
        began_s = clock.monotonic_s()
        stored = self._log.append(records, when_written)
        # While the log's thread gets going:
        last, after = records[-1], end_after(records, sequenced.end)
        closed = closed_tick(last.last_tick, after)
        data = [record for record in records if record.kind != MessageType.TIME_TICK]
        messages = sum([len(record.sizes) for record in data])
        size_bytes = sum([len(record.body) for record in data])
        await stored
        if not self._context.waiting:
            answers.stored(sequenced.outcomes)
        now_s = clock.monotonic_s()
        self._meter.stores.add(now_s - began_s)
        self._end = after
        self._unmarked = last.kind != MessageType.TIME_TICK
        self._groups += 1
        self._messages += last.next_id - records[0].base_id
        self._meter.messages += messages
        self._meter.bytes += size_bytes
        self._mvcc.stored(records)
        self._tail.push(records, closed, now_s)
        self._shards.release(self._known.transactions.stored())

    def _announce(self, tick: TimeTick) -> None:
        """Close a tick that nobody needs to find in the log."""
        self._end = replace(self._end, last_tick=tick)
        self._tail.close(closed_tick(tick, self._end), self._context.clock.monotonic_s())

    async def _take(self, count: int, above: TimeTick) -> TimeTick:
        """Asked about last, because it may take a while: does this node still have the right?"""
        clock = self._context.clock
        tick = await self._node.ticks.take(count, clock.monotonic_s(), above)
        if not self._node.write_lease.holds(self._session, clock.monotonic_s()):
            cause = f"{self._name}: node {self._node.node_id} has no word from its coordinator"
            raise Refused(StreamingCode.ON_SHUTDOWN, f"{cause}, and writes again when it has")
        return tick

    def _refuse(self, error: Fenced | WriterFailed) -> Refusal:
        """No more writes in this life. Readers are served on, unless somebody else owns the log."""
        refusal = refusal_of(error)
        self._admission = replace(self._admission, closed=refusal)
        if isinstance(error, Fenced):
            self._fail(self._end.term, refusal, final=True)
            self._context.stop()
        else:
            log.warning("appends are refused, reads go on: %s", refusal.cause)
            self._context.after(self._limits.probe_s, PROBE)
        return refusal

    def _fail(self, term: Term, refusal: Refusal, *, final: bool) -> None:
        if final:
            self._node.open_channels.withdraw(self._name, term)
        self._node.open_channels.report(ChannelFailed(self._name, term, refusal, final))

    async def _probe(self) -> None:
        if await self._node.wal.writable():
            raise StorageCameBack(f"{self._name}: storage takes writes again")
        self._context.after(self._limits.probe_s, PROBE)

    async def _truncate(self) -> None:
        """A failure to drop old data is no reason to stop taking new, unless the log is lost."""
        saved = self._saved.checkpoint
        if self._admission.closed is not None or saved is None:
            return
        now_ms = self._context.clock.wall_ms()
        try:
            # Whoever takes over reads from there on, and every open transaction whole.
            kept_id = min(saved.id, self._end.open_txn_id or self._end.next_id)
            await self._log.truncate(kept_id, self._limits.retention, now_ms)
        except (Fenced, WriterFailed) as error:
            self._refuse(error)
        except WalError as error:
            log.warning("%s: old data stays: %s", self._name, error)
