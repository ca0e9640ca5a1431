"""Serves one consumer: from the tail in memory, from the log when it is behind.

It keeps no position: each Pull carries a cursor, so a restart loses nothing. It keeps records read
ahead from the log, and the transactions open at the cursor.

Next: broker/core/log/delivery.py
Next: broker/edge/rpc/scanner_proxy.py
"""

import logging
from collections.abc import Mapping, MutableSet, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.core.log.assembler import Assembler
from broker.core.log.delivery import DeliveryResult, Selection, announce, catch_up, deliver
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import FIRST_MESSAGE_ID, MessageId, PChannelName, TimeTick
from broker.model.position import ReadPosition
from broker.model.record import Record
from broker.node.scanner_messages import CloseScanner, Delivery, Pull, ScannerMessage, Wake
from broker.node.scanner_records import READ_BYTES_MIN, ScannerRecords
from broker.node.space.given_back import ReadablePart, gone_to
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import HoldingReader, OpenChannel
from broker.node.state.wal_refusals import refusal_of
from broker.ports.wal import OutOfRange

EMPTY_READS_MAX = 16
"""After so many reads without a match the consumer gets its new cursor, so it can resume there."""

READ_ON_S_MAX = 2.0
"""So long a Pull reads on: its caller gives up after 10 s, and needs the new cursor well before."""

SHOWN_MAX = 16
"""Vchannels named in the statistics of a consumer of several."""

log = logging.getLogger("broker.node")


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """A timer: stop when no consumer has pulled for `scanner_idle_s`."""


_Message = ScannerMessage | IdleTimeout


@dataclass(slots=True)
class _Waiting:
    """A Pull that is not answered yet; `cursor` moves on as records are skipped."""

    envelope: Envelope[_Message]
    cursor: ReadPosition
    bytes_max: int
    since_s: float


_NO_DELIVERY = Delivery((), None, ReadPosition(FIRST_MESSAGE_ID))


