"""One pchannel's producer: keeps a Produce stream open, and each append alive until its answer.

It owns the reopening of the stream and the futures of the callers; what to send, to repeat and to
give up is decided in `outbox.py`. It never looks into a message.
Next: broker/client/append/produce_stream.py

Why futures and one timer: a task or a cancel scope for each append would cost more than the append.
"""

import asyncio
from collections import deque
from typing import Protocol

import anyio

from broker.client.append.outbox import Expired, Outbox, PendingAppend, SendLimits
from broker.client.append.produce_stream import AnswerSink, ProduceStream
from broker.client.errors import (
    BadTarget,
    ClosedClient,
    DeadlineExceeded,
    OutcomeUnknown,
    ServerRefusal,
    TidemarkError,
    refusal,
)
from broker.client.net.assignment_table import Location
from broker.client.net.backoff import FOLLOWED_MS_MAX, Backoff
from broker.client.net.network import Network
from broker.client.net.retry_rules import RetryVerdict, is_wrong_node
from broker.client.net.until_first import until_first
from broker.model.channel import PChannel
from broker.model.failure import StreamingCode
from broker.model.ids import PChannelName
from schemas.wire import Produced, ProduceFailed

SILENCE_S = 5.0
"""A stream on which an append expired, and nothing came for so long, is given up."""

MOVED_S = 2.0
"""How long answers and refusals are waited for from an owner that has been replaced."""

Waiter = asyncio.Future[Produced]


