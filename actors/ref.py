"""References: `tell`, `send` and `ask`. A reference is a value and keeps no actor alive."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from actors.envelope import Envelope, Failure, Promise, Request
from actors.errors import AskTimeout, MailboxFull
from actors.incarnation import Incarnation
from actors.mailbox import Overflow

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")


class Ref(Generic[M_contra]):
    """The address of one incarnation; references with equal path and term are equal.

    Every method raises StaleTerm if there is a newer incarnation, ActorDied if this one has ended.
    Not thread-safe: use it on the event loop of its System.
    """

    __slots__ = ("life", "path", "term")

    def __init__(self, life: Incarnation) -> None:
        self.life = life
        self.path = life.path
        self.term = life.term

    def tell(self, message: M_contra) -> None:
        """Queue the message; never waits.

        If the mailbox is full: MailboxFull under `fail` and `block`; dropped and counted under
        `shed`.
        """
        life = self.life
        if life.exit is not None:
            raise life.refusal()
        if not life.mailbox.offer(Envelope(message)):
            self._overflowed(waits=False)

    async def send(self, message: M_contra, *, deadline_s: float) -> None:
        """As `tell`, but under `block` wait for room; MailboxFull if the deadline passes."""
        life = self.life
        if life.exit is not None:
            raise life.refusal()
        envelope = Envelope(message)
        if life.mailbox.offer(envelope) or not self._overflowed(waits=True):
            return
        admitted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        life.mailbox.line_up(envelope, admitted)
        alarm = life.clock.call_later(deadline_s, partial(_turn_away, admitted))
        try:
            if await admitted:
                return
        finally:
            alarm.cancel()
            # A message whose sender has left must not be queued later.
            life.mailbox.leave(envelope)
        if life.exit is not None:
            raise life.refusal()
        raise MailboxFull(self.path, life.mailbox.spec.bound)

    async def ask(self, message: Request[R], *, deadline_s: float) -> R:
        """Send a request and return the answer, within `deadline_s` including the wait for room.

        Raises AskTimeout; ActorDied if the actor ends first (whether it handled the message is
        unknown); MailboxFull unless the policy is `block`; or the error the actor gave to `fail`.
        """
        life = self._alive()
        promise: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        envelope = Envelope(message, promise)
        asked = _Asked(life, promise, self._posed(envelope), deadline_s)
        try:
            answer = await promise
        finally:
            asked.over()
        if isinstance(answer, Failure):
            raise answer.fresh()
        return answer  # type: ignore[return-value]

    def ask_then(
        self, message: Request[R], answered: Callable[[R | Exception], None], *, deadline_s: float
    ) -> None:
        """`ask` with a callback: the caller does not wait, and no task is needed.

        `answered` is called once, on the event loop and never before this returns, with the answer
        or the error that `ask` would raise. Errors known at once (StaleTerm, ActorDied,
        MailboxFull) are raised here instead.
        """
        life = self._alive()
        reply = _Reply(answered)
        reply.asked = _Asked(life, reply, self._posed(Envelope(message, reply, reply)), deadline_s)

    def __eq__(self, other: object) -> bool:
        """Same path and same term."""
        return isinstance(other, Ref) and (self.path, self.term) == (other.path, other.term)

    def __hash__(self) -> int:
        """By path and term."""
        return hash((self.path, self.term))

    def __repr__(self) -> str:
        """Path and term."""
        return f"Ref({self.path}@{self.term})"

    def _alive(self) -> Incarnation:
        if self.life.exit is not None:
            raise self.life.refusal()
        return self.life

    def _posed(self, envelope: Envelope[Any]) -> Envelope[Any] | None:
        """Queue a question; returns its envelope if it waits for room."""
        mailbox = self.life.mailbox
        if mailbox.offer(envelope):
            return None
        # A shed question fails at once; otherwise its caller would wait until the deadline.
        if not self._overflowed(waits=True):
            raise MailboxFull(self.path, mailbox.spec.bound)
        # It needs no future: the caller waits for the answer, and its deadline covers the wait for
        # room.
        mailbox.line_up(envelope)
        return envelope

    def _overflowed(self, *, waits: bool) -> bool:
        """Whether to wait for room; False: the message was shed."""
        mailbox = self.life.mailbox
        if mailbox.spec.overflow is Overflow.BLOCK and waits:
            return True
        if mailbox.spec.overflow is Overflow.SHED:
            mailbox.shed += 1
            return False
        raise MailboxFull(self.path, mailbox.spec.bound)


class _Asked:
    """A pending request, until `over`; `in_line` is its envelope while it waits for room."""

    __slots__ = ("_alarm", "_deadline_s", "_in_line", "_life", "_promise")

    def __init__(
        self, life: Incarnation, promise: Promise, in_line: Envelope[Any] | None, deadline_s: float
    ) -> None:
        self._life, self._in_line = life, in_line
        self._promise, self._deadline_s = promise, deadline_s
        # So that the end of the incarnation answers it.
        life.promises[promise] = None
        self._alarm = life.clock.call_later(deadline_s, self._expire)

    def over(self) -> None:
        """Clean up: the request was answered, or its caller has left."""
        self._alarm.cancel()
        self._life.promises.pop(self._promise, None)
        if self._in_line is not None:
            self._life.mailbox.leave(self._in_line)

    def _expire(self) -> None:
        if not self._promise.done():
            self._promise.set_result(Failure(AskTimeout(self._life.path, self._deadline_s)))


class _Reply:
    """The promise of `ask_then`: calls `answered` with the answer, in the caller's context.

    Why not a future with a callback: that takes four calls more, and every append has one.
    """

    __slots__ = ("_answered", "_context", "_done", "asked")

    asked: _Asked

    def __init__(self, answered: Callable[[Any], None]) -> None:
        self._answered = answered
        # `set_result_now` runs in the answering actor's task, whose context would name the wrong
        # actor in logs.
        self._context = copy_context()
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: object) -> None:
        self._done = True
        asyncio.get_running_loop().call_soon(self._settle, result, context=self._context)

    def set_result_now(self, result: object) -> None:
        self._done = True
        try:
            self._context.run(self._settle, result)
        except Exception as error:  # noqa: BLE001 - the caller's error is not the actor's
            # As the loop treats an error of a callback: reported, not raised to the actor.
            context = {"message": "a callback of ask_then failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _settle(self, answer: object) -> None:
        self.asked.over()
        # It refers to this object: a cycle for each append would be left to the garbage collector.
        del self.asked
        self._answered(answer.fresh() if isinstance(answer, Failure) else answer)


def _turn_away(admitted: asyncio.Future[bool]) -> None:
    if not admitted.done():
        admitted.set_result(False)