class Scanner(Actor[_Message]):
    """See the module."""

    _context: Context[_Message]
    _channel: OpenChannel
    _readable: ReadablePart

    def __init__(
        self,
        name: PChannelName,
        selection: Selection,
        node: NodeRuntime,
        *,
        ignores_pause: bool = False,
    ) -> None:
        self._name = name
        self._selection = selection
        self._node = node
        self._ignores_pause = ignores_pause
        self._begun = False
        self._waiting: _Waiting | None = None
        self._records = ScannerRecords(node.limits.read_ahead_bytes_max)
        self._assembler: Assembler | None = None
        self._meter = node.meters.of(name)
        self._broken = 0
        self._pulled_s = 0.0
        # Of what the consumer was given: one that takes no more asks for no more.
        self._given: ReadPosition | None = None
        self._readers: MutableSet[HoldingReader] = set()

    async def started(self, context: Context[_Message]) -> None:
        """Bind to the channel's current term: the next term starts its own Scanners."""
        channel = self._node.open_channels.find(self._name)
        # The channel was withdrawn while this actor started.
        if channel is None:
            context.stop()
            return
        self._context, self._channel = context, channel
        self._readable = ReadablePart(self._selection, channel.purges)
        self._records.begin(channel)
        self._readers = channel.readers
        self._readers.add(self)
        self._pulled_s = context.clock.monotonic_s()
        context.every(self._node.limits.scanner_idle_s / 2, IdleTimeout())

    def stop_requested(self) -> None:
        """Give up a read of the log: a Kafka that is away would keep the channel from closing."""
        self._records.give_up()

    async def stopped(self) -> None:
        """Hold back retention no more."""
        self._readers.discard(self)

    @property
    def reads(self) -> str:
        """See HoldingReader."""
        among = sorted(self._selection.among or ())
        return self._selection.vchannel or " ".join(among[:SHOWN_MAX]) or "every vchannel"

    @property
    def vchannels(self) -> frozenset[str]:
        """See HoldingReader."""
        chosen = self._selection
        return frozenset({chosen.vchannel}) if chosen.vchannel else chosen.among or frozenset()

    @property
    def read_to(self) -> TimeTick:
        """See HoldingReader."""
        given = TimeTick(0) if self._given is None else self._given.tick
        return max(given, self._selection.floor)

    @property
    def needed_from(self) -> MessageId | None:
        """See HoldingReader. What was delivered may be asked for again, if the answer was lost."""
        at = self._given
        if at is None or at.oldest:
            return None
        return at.next_id if at.open_id is None else min(at.open_id, at.next_id)

    async def receive(self, batch: Sequence[Envelope[_Message]]) -> None:
        """Answer a Pull at once, or keep it until there is something to deliver."""
        for envelope in batch:
            if self._records.given_up:
                return  # the rest is for the next scanner
            match envelope.message:
                case Pull() as pull:
                    self._take(envelope, pull)
                    await self._serve()
                case Wake():
                    await self._serve()
                case IdleTimeout():
                    self._stop_if_idle()
                case CloseScanner():
                    self._context.stop()
                case _:
                    assert_never(envelope.message)

    def statistics(self) -> Mapping[str, int | float | str]:
        """The selection, whether a Pull waits, the position, and what is cached.

        `next_id` and `tick`: what the consumer was given ends there; 0 before its first Pull.
        """
        return {
            "vchannel": self._selection.vchannel,
            "among": " ".join(sorted(self._selection.among or ())[:SHOWN_MAX]),
            "waiting": int(self._waiting is not None),
            "paused": int(self._held_back()),
            "next_id": self._given.next_id if self._given else 0,
            "tick": self._given.tick if self._given else 0,
            "cached_bytes": self._records.ahead_bytes,
            "open_txns": self._assembler.open_count if self._assembler else 0,
            "open_txn_bytes": self._assembler.held_bytes if self._assembler else 0,
            "violations": self._broken,
        }

    def _take(self, envelope: Envelope[_Message], pull: Pull) -> None:
        """Replace a waiting Pull, which is answered empty: its caller may have left."""
        if self._waiting is not None:
            self._waiting.envelope.reply(Delivery((), None, self._waiting.cursor))
        self._given = pull.cursor
        now_s = self._pulled_s = self._context.clock.monotonic_s()
        self._waiting = _Waiting(envelope, pull.cursor, pull.bytes_max, now_s)

    async def _serve(self) -> None:
        waiting = self._waiting
        if waiting is None:
            return
        # Nobody reads the answer to a Pull whose caller has left, so no log is read for it.
        answer = await self._answer(waiting) if waiting.envelope.wanted() else _NO_DELIVERY
        if answer is None:
            # No await since the tail was found at its end, so no wake-up is missed.
            self._channel.tail.wait(self._selection.vchannel, self._context.self)
            return
        self._waiting = None
        if isinstance(answer, Delivery):
            self._given = answer.cursor
            traffic, vchannel = self._node.meters.traffic, self._selection.vchannel
            self._meter.scanned += traffic.delivered(vchannel, answer.items)
        waiting.envelope.reply(answer)

    async def _answer(self, waiting: _Waiting) -> Delivery | Refusal | None:
        """Messages, else a newer closed tick, else empty after `pull_wait_s`. None: wait."""
        if self._held_back() or self._awaits_purge(waiting.cursor):
            return self._nothing_yet(waiting)
        self._begun = True
        tail = self._channel.tail
        if waiting.cursor.next_id > tail.next_id:
            return self._beyond_end(waiting.cursor)
        waiting.cursor = self._readable.begun(waiting.cursor)
        purged = await self._readable.refusal(waiting.cursor, self._channel)
        if purged is not None:
            return purged
        assembler = self._assembler
        # Not where the last answer ended: a new consumer, a Pull repeated because its answer was
        # lost, or a group, which reads at two places.
        if assembler is None or not assembler.is_at(waiting.cursor):
            prepared = await self._prepared(waiting)
            if isinstance(prepared, Refusal):
                return prepared
            assembler = self._assembler = prepared
        at = waiting.cursor
        # Nothing new but perhaps a tick: thousands of idle readers are woken for no more.
        if at.next_id == tail.next_id and at.open_id is not None and not at.oldest:
            return self._at_end(waiting, DeliveryResult((), at))
        return await self._read_on(waiting, assembler)

    async def _read_on(self, waiting: _Waiting, assembler: Assembler) -> Delivery | Refusal | None:
        """Read what follows the cursor, until there is something for the consumer."""
        tail, read_bytes, clock = self._channel.tail, waiting.bytes_max, self._context.clock
        until_s = clock.monotonic_s() + READ_ON_S_MAX
        for _ in range(EMPTY_READS_MAX):
            end_id = tail.next_id
            records = await self._read(waiting.cursor, read_bytes)
            # Of a vchannel that has little among others, more is read at a time.
            read_bytes *= 2
            if isinstance(records, Refusal | Delivery):
                return records
            if not records and waiting.cursor.next_id < end_id:
                # A restored log may end where space was given back.
                waiting.cursor = replace(waiting.cursor, next_id=end_id, inside=0)
                assembler.next_id = end_id
            picked = deliver(
                records, waiting.cursor, self._readable.selection, waiting.bytes_max, assembler
            )
            waiting.cursor = picked.cursor
            # Good messages before the contradiction come first; the next Pull meets it again.
            if picked.broken and not picked.items:
                refusal = await self._unless_given_back(picked, assembler)
                if refusal is not None:
                    return refusal
                continue
            if picked.cursor.next_id == tail.next_id:
                return self._at_end(waiting, picked)
            self._records.keep(records, picked.cursor.next_id)
            if picked.items:
                return Delivery(picked.items, None, picked.cursor)
            if clock.monotonic_s() >= until_s or not waiting.envelope.wanted():
                break
        return Delivery((), None, waiting.cursor)

    async def _read(
        self, cursor: ReadPosition, bytes_max: int
    ) -> Sequence[Record] | Refusal | Delivery:
        """Records that follow the cursor, or the answer to the Pull."""
        records = await self._records.read(cursor.next_id, bytes_max)
        if isinstance(records, Refusal) or self._readable.is_checked():
            return records
        # `deliver` would skip what was purged during the read, and the reader would not know.
        purged = await self._readable.refusal(cursor, self._channel)
        if purged is None and not self._readable.is_checked():
            return Delivery((), None, cursor)  # the next Pull checks again
        return records if purged is None else purged

    async def _unless_given_back(
        self, picked: DeliveryResult, assembler: Assembler
    ) -> Refusal | None:
        """None for a transaction that was dropped or purged in part: it is passed over."""
        record, purges = picked.incomplete, self._channel.purges
        if record is not None:
            try:
                given_back = await gone_to(record.vchannel, purges, self._node.catalog)
            except Refused as error:
                return error.refusal
            assembler.given_back[record.vchannel] = given_back
            if record.base_tick <= given_back:
                return None
        return self._inconsistent(picked)

    def _held_back(self) -> bool:
        """Whether a pause applies: only before the first read, as in Milvus."""
        return not self._begun and self._node.pause.holds(ignores_pause=self._ignores_pause)

    def _awaits_purge(self, cursor: ReadPosition) -> bool:
        """Whether it is being decided what is oldest: this reader is too late to hold that."""
        return cursor.oldest and not self.vchannels.isdisjoint(self._channel.purging)

    def _nothing_yet(self, waiting: _Waiting) -> Delivery | None:
        """An empty answer, without a tick: a tick promises that all before it was delivered."""
        waited_s = self._context.clock.monotonic_s() - waiting.since_s
        if waited_s < self._node.limits.pull_wait_s:
            return None
        return Delivery((), None, waiting.cursor)

    async def _prepared(self, waiting: _Waiting) -> Assembler | Refusal:
        """An assembler of the transactions open at the cursor, replayed from the oldest begin."""
        if waiting.cursor.oldest:
            # Retention may have run since the opening, as while a pause held this reader back.
            first_id = self._channel.log.bounds().first_id
            moved_id = MessageId(max(waiting.cursor.next_id, first_id))
            waiting.cursor = replace(waiting.cursor, next_id=moved_id)
            self._given = replace(waiting.cursor, oldest=False)  # it holds what is there
        open_id = await self._open_id(waiting.cursor)
        if isinstance(open_id, Refusal):
            return open_id
        partial, uptos = waiting.cursor.partial, self._channel.compactions.uptos
        assembler, read_bytes = Assembler(open_id, partial=partial, compacted=uptos), READ_BYTES_MIN
        while assembler.next_id < waiting.cursor.next_id:
            records = await self._records.read(assembler.next_id, read_bytes)
            read_bytes *= 2
            if isinstance(records, Refusal):
                return records
            catch_up(records, waiting.cursor, assembler)
            if assembler.next_id >= waiting.cursor.next_id:
                self._records.keep(records, assembler.next_id)
            if not records:  # a restored log may end where space was given back
                assembler.next_id = waiting.cursor.next_id
        # Bodies are absorbed by whole records, so this may lie past the cursor.
        waiting.cursor = replace(waiting.cursor, next_id=assembler.next_id)
        return assembler

    async def _open_id(self, cursor: ReadPosition) -> MessageId | Refusal:
        """The begin of the oldest transaction that is open at the cursor."""
        if cursor.open_id is not None:
            return cursor.open_id
        next_id = cursor.next_id
        if next_id == self._channel.tail.next_id:
            confirmed_id = self._channel.tail.closed.last_confirmed_id
        else:
            records = await self._records.read(next_id, 1)
            if isinstance(records, Refusal):
                return records
            confirmed_id = records[0].last_confirmed_id if records else next_id
        bounds = self._channel.log.bounds()
        # The tail may still hold what retention removed, and retention may have run since the read
        # above: without this check the replay would begin behind the cursor and skip the rest.
        if next_id < bounds.first_id:
            return refusal_of(OutOfRange(self._name, next_id, bounds.first_id, bounds.next_id))
        return max(min(confirmed_id, next_id), bounds.first_id)

    def _inconsistent(self, picked: DeliveryResult) -> Refusal:
        """Refuse to read on: the log contradicts itself here, and skipping would hide a loss."""
        self._broken += 1
        if picked.disordered:
            self._meter.tick_violations += 1
        else:
            self._meter.count_mismatches += 1
        cause = f"{self._name} cannot be read beyond this: {picked.broken}"
        log.error("%s", cause)
        return Refusal(StreamingCode.UNRECOVERABLE, cause)

    def _at_end(self, waiting: _Waiting, picked: DeliveryResult) -> Delivery | None:
        """The answer at the end of the log: items with the closed tick, or None to wait.

        When storage refuses writes no newer tick closes, but a reader may wait for the current one:
        so an empty answer repeats it.
        """
        self._records.drop()
        tick = announce(self._channel.tail.closed, picked.cursor, self._selection)
        if tick is not None:
            assert self._assembler is not None
            # The consumer will hold this tick for closed: a later record below it is a violation.
            self._assembler.seen_tick = max(self._assembler.seen_tick, tick.tick)
            at = picked.cursor
            cursor = ReadPosition(
                at.next_id, tick.tick, at.open_id, at.inside, at.partial, purged=at.purged
            )
            return Delivery(picked.items, tick, cursor)
        if picked.items:
            return Delivery(picked.items, None, picked.cursor)
        waited_s = self._context.clock.monotonic_s() - waiting.since_s
        if waited_s >= self._node.limits.pull_wait_s:
            closed = self._channel.tail.closed
            known = closed if closed.tick > self._selection.floor else None
            return Delivery((), known, picked.cursor)
        return None

    def _beyond_end(self, cursor: ReadPosition) -> Refusal:
        offsets = self._channel.offsets()
        return Refusal(
            StreamingCode.INVALID_ARGUMENT,
            f"{self._name}: message id {cursor.next_id} is not written yet; the log holds"
            f" [{offsets.first_id}, {offsets.next_id})",
        )

    def _stop_if_idle(self) -> None:
        idle_s = self._context.clock.monotonic_s() - self._pulled_s
        if idle_s >= self._node.limits.scanner_idle_s:
            self._context.stop()