class Asker(Protocol):
    """Who is told what became of an append: a `Waiter`, or whoever stands for many."""

    def done(self) -> bool: ...

    def set_result(self, result: Produced, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Producer(AnswerSink):
    """Appends to one pchannel. `run` must run in a task for as long as anything is offered."""

    def __init__(
        self, name: PChannelName, network: Network, limits: SendLimits, *, resend: bool
    ) -> None:
        self._name = name
        self._network = network
        self._resend = resend
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._outbox = self._new_outbox()
        self._work = asyncio.Event()
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stream: ProduceStream | None = None
        self._location: Location | None = None
        self._backoff = Backoff(max_ms=FOLLOWED_MS_MAX)
        self._answered_s = 0.0
        self._closing = False
        self._last_error: TidemarkError | None = None
        self.ended = anyio.Event()
        """`run` is over, and nobody waits any more."""

    @property
    def has_room(self) -> bool:
        """Whether `offer` may be called; otherwise `wait_for_room` first."""
        return not self._for_room and self._room() > 0

    def offer(
        self, message: bytes, deadline_at_s: float, *, once: bool = False
    ) -> PendingAppend[Waiter]:
        """Take one encoded message in; its waiter gets the answer or the error.

        `once`: rather fail it than send it again when it may have been written. `deadline_at_s` is
        a time of the loop's clock. Set `abandoned` when nobody waits any more.
        """
        if self._closing:
            raise ClosedClient("the client is closed")
        return self._put(PendingAppend(message, deadline_at_s, self._loop.create_future(), once))

    async def offer_when_room(
        self, message: bytes, deadline_at_s: float, *, once: bool = False
    ) -> PendingAppend[Waiter]:
        """The same, after a wait when there is no room. Raises DeadlineExceeded."""
        if not self.has_room:
            await self.wait_for_room(deadline_at_s)
        return self.offer(message, deadline_at_s, once=once)

    def _put(self, pending: PendingAppend[Waiter]) -> PendingAppend[Waiter]:
        self._queue(pending)
        self._work.set()
        return pending

    def _queue(self, pending: PendingAppend[Asker]) -> None:
        """Take it in without a word to the stream."""
        self._outbox.offer(pending)
        if self._timer is None or pending.deadline_s < self._timer.when():
            self._arm(pending.deadline_s)

    async def wait_for_room(self, deadline_at_s: float) -> None:
        """Until the limits allow one more append; DeadlineExceeded when they never do."""
        try:
            async with asyncio.timeout_at(deadline_at_s):
                while self._room() <= 0:
                    turn: asyncio.Future[None] = self._loop.create_future()
                    self._for_room.append(turn)
                    await turn
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self._name}: {len(self._outbox)} appends wait already{self._because()}"
            ) from self._last_error

    def close(self) -> None:
        """Take nothing more in; `run` returns once everything is answered."""
        self._closing = True
        self._work.set()
        if self._stream is not None:
            self._stream.finish()

    async def run(self) -> None:
        """Serves until closed or cancelled; then everybody who still waits is answered."""
        try:
            while await self._wait_for_work():
                await self._serve()
        finally:
            self._closing = True
            if self._timer is not None:
                self._timer.cancel()
            for expired in self._outbox.clear():
                self._fail(
                    expired, ClosedClient("the client was closed before the append was sent")
                )
            self._admit_waiters()
            self.ended.set()

    async def _wait_for_work(self) -> bool:
        """False when there is none and none will come."""
        while not self._outbox.to_send:
            if self._closing:
                return False
            self._work.clear()
            await self._work.wait()
        return True

    async def _serve(self) -> None:
        """One stream from its opening to its end, and the pause after it."""
        assignments = self._network.assignments
        self._location = None
        try:
            location = self._location = await assignments.locate(
                self._name, deadline_s=self._network.open_s, writes=True
            )
            stream = self._stream = self._new_stream(location)
            if self._closing:
                stream.finish()
            connection = self._network.connection(location.address)
            await until_first(
                lambda: stream.run(connection, open_s=self._network.open_s),
                lambda: self._left_behind(location.channel),
            )
        except BadTarget as error:
            self._refuse_all(error)
        except TidemarkError as error:
            self._last_error = error
            if self._location and isinstance(error, ServerRefusal) and is_wrong_node(error.code):
                assignments.report(self._location.channel, error)
        self._stream = None
        for pending in self._outbox.stream_lost(resend=self._resend):
            self._fail(Expired(pending, maybe_written=True), None)
        self._backoff = self._backoff.failed()
        if self._location and self._outbox.to_send:
            delay_s = self._backoff.delay_s(self._network.spread.random())
            await assignments.wait_change(self._location.channel, delay_s)

    async def _left_behind(self, channel: PChannel) -> None:
        """Until somebody else serves it, and a while: who stands still closes no stream."""
        await self._network.assignments.until_newer(channel)
        await anyio.sleep(MOVED_S)

    def _room(self) -> int:
        """How many more appends may come in, as far as their number goes."""
        return self._outbox.room

    def _new_outbox(self) -> Outbox[Asker]:
        return Outbox(self._limits)

    def _new_stream(self, location: Location) -> ProduceStream:
        return ProduceStream(location, self._outbox, self._work, self)

    # ---- what the stream tells ------------------------------------------------------------------

    def produced(self, answer: Produced) -> None:
        pending = self._outbox.answered(answer.request_id)
        if pending is not None and not pending.waiter.done():
            pending.waiter.set_result(answer)

    def refused(self, answer: ProduceFailed) -> RetryVerdict:
        error = refusal(answer.code, answer.cause)
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
                self._fail(Expired(pending, maybe_written=True), None)
        elif not pending.waiter.done():
            pending.waiter.set_exception(error)
        return verdict

    def batch_done(self, *, progress: bool) -> None:
        self._answered_s = self._loop.time()
        if progress:
            self._backoff = self._backoff.succeeded()
        if self._for_room:
            self._admit_waiters()

    def pause_s(self) -> float:
        self._backoff = self._backoff.failed()
        return self._backoff.delay_s(self._network.spread.random())

    # ---- time -----------------------------------------------------------------------------------

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
        silent = now_s - self._answered_s > SILENCE_S
        if self._stream is not None and silent and any(it.maybe_written for it in expired):
            self._stream.give_up()
        self._admit_waiters()

    def _admit_waiters(self) -> None:
        """Wake those who wait for room, first come first served; they look again themselves."""
        room = len(self._for_room) if self._closing else self._room()
        while self._for_room and room > 0:
            turn = self._for_room.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    def _refuse_all(self, error: TidemarkError) -> None:
        for expired in self._outbox.clear():
            self._fail(expired, error)

    def _fail(self, expired: Expired[Asker], error: TidemarkError | None) -> None:
        waiter = expired.pending.waiter
        if waiter.done():
            return
        if expired.maybe_written:
            error = OutcomeUnknown(
                f"an append to {self._name} was sent and not acknowledged; it may have been written"
                + self._because()
            )
        waiter.set_exception(error or self._too_late(expired.pending))

    def _too_late(self, pending: PendingAppend[Asker]) -> TidemarkError:
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
