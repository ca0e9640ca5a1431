"""Flow control and orderly end of a stream of appends; both protocols' append streams use it.

It counts what is unanswered and writes answers; it never looks at a request or an answer.

How a stream ends: whatever the reason, it first stops reading requests, then answers those in
flight, then sends its last message. Back-pressure: while `produce_inflight_bytes_max` bytes are
unanswered or unread, requests are not read, so HTTP/2's window makes the client wait.

Why the Appender's callback writes the answers: a task for each append, or waking a writer task,
costs more than everything else a stream does for a small append. The writer task only sends
answers that do not fit the peer's window.

Next: broker/node/append/intake.py
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from broker.core.pressure.rate_limit import UNLIMITED, RateLimit, worst
from broker.core.pressure.token_bucket import Taken
from broker.edge.rpc.access.access import Actions
from broker.edge.rpc.begun_txns import within_txn_limit
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.failures import refusal_of
from broker.edge.rpc.incoming.stream_turns import StreamTurns
from broker.edge.rpc.middleware import Call
from broker.edge.rpc.own_limit import OwnLimit
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.request_metadata import producer_channel
from broker.model.batch import Durability
from broker.model.failure import Refusal, Refused, StreamingCode, Throttled
from broker.model.ids import PChannelName, TimeTick
from broker.model.message import Appended, NewMessage
from broker.node.append.barrier_queue import BarrierQueue
from broker.node.append.intake import append_then
from broker.node.appender_messages import PlacedApart, RunOutcome
from broker.node.directory_messages import Locate, Located
from broker.transport import Stalled
from schemas.encoding.oversize import FrameTooLarge
from schemas.encoding.varint import Malformed

REQUEST_OVERHEAD_BYTES: Final = 512
"""Counted for a request beside its bytes, so that the number of empty messages is bounded too."""
HELD_OVERHEAD_BYTES: Final = 8 * 1024
"""Counted for an append that waits for its barrier tick: with the default limits about 4,000 may
wait on one stream."""
BACKLOG_PAUSE_S: Final = 0.005
LEFT_GRACE_S: Final = 0.5
"""The stream stays open this long after its pchannel left, so that requests already on their way
get an answer that says they were not stored."""

GONE_CODES: Final = frozenset({StreamingCode.ON_SHUTDOWN, StreamingCode.CHANNEL_FENCED})
"""Outcomes that mean the pchannel has left this node: every later append would fail too."""


Settle = Callable[[tuple[RunOutcome, ...]], None]


@dataclass(frozen=True, slots=True)
class _Held:
    """An append that waits for its barrier tick; `settle` gets its outcome."""

    message: NewMessage
    settle: Settle


@asynccontextmanager
async def open_append_flow(
    call: Call, directory: Proxy, limits: EdgeLimits, greeting: bytes
) -> "AsyncIterator[AppendFlow]":
    """Locate the pchannel that the call's header names, and send `greeting` to its producer.

    Raises Refused: INVALID_ARGUMENT for a bad header, else as `Locate` refuses.
    """
    channel = producer_channel(call.metadata)
    located = await directory.demand(Locate(channel.name, channel.term, writes=True))
    call.stream.pass_over(limits.passed_over_bytes_max)
    await call.stream.write_batch([greeting])
    with call.meters.producing(channel.name), call.quotas.stream_of(call.identity):
        yield AppendFlow(call, located, limits)


class AppendFlow:
    """The flow of one call's stream, whose requests are appended to `located`."""

    def __init__(self, call: Call, located: Located, limits: EdgeLimits) -> None:
        self.located = located
        self.turns = StreamTurns(call.reader.gate)
        self._call = call
        self._stream = call.stream
        self._located = located
        self._limits = limits
        self._reading = anyio.CancelScope()
        self._failure: Refusal | None = None
        self._inflight_cost = 0
        self._answered = asyncio.Event()
        self._answers: list[bytes] = []
        self._answers_cost = 0
        self._to_write = asyncio.Event()
        self._over = False
        self._tell_limit: Callable[[RateLimit], bytes] | None = None
        self._told = UNLIMITED
        self._own_limit = OwnLimit(self._tell)
        self._held = BarrierQueue[_Held](located.oracle, self._append_held, _refuse_held)

    @property
    def channel(self) -> PChannelName:
        """The pchannel that the stream appends to."""
        return self._located.channel.name

    def has_collection(self, vchannel: str) -> bool:
        """Whether a message of the log created a collection on the vchannel."""
        return self._located.view.has_collection(vchannel)

    def has_living_collection(self, vchannel: str) -> bool:
        """Whether that collection was not dropped since."""
        return self._located.view.has_living_collection(vchannel)

    def tell_limits(self, encode: Callable[[RateLimit], bytes]) -> None:
        """Have `run` send each change of the rate of appends, encoded so and framed."""
        self._tell_limit = encode

    async def run(self, read: Callable[[], Awaitable[None]]) -> None:
        """Run `read` until the client half-closes, the pchannel leaves or the server drains.

        Returns once all that was read is answered. Raises nothing that the peer can cause; call
        `raise_failure` after the stream's last message.
        """
        # Calls `end` at once if a drain began during the handshake.
        self._call.end_with(self.end)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._end_when_left)
                tasks.start_soon(self._held.run)
                if self._tell_limit is not None:
                    tasks.start_soon(self._tell_changes)
                with self._reading:
                    try:
                        await read()
                    except (Malformed, FrameTooLarge, Stalled) as error:
                        self._failure = refusal_of(error)
                # Every append is answered by its deadline; after that only the peer keeps us.
                limits, wait_s = self._limits, self._located.oracle.wait_s_max
                with anyio.move_on_after(wait_s + limits.append_deadline_s + limits.flush_s):
                    await self._wait_for_inflight(0)
                tasks.cancel_scope.cancel()
        finally:
            # Appends that are answered later must not write to a stream that has ended.
            self._over = True
            self._own_limit.close()

    def raise_failure(self) -> None:
        """Raise Refused with the reason of the end, unless the client half-closed."""
        if self._failure is not None:
            raise Refused(self._failure.code, self._failure.cause)

    async def admit(self, size_bytes: int, cost: int) -> None:
        """Wait until `size_bytes` fit the rate and the Appender's backlog; then count `cost`."""
        pressure = self._located.pressure
        if pressure.limit is not UNLIMITED:
            await self._call.pace.wait(lambda: pressure.limit, size_bytes)
        await self._wait_for_backlog(size_bytes)
        self.count(cost)

    @property
    def limited(self) -> bool:
        """Whether there are limits; if so, call `charge` before `admit`."""
        return self._call.quotas.limited

    def holds(self, actions: Actions, vchannel: str) -> bool:
        """Whether the stream did this to the vchannel before, and still may.

        Asked for each batch, so it makes no coroutine; if not, `lacking` decides.
        """
        return self._call.access.holds(actions, vchannel)

    async def lacking(self, actions: Actions, vchannel: str) -> Refusal | None:
        """Why the caller may not do this to the vchannel, or to the pchannel for ""."""
        access, channel = self._call.access, vchannel or self.channel
        if access.holds(actions, channel):
            return None
        return await access.refusal(actions, channel)

    async def charge(self, vchannel: str, size_bytes: int, messages: int) -> Taken | Throttled:
        """Count an append against its limits: how long it is to wait, or its refusal."""
        quotas = self._call.quotas
        # No `rate_limit` frame: it would also stop other collections on this stream.
        if (full := self._located.storage.refusal(vchannel)) is not None:
            quotas.count_refused()
            return full
        subjects = await quotas.subjects(vchannel, self._call.identity)
        taken = quotas.take_in(subjects, size_bytes, messages)
        if isinstance(taken, Throttled):
            self._own_limit.slowed(quotas.in_bytes_s(subjects))
        elif taken.wait_s > 0:
            self._own_limit.slowed(quotas.in_bytes_s(subjects), taken.wait_s)
        return taken

    async def _wait_for_backlog(self, size_bytes: int) -> None:
        backlog = self._located.backlog
        # An empty backlog takes an append of any size: one above the bound would wait for ever.
        while backlog.bytes_waiting and backlog.bytes_waiting + size_bytes > backlog.bytes_max:
            # Other streams fill the same backlog, and their answers wake nobody here: poll as well.
            self._answered.clear()
            with anyio.move_on_after(BACKLOG_PAUSE_S):
                await self._answered.wait()

    def count(self, cost: int) -> None:
        """Count `cost` as unanswered, until `answer` is called with it."""
        self._inflight_cost += cost

    def append(
        self,
        messages: tuple[NewMessage, ...],
        settle: Settle,
        durability: Durability = Durability.FSYNC,
    ) -> None:
        """Append what `admit` admitted; `settle` gets an outcome for each, perhaps at once.

        Ends the stream when an outcome says that the pchannel has left this node.
        """
        audited = self._call.audited
        if audited.vchannels is not None:
            for message in messages:
                audited.wrote_to(message.vchannel)

        def answered(outcomes: tuple[RunOutcome, ...]) -> None:
            settle(outcomes)
            for message, outcome in zip(messages, outcomes, strict=True):
                if not isinstance(outcome, Appended) and self._is_gone(outcome, message.vchannel):
                    break

        appended: tuple[NewMessage, ...] = messages
        placed: Settle = answered
        if self.limited:
            quotas, identity = self._call.quotas, self._call.identity
            view = self._located.view
            appended, placed = within_txn_limit(messages, answered, quotas, identity, view)
        if appended:
            within_s = self._limits.append_deadline_s
            append_then(self._located, appended, placed, deadline_s=within_s, durability=durability)
        else:
            placed(())

    def passed(self, barrier: TimeTick) -> bool:
        """Whether an append with this barrier tick need not wait for the oracle."""
        return self._located.oracle.passed(barrier)

    def append_later(self, message: NewMessage, settle: Settle, within_s: float | None) -> None:
        """Append the message once the oracle has passed its barrier tick; see BarrierQueue.

        The caller has counted its cost. `within_s`: how long it may wait, if its client says so.
        When the stream ends before that, for any reason but a half-close, nothing is stored.
        """
        self._held.put(TimeTick(message.barrier_tick), _Held(message, settle), within_s)

    async def _append_held(self, held: _Held) -> None:
        await self._wait_for_backlog(held.message.size)
        self.append((held.message,), held.settle)

    async def wait_for_room(self) -> None:
        """Wait until no more than `produce_inflight_bytes_max` is unanswered."""
        await self._wait_for_inflight(self._limits.produce_inflight_bytes_max)

    def answer(self, answers: list[bytes], cost: int) -> None:
        """Send these, framed, behind all earlier answers; `cost` was counted for their requests."""
        if self._over:
            return
        # While earlier answers wait, later ones queue behind them.
        if self._answers or not self._stream.write_at_once(b"".join(answers)):
            self._answers += answers
            self._answers_cost += cost
            self._to_write.set()
        else:
            self._settle(cost)

    def audit_refused(self, refusal: Refusal, vchannel: str) -> None:
        """A message of the stream is refused, and was not handed to `append`."""
        self._call.audited.part_refused(refusal, vchannel)

    def end(self, refusal: Refusal) -> None:
        """Stop reading, for this reason unless there is one already; `run` does the rest."""
        if self._failure is None:
            self._failure = refusal
        self._reading.cancel()
        self._held.close(Refusal(refusal.code, f"{refusal.cause}; nothing was stored"))

    def _is_gone(self, outcome: Refusal | PlacedApart, vchannel: str) -> bool:
        """Whether the pchannel has left this node; then the stream ends."""
        if isinstance(outcome, PlacedApart):
            refused = [it for it in outcome.outcomes if isinstance(it, Refusal)]
            return any(self._is_gone(it, vchannel) for it in refused)
        if outcome.code not in GONE_CODES:
            self.audit_refused(outcome, vchannel)
            return False
        # Also for CHANNEL_FENCED: either way a client has to look up the new owner.
        self.end(Refusal(StreamingCode.ON_SHUTDOWN, outcome.cause))
        return True

    async def _wait_for_inflight(self, cost_max: int) -> None:
        # No await between the look and `clear`, so no answer is missed.
        while self._inflight_cost > cost_max:
            self._answered.clear()
            await self._answered.wait()

    async def _tell_changes(self) -> None:
        while True:
            changed = self._located.pressure.changed
            self._tell()
            await changed.wait()

    def _tell(self) -> None:
        limit = worst((self._located.pressure.limit, self._own_limit.limit))
        if self._tell_limit is not None and limit != self._told:
            self._told = limit
            self.answer([self._tell_limit(limit)], 0)

    async def _write(self) -> None:
        """Write answers that did not fit the peer's window.

        They stay in `_answers` during the write, so that no later answer overtakes them.
        """
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            while self._answers:
                # A copy: more answers may be queued during the write.
                answers, cost = self._answers[:], self._answers_cost
                await self._stream.write_framed(b"".join(answers))
                del self._answers[: len(answers)]
                self._answers_cost -= cost
                self._settle(cost)

    def _settle(self, cost: int) -> None:
        self._inflight_cost -= cost
        self._answered.set()

    async def _end_when_left(self) -> None:
        """End an idle producer too; it would otherwise notice at its next append only."""
        await self._located.closed.wait()
        await anyio.sleep(LEFT_GRACE_S)
        channel = self._located.channel
        cause = f"{channel.name} left this node at term {channel.term}; locate the channel again"
        self.end(Refusal(StreamingCode.ON_SHUTDOWN, cause))


def _refuse_held(held: _Held, refusal: Refusal) -> None:
    held.settle((refusal,))
