"""One pchannel's producer: keeps a stream open, and each append alive until its answer.

It reopens the stream and completes the futures of the callers; `outbox.py` decides what to send,
what to send again and what to fail. Callers wait on futures, and one timer serves all deadlines: a
task or a cancel scope for each append would cost more than the append.

Next: broker/client/append/producer_stream.py
"""

import asyncio
from collections import deque
from typing import Protocol

import anyio

from broker.client.append.outbox import Expired, Outbox, PendingAppend
from broker.client.append.producer_stream import (
    AnswerSink,
    AppendCodec,
    BatchFailed,
    ProduceCodec,
    ProducerStream,
)
from broker.client.errors import (
    BadTarget,
    ClosedClient,
    DeadlineExceeded,
    NodeUnreachable,
    OutcomeUnknown,
    OutdatedTarget,
    ServerRefusal,
    TidemarkError,
)
from broker.client.net.assignment_table import Location
from broker.client.net.backoff import FOLLOWED_MS_MAX, Backoff
from broker.client.net.network import Network
from broker.client.net.retry_rules import RetryVerdict, is_wrong_node, lacks_right
from broker.client.net.until_first import until_first
from broker.client.net.wait_report import Wait
from broker.client.refusal_kinds import refusal
from broker.model.channel import PChannel
from broker.model.failure import StreamingCode
from broker.model.ids import PChannelName
from schemas.wire import Produced, ProduceFailed

SILENCE_S = 5.0
"""A stream is aborted when an append on it expired and no answer came for this long."""

OWNER = "a node that takes appends"

TOLD_S_MAX = 5.0
"""The longest pause that a server may ask for: a limit may be raised meanwhile."""

MOVED_S = 2.0
"""How long to wait for answers and refusals of an owner that has been replaced."""

AnswerFuture = asyncio.Future[Produced]


