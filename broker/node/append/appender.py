"""The single writer of a pchannel, with group commit. Its actor term is the pchannel's term.

It owns the open log, the next id, the last tick and the open transactions. While one group syncs,
the next one gathers in the mailbox. Messages are acknowledged at the durability their producer
asked for and become readable after the sync. After a failed write this incarnation never writes
again; the next one, at a higher term, reads back what survived.

Why one group at a time: a second group in flight was tried and stored batches no faster. The
processor is the limit, not the time between two syncs.

Next: broker/core/log/sequencer.py
Next: broker/node/state/tail.py
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from actors import Actor, Context, Envelope
from broker.core.cluster.channel_lifetime import read_only_refusal
from broker.core.log.admission import AdmissionPolicy
from broker.core.log.backlog import Backlog
from broker.core.log.log_end import LogEnd, closed_tick, end_after, time_tick_record
from broker.core.log.mvcc import MvccTicks
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import Sequenced, barrier_of, sequence
from broker.core.segments.segment_assigner import SegmentAssigner
from broker.core.space.log_sizes import LogSizes
from broker.core.txn.txn_view import staged_usage
from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refusal, Refused
from broker.model.ids import Term, TimeTick
from broker.model.message import MessageType, NewMessage
from broker.model.record import Record
from broker.node.append.channel_segments import ChannelSegments
from broker.node.append.group_commit import GroupAcks, gather
from broker.node.append.log_upkeep import StorageCameBack, keep_up
from broker.node.append.owned_log import open_owned_log
from broker.node.append.stored_counts import StoredCounts
from broker.node.append.txn_reports import TxnReports
from broker.node.append.write_permit import WritePermit
from broker.node.appender_messages import (
    AppendBatch,
    AppenderMessage,
    CloseTick,
    DoAtRest,
    LogUpkeep,
    ObeySegmentOrders,
    SealLog,
    SealOverdue,
    SealSegments,
    Truncate,
)
from broker.node.state.channel_events import ChannelFailed
from broker.node.state.channel_groups import ChannelGroups
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel, SnapshotProgress
from broker.node.state.tail import Tail
from broker.node.state.vchannel_traffic import count_group
from broker.node.state.wal_refusals import failed_outcomes, opening_refusal_of, refusal_of
from broker.ports.wal import Fenced, Log, WalError, WriterFailed

REFUSING = "refusing"
"""The `state` in the statistics of an Appender that serves reads but refuses appends."""

log = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class ProbeStorage:
    """A timer, set after a failed write: check whether the storage takes writes again."""


PROBE = ProbeStorage()
_Message = AppenderMessage | ProbeStorage


class Appender(Actor[_Message]):
    """The single writer of one pchannel."""

    _context: Context[_Message]
    _log: Log
    _tail: Tail
    _end: LogEnd
    _known: WriterState
    _txn_reports: TxnReports
    _mvcc: MvccTicks
    _snapshot: SnapshotProgress
    _segments: ChannelSegments
    _permit: WritePermit
    _shared: ChannelGroups

    def __init__(self, channel: PChannel, node: NodeRuntime, session: int) -> None:
        """`session`: of the node, in which the channel was assigned."""
        self._name = name = channel.name
        self._access = channel.access
        self._session, self._node = session, node
        self._limits, self._retention = node.limits, node.retention
        self._meter = node.meters.of(name)
        self._admission = AdmissionPolicy(name, node.limits.message_bytes_max)
        if self._access is AccessMode.READ_ONLY:
            self._admission = replace(self._admission, closed=read_only_refusal(name))
        self._backlog, self._sizes = Backlog(node.limits.backlog_bytes_max), LogSizes()
        self._tick_due = False  # whether data was stored since the last stored tick record
        self._groups = self._messages = 0

    async def started(self, context: Context[_Message]) -> None:
        """Open the log: fence older terms, recover, and write one tick unless read-only."""
        self._context = context
        term = Term(context.term)
        try:
            await self._open(term)
        except Exception as error:
            final = isinstance(error, Fenced)  # a newer owner exists: restarting cannot help
            self._fail(term, opening_refusal_of(error), final=final)
            if not final:
                # The supervisor starts this actor again, without limit, at the next term.
                raise
            context.stop()

    async def receive(self, batch: Sequence[Envelope[_Message]]) -> None:
        """Commit all waiting appends in groups; close a tick with the last group, in one write."""
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
                case Truncate() | SealLog() as request:
                    await self._keep_up(request)
                case DoAtRest() as request:
                    envelope.reply(await request.work())
                case SealOverdue() | SealSegments() | ObeySegmentOrders() as request:
                    self._segments.seal(request, self._end.last_tick)
                case request:
                    self._txn_reports.handle(request, envelope, self._end.last_tick)
        # All CloseTicks of the batch share one tick. It must lie above every append that came with
        # them, so it is taken for the last group.
        await self._commit_all(appends, closes=bool(closes))
        for envelope in closes:
            # The newest closed tick, even if no tick was available now: a caller that needs a newer
            # one asks again.
            envelope.reply(self._admission.closed or self._tail.closed.tick)
        refusing = self._admission.closed is not None
        if closes and not refusing:
            # Progress of transactions goes out once a tick, not with each group: it only feeds
            # leases, which are counted in ticks.
            self._txn_reports.publish(tick_closed=True)
        self._txn_reports.reply_finished(refusing=refusing)

    async def _commit_all(self, appends: Sequence[Envelope[_Message]], *, closes: bool) -> None:
        groups = gather(appends, self._limits)
        for number, group in enumerate(groups, start=1):
            await self._commit(group, closes=closes and number == len(groups))
        if groups:
            return
        # Rollbacks of expired transactions or Flushes may wait for a record.
        due = self._known.transactions.rollbacks_due(()) or self._segments.table.flushable()
        if due or (closes and (self._tick_due or self._admission.closed is not None)):
            await self._commit([], closes=closes)
        elif closes:
            await self._close_idle()

    async def stopped(self) -> None:
        """Close the log, which waits for a running write."""
        await self._node.open_channels.release(self._name)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Counts and positions for metrics and `tidemark actors`; empty until the log is open."""
        serving = self._node.open_channels.find(self._name)
        # May be called at any time: until the log is open, the fields read below are not set.
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
        closed = self._admission.closed or self._node.full
        return {"state": REFUSING, "cause": closed.cause} if closed else {"state": "serving"}

    async def _open(self, term: Term) -> None:
        channel = PChannel(self._name, term, self._access)
        permit = WritePermit(self._name, self._node, self._context.clock, self._session)
        owned = await open_owned_log(channel, self._node, permit)
        recovered = owned.recovered
        self._log, self._permit = owned.log, permit
        self._shared = groups = recovered.groups
        self._known = WriterState(recovered.transactions, recovered.producers, groups.table)
        self._snapshot = SnapshotProgress(recovered.saved)
        self._end = end_after(owned.first, owned.end)
        tick = self._end.last_tick
        # Keepalives start anew: while nobody owned the log, clients could not renew them.
        self._known.transactions.renew(tick)
        if owned.empty:
            self._snapshot.log_start_tick = tick
        self._txn_reports = TxnReports(self._context, self._known.transactions)
        self._mvcc = MvccTicks(tick)
        given = self._node.headers, self._context.random
        self._segments = ChannelSegments(recovered.segments, *given)
        closed = closed_tick(tick, self._end)
        self._tail = Tail(owned.end.next_id, closed, self._limits, self._node.open_channels.memory)
        self._tail.push(owned.first, closed, self._context.clock.monotonic_s())
        if self._access is not AccessMode.READ_ONLY:
            self._context.every(self._limits.seal_check_s, SealOverdue())
        self._known.transactions.limits = self._node.limits.txns  # they may have changed meanwhile
        # Last: from here on other actors and streams find the channel, in a state that is whole.
        self._node.open_channels.publish(
            OpenChannel(
                channel=channel,
                log=self._log,
                tail=self._tail,
                appender=self._context.self,
                backlog=self._backlog,
                mvcc=self._mvcc,
                transactions=self._known.transactions,
                snapshot=self._snapshot,
                segments=self._segments.table,
                groups=groups,
                purges=recovered.purges,
                compactions=recovered.compactions,
                sizes=self._sizes,
            )
        )

    async def _commit(self, group: Sequence[Envelope[_Message]], *, closes: bool) -> None:
        """Sequence, store, publish and acknowledge one group; close a tick with it or alone."""
        acks = GroupAcks(group, self._backlog)
        messages = acks.messages()
        if self._admission.closed is not None:
            acks.finish([self._admission.closed] * len(messages))
            # No tick closes while appends are refused, so nothing else would wake readers for their
            # empty answers. The heartbeat's CloseTick comes through here.
            self._tail.wake_all()
            return
        if self._admission.full is not (full := self._node.full):
            self._admission = replace(self._admission, full=full)
        parts, assigner = self._segments.placing(messages)
        if parts is not None:
            messages = acks.apart(parts)
        due = self._known.transactions.rollbacks_due(messages)
        # All ticks in one reservation, before the decision: `sequence` is pure and cannot wait for
        # more. Refused messages use none, so this is an upper bound; the rest is skipped.
        count = acks.ticks + due + closes
        count += 0 if assigner is None else assigner.ticks_needed
        try:
            first_tick = await self._permit.take(count, barrier_of(messages))
        except Refused as error:
            acks.finish([error.refusal] * len(messages))
            return
        self._meter.ticks_allocated += count
        # No await from here until `log.append` or `_announce`: the write lease was checked for
        # this turn of the loop, and nothing else fences a tick that is only announced.
        tick = TimeTick(first_tick + count - 1) if closes else None
        sequenced = self._sequence(messages, first_tick, assigner)
        records = self._with_tick(sequenced, tick)
        try:
            await self._store(records, sequenced, acks)
        except (Fenced, WriterFailed) as error:
            refusal = self._refuse(error)
            acks.finish(failed_outcomes(error, refusal, sequenced.outcomes))
            return
        if tick is not None and not (records and records[-1].kind == MessageType.TIME_TICK):
            # No record carries this tick, so readers learn of it from memory only.
            self._announce(tick)
        acks.finish(sequenced.outcomes)
        self._txn_reports.publish()

    def _sequence(
        self, messages: Sequence[NewMessage], first_tick: TimeTick, assigner: SegmentAssigner | None
    ) -> Sequenced:
        if assigner is not None:
            # The first ticks become ids of new segments: ticks are unique in the whole cluster.
            first_tick = assigner.begin(first_tick)
        end, admission = self._end, self._admission
        return sequence(messages, first_tick, end, admission, self._known, assigner)

    def _with_tick(self, sequenced: Sequenced, tick: TimeTick | None) -> tuple[Record, ...]:
        """The group's records, with a tick record behind data; none on an idle channel.

        On an idle channel the tick is announced in memory: readers and cuts need it to advance,
        a restart does not. Milvus also stores one for each new consumer; here announced ticks
        reach every consumer, and a read that writes would never find the log at rest.
        """
        records = sequenced.records
        if tick is None or not (records or self._tick_due):
            return records
        return (*records, time_tick_record(tick, sequenced.end))

    async def _store(
        self, records: tuple[Record, ...], sequenced: Sequenced, acks: GroupAcks
    ) -> None:
        """Make the records durable, then readable."""
        if not records:
            return
        # Acknowledges `memory` appends: their ids and ticks are final, and they ask for nothing
        # durable.
        when_written = acks.sequenced(sequenced.outcomes)
        began_s = self._context.clock.monotonic_s()
        # Nothing in between: the log's thread needs the interpreter, so whatever runs here delays
        # the write and, with it, the answers.
        await self._log.append(records, when_written)
        # A lone client is acknowledged first. It still reads its own write, as no other task runs
        # before the tail has it. With more appends waiting, the next group should start soonest.
        if not self._context.waiting:
            acks.durable(sequenced.outcomes)
        now_s = self._context.clock.monotonic_s()
        self._meter.stores.add(now_s - began_s)
        last = records[-1]
        self._tick_due = last.kind != MessageType.TIME_TICK
        self._end = sequenced.end if self._tick_due else end_after(records, sequenced.end)
        data = [record for record in records if record.kind != MessageType.TIME_TICK]
        counts = StoredCounts(data, self._segments.table.collections)
        self._groups += 1
        self._messages += last.next_id - records[0].base_id
        ended, ticks = self._known.transactions.stored(), len(records) - len(data)
        counts.add_to(self._meter, self._segments.table, ended, ticks=ticks)
        self._node.meters.traffic.appended(count_group(data))
        self._mvcc.stored(records)
        self._tail.push(records, closed_tick(last.last_tick, self._end), now_s)
        self._sizes.stored(records)
        if ended:
            self._segments.release(ended)
            self._shared.end_txns(ended)

    async def _close_idle(self) -> None:
        with suppress(Refused):
            self._announce(await self._permit.take(1, TimeTick(0)))
            self._meter.ticks_allocated += 1

    def _announce(self, tick: TimeTick) -> None:
        """Close a tick in memory only."""
        # Nothing is stored, but the next message must get a larger tick than readers were promised.
        self._end = replace(self._end, last_tick=tick)
        self._tail.close(closed_tick(tick, self._end), self._context.clock.monotonic_s())

    def _refuse(self, error: Fenced | WriterFailed) -> Refusal:
        """End writing for this incarnation. Reads continue unless a newer owner has the log.

        Not retried: after a failed sync the kernel may mark the pages clean, so a second sync could
        succeed without the data being on disk. A new term rereads the disk.
        """
        refusal = refusal_of(error)
        self._admission = replace(self._admission, closed=refusal)
        if isinstance(error, Fenced):
            self._fail(self._end.term, refusal, final=True)
            # No restart: only the newer owner may write now.
            self._context.stop()
        else:
            log.warning("appends are refused, reads continue: %s", refusal.cause)
            # Restarting before the disk recovers would only burn terms.
            self._context.after(self._limits.probe_s, PROBE)
        return refusal

    def _fail(self, term: Term, refusal: Refusal, *, final: bool) -> None:
        if final:
            self._node.open_channels.withdraw(self._name, term)
        self._node.open_channels.report(ChannelFailed(self._name, term, refusal, final))

    async def _probe(self) -> None:
        if not await self._node.wal.why_unwritable(self._name):
            # Restarting is the only way to a new term, and the new term reads back what the disk
            # holds.
            raise StorageCameBack(f"{self._name}: the storage takes writes again")
        self._context.after(self._limits.probe_s, PROBE)

    async def _keep_up(self, request: LogUpkeep) -> None:
        """Drop or seal segments. A failure is logged; appends continue unless the log is fenced."""
        saved = self._snapshot.checkpoint
        # Without a snapshot a restart replays the whole log, so all of it is needed.
        if self._admission.closed is not None or saved is None:
            return
        # Space is given back only where a record lies behind it: the next tick is stored.
        self._tick_due |= isinstance(request, SealLog)
        kept_id = min(saved.id, self._end.open_txn_id or saved.id)
        now_ms = self._context.clock.wall_ms()
        try:
            await keep_up(self._log, request, kept_id, self._retention.now, now_ms)
        except (Fenced, WriterFailed) as error:
            self._refuse(error)
        except WalError as error:
            log.warning("%s: cannot drop or seal segments: %s", self._name, error)