class Waiter(Protocol):
    """Gets the answer of an append or its error: an `AnswerFuture`, or what stands for several."""

    def done(self) -> bool: ...

    def set_result(self, result: Produced, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Producer(AnswerSink):
    """Appends to one pchannel. `run` must run in a task for as long as anything is offered.

    Sends numbered batches if the outbox has sequence numbers, else single messages over Produce.
    """

    def __init__(
        self, name: PChannelName, network: Network, outbox: Outbox[Waiter], *, resend: bool
    ) -> None:
        self._name = name
        self._network = network
        self._resend = resend
        self._loop = asyncio.get_running_loop()
        self._outbox = outbox
        self._work = asyncio.Event()
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stream: ProducerStream | None = None
        self._location: Location | None = None
        self._backoff = Backoff(max_ms=FOLLOWED_MS_MAX)
        self._answered_s = 0.0
        self._closing = False
        self._revision = 0
        self._last_error: TidemarkError | None = None
        self._wait: Wait | None = None
        self.ended = anyio.Event()
        """`run` is over, and every caller has its answer."""

    @property
    def has_room(self) -> bool:
        """Whether `offer` may be called; otherwise `wait_for_room` first."""
        return not self._for_room and self._room() > 0

    def offer(
        self, message: bytes, deadline_at_s: float, *, once: bool = False
    ) -> PendingAppend[AnswerFuture]:
        """Queue one encoded message; its waiter gets the answer or the error.

        `once`: fail it instead of sending it again when it may have been written. `deadline_at_s`
        is a time of the event loop's clock. A caller that stops waiting sets `abandoned`.
        """
        if self._closing:
            raise ClosedClient("the client is closed")
        return self._put(PendingAppend(message, deadline_at_s, self._loop.create_future(), once))

    async def offer_when_room(
        self, message: bytes, deadline_at_s: float, *, once: bool = False
    ) -> PendingAppend[AnswerFuture]:
        """As `offer`, after waiting for room. Raises DeadlineExceeded."""
        if not self.has_room:
            await self.wait_for_room(deadline_at_s)
        return self.offer(message, deadline_at_s, once=once)

    def _put(self, pending: PendingAppend[AnswerFuture]) -> PendingAppend[AnswerFuture]:
        self._queue(pending)
        self._work.set()
        return pending

    def _queue(self, pending: PendingAppend[Waiter]) -> None:
        """Queue it without waking the stream."""
        self._outbox.offer(pending)
        if self._timer is None or pending.deadline_s < self._timer.when():
            self._arm(pending.deadline_s)

    async def wait_for_room(self, deadline_at_s: float) -> None:
        """Return when the limits allow one more append; DeadlineExceeded when they do not.

        This is the back-pressure on appends.
        """
        try:
            async with asyncio.timeout_at(deadline_at_s):
                # Another caller may have taken the room between the wake-up and this line.
                while self._room() <= 0:
                    turn: asyncio.Future[None] = self._loop.create_future()
                    self._for_room.append(turn)
                    try:
                        await turn
                    except asyncio.CancelledError:
                        # Woken and cancelled in one turn of the loop: the room is for the next one.
                        if turn.done() and not turn.cancelled():
                            self._admit_waiters()
                        raise
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self._name}: {len(self._outbox)} appends are unacknowledged, no room for"
                f" more within the deadline{self._because()}"
            ) from self._last_error

    def close(self) -> None:
        """Refuse further appends; `run` returns once all that is waited for is answered."""
        self._closing = True
        # The server may have told to wait for seconds before they are sent again.
        self._outbox.drop_abandoned()
        self._work.set()
        if self._stream is not None:
            self._stream.finish()

    async def run(self) -> None:
        """Serve until closed or cancelled; then fail every append that has no answer."""
        try:
            while await self._wait_for_work():
                await self._serve()
        finally:
            # First of all: a caller that is woken below must find the producer closed.
            self._closing = True
            if self._timer is not None:
                self._timer.cancel()
            self._end_wait(succeeded=False)
            self._fail_all(ClosedClient("the client was closed before the append was sent"))
            self._admit_waiters()
            self.ended.set()

    async def _wait_for_work(self) -> bool:
        """False when closed and nothing is left to send."""
        while not self._outbox.to_send:
            if self._closing:
                return False
            self._work.clear()
            await self._work.wait()
        return True

    async def _serve(self) -> None:
        """One stream from its opening to its end, and the pause after it."""
        assignments = self._network.assignments
        self._begin_wait()
        self._location, told_s = None, 0.0
        try:
            location = self._location = await assignments.locate(
                self._name, deadline_s=self._network.open_s, writes=True
            )
            stream = self._stream = self._new_stream(location)
            if self._closing:
                stream.finish()  # `close` found no stream to finish
            connection = self._network.connection(location.address)
            # `_until_moved` ends a stream whose node hangs: see there.
            await until_first(
                lambda: stream.run(connection, open_s=self._network.open_s),
                lambda: self._until_moved(location.channel),
            )
        except BadTarget as error:
            # The name is no pchannel of this cluster: another try cannot succeed.
            self._fail_all(error)
        except NodeUnreachable as error:
            self._last_error = error
            # A producer that was served before waits: the channel may move on to another node.
            if not self._answered_s:
                self._fail_all(error)
        except TidemarkError as error:
            self._last_error, told_s = error, error.retry_s
            if isinstance(error, ServerRefusal):
                self._stream_refused(error)
        self._stream = None
        self._begin_wait()
        self._stream_lost()
        self.room_made()
        if not self._outbox.to_send:
            self._end_wait(succeeded=False)
        # Also after a stream that ended regularly: only a success on the next one resets it.
        delay_s = self.pause_s(told_s)
        # A new owner ends the pause. Without a location there is none: `locate` has waited.
        if self._location and self._outbox.to_send:
            await assignments.wait_change(self._location.channel, delay_s)

    def _stream_lost(self) -> None:
        for pending in self._outbox.stream_lost(resend=self._resend):
            self._fail_unknown(pending)
        self._outbox.drop_abandoned()  # they need no further stream

    def _stream_refused(self, error: ServerRefusal) -> None:
        if self._location and is_wrong_node(error.code):
            self._network.assignments.report(self._location.channel, error)
        if lacks_right(error.code):
            self._fail_all(error)

    def _begin_wait(self) -> None:
        if self._wait is None:
            self._wait = self._network.begin_wait(OWNER, self._name, self._location)
        self._wait.cause = str(self._last_error or "")

    def _end_wait(self, *, succeeded: bool) -> None:
        self._network.waits.end(self._wait, succeeded=succeeded)
        self._wait = None

    async def _until_moved(self, channel: PChannel) -> None:
        """Return some time after another node took the channel over.

        A node that hangs does not close its streams, so the client must leave them.
        """
        until_moved = self._network.assignments.until_moved
        await until_moved(channel, lambda: self._answered_s if len(self._outbox) else None)
        # A former owner that is alive answers meanwhile, which leaves fewer appends in doubt.
        await anyio.sleep(MOVED_S)

    def _room(self) -> int:
        """How many more appends the limits allow."""
        return self._outbox.room

    def _new_stream(self, location: Location) -> ProducerStream:
        outbox = self._outbox
        numbered = outbox.is_numbered
        codec = (
            AppendCodec(location.address, outbox.stamp_of, self._greeted)
            if numbered
            else ProduceCodec()
        )
        return ProducerStream(location, codec, outbox, self._work, self)

    def _greeted(self, revision: int) -> None:
        """A server took the stream of batches; `revision` says what it knows of them."""
        self._revision = revision

    # ---- answers of the stream ------------------------------------------------------------------

    def produced(self, answer: Produced) -> None:
        # None when the append has expired meanwhile.
        pending = self._outbox.answered(answer.request_id)
        # A caller that was cancelled has cancelled its future.
        if pending is not None and not pending.waiter.done():
            pending.waiter.set_result(answer)

    def refused(self, answer: ProduceFailed) -> RetryVerdict:
        error = refusal(answer.code, answer.cause)
        if isinstance(answer, BatchFailed) and answer.dropped:
            error = OutdatedTarget(answer.cause, error.code)
            self._network.on_dropped()
        if isinstance(answer, BatchFailed) and error.code is StreamingCode.INVALID_REQUEST_SEQ:
            return self._out_of_sequence(answer, error)
        found = self._outbox.refused(
            answer.request_id, error.code, answer.cause, resend=self._resend
        )
        if found is None:
            return RetryVerdict.SURFACE
        verdict, pending = found
        if verdict is not RetryVerdict.SURFACE:
            self._last_error = error
            if verdict is RetryVerdict.REROUTE and self._location is not None:
                self._network.assignments.report(self._location.channel, error)
            if pending.unanswered and (pending.once or not self._resend):
                self._fail_unknown(pending)
        elif not pending.waiter.done():
            pending.waiter.set_exception(error)
        return verdict

    def _out_of_sequence(self, answer: BatchFailed, error: TidemarkError) -> RetryVerdict:
        self._last_error = error
        unknown = self._outbox.out_of_sequence(answer.request_id, answer.expected_sequence)
        if unknown is not None:
            self._fail_unknown(unknown)
        self._work.set()
        return RetryVerdict.SURFACE

    def answers_done(self, *, progress: bool) -> None:
        self._answered_s = self._loop.time()
        if self._wait is not None:
            self._end_wait(succeeded=True)
        if progress:
            self._backoff = self._backoff.succeeded()
        self.room_made()

    def room_made(self) -> None:
        if self._for_room:
            self._admit_waiters()

    def pause_s(self, told_s: float = 0.0) -> float:
        self._backoff = self._backoff.failed()
        pause_s = self._backoff.delay_s(self._network.spread.random())
        return max(pause_s, min(told_s, TOLD_S_MAX))

    # ---- deadlines ------------------------------------------------------------------------------

    def _arm(self, deadline_at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_at_s, self._expire)

    def _expire(self) -> None:
        now_s = self._loop.time()
        expired, next_deadline_s = self._outbox.expire(now_s)
        self._timer = None
        if next_deadline_s is not None:
            self._arm(next_deadline_s)
        for it in expired:
            self._fail(it, None)
        # No answer to anything for a while: not this append is slow, the connection is dead.
        silent = now_s - self._answered_s > SILENCE_S
        if self._stream is not None and silent and any(it.maybe_written for it in expired):
            self._stream.abort()
        self._admit_waiters()

    def _admit_waiters(self) -> None:
        """Wake callers that wait for room, first come first served; each checks again."""
        # At the end all of them wake, to find the producer closed.
        room = len(self._for_room) if self._closing else self._room()
        while self._for_room and room > 0:
            turn = self._for_room.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    def _fail_all(self, error: TidemarkError) -> None:
        for expired in self._outbox.clear():
            self._fail(expired, error)

    def _fail(self, expired: Expired[Waiter], error: TidemarkError | None) -> None:
        """Fail an append with `error`, by default DeadlineExceeded, or as unknown."""
        if expired.maybe_written:
            self._fail_unknown(expired.pending)
        elif not expired.pending.waiter.done():
            expired.pending.waiter.set_exception(error or self._too_late(expired.pending))

    def _fail_unknown(self, pending: PendingAppend[Waiter]) -> None:
        if not pending.waiter.done():
            error = OutcomeUnknown(
                f"an append to {self._name} was sent and not acknowledged; it may have been written"
                + self._because()
            )
            pending.waiter.set_exception(error)

    def _too_late(self, pending: PendingAppend[Waiter]) -> TidemarkError:
        cause: TidemarkError | None = self._last_error
        if pending.refusal is not None:
            code, text = pending.refusal
            cause = refusal(StreamingCode(code), text)
        error = DeadlineExceeded(
            f"the append to {self._name} was not written in time" + (f": {cause}" if cause else "")
        )
        error.__cause__ = cause
        return error

    def _because(self) -> str:
        return f"; last error: {self._last_error}" if self._last_error else ""
