"""How one actor speaks to another: `tell`, `send`, `ask`. A value; never keeps an actor alive."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from actors.envelope import Envelope, Failure, Promise, Request, Told
from actors.errors import AskTimeout, MailboxFull
from actors.incarnation import Incarnation
from actors.mailbox import Overflow

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")


class Ref(Generic[M_contra]):
    """The address of ONE incarnation: equal when path and term are equal.

    Every verb raises StaleTerm when a newer term was given out, ActorDied when this one is over.
    Not thread-safe: use it on the loop of its System.
    """

    __slots__ = ("life", "path", "term")

    def __init__(self, life: Incarnation) -> None:
        self.life = life
        self.path = life.path
        self.term = life.term

    def tell(self, message: M_contra) -> None:
        """Place the message or say why not; never waits.

        A full mailbox: MailboxFull under `fail` and `block`, dropped and counted under `shed`.
        """
        life = self.life
        if life.exit is not None:
            raise life.refusal()
        if not life.mailbox.offer(Envelope(message)):
            self._overflowed(waits=False)

    async def send(self, message: M_contra, *, deadline_s: float) -> None:
        """As `tell`, but under `block` wait for room; MailboxFull when there was none in time."""
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
            life.mailbox.leave(envelope)
        if life.exit is not None:
            raise life.refusal()
        raise MailboxFull(self.path, life.mailbox.spec.bound)

    async def ask(self, message: Request[R], *, deadline_s: float) -> R:
        """The answer, within `deadline_s` seconds, waiting for room included.

        Raises AskTimeout; ActorDied when the actor ends first (whether it handled the message is
        not known); MailboxFull unless the policy is `block`; or what the actor gave to `fail`.
        """
        asked = self._pose(message, deadline_s)
        try:
            answer = await asked.promise
        finally:
            asked.over()
        if isinstance(answer, Failure):
            raise answer.fresh()
        return answer  # type: ignore[return-value]

    def ask_then(
        self, message: Request[R], answered: Callable[[R | Exception], None], *, deadline_s: float
    ) -> None:
        """`ask` for whoever does not wait, and needs no task for it.

        `answered` is called once, on the loop and never before this returns, with the answer or
        with what `ask` would raise. What is known at once is raised here, and it is not called:
        StaleTerm, ActorDied, MailboxFull.
        """
        told = _Told(answered)
        told.asked = self._pose(message, deadline_s, told)
        told.asked.promise.add_done_callback(told)

    def __eq__(self, other: object) -> bool:
        """Same path and same term."""
        return isinstance(other, Ref) and (self.path, self.term) == (other.path, other.term)

    def __hash__(self) -> int:
        """By path and term."""
        return hash((self.path, self.term))

    def __repr__(self) -> str:
        """Path and term."""
        return f"Ref({self.path}@{self.term})"

    def _pose(self, question: object, deadline_s: float, told: Told | None = None) -> "_Asked":
        life = self.life
        if life.exit is not None:
            raise life.refusal()
        promise: Promise = asyncio.get_running_loop().create_future()
        envelope = Envelope(question, promise, told)
        if life.mailbox.offer(envelope):
            return _Asked(life, promise, None, deadline_s)
        if not self._overflowed(waits=True):
            raise MailboxFull(self.path, life.mailbox.spec.bound)
        life.mailbox.line_up(envelope)
        return _Asked(life, promise, envelope, deadline_s)

    def _overflowed(self, *, waits: bool) -> bool:
        """Whether to stand in line; False: it was shed."""
        mailbox = self.life.mailbox
        if mailbox.spec.overflow is Overflow.BLOCK and waits:
            return True
        if mailbox.spec.overflow is Overflow.SHED:
            mailbox.shed += 1
            return False
        raise MailboxFull(self.path, mailbox.spec.bound)


class _Asked:
    """A question on its way, until `over`; in line for room when `in_line` is its envelope."""

    __slots__ = ("_alarm", "_in_line", "_life", "promise")

    def __init__(
        self, life: Incarnation, promise: Promise, in_line: Envelope[Any] | None, deadline_s: float
    ) -> None:
        self._life, self._in_line = life, in_line
        self.promise = promise
        life.promises[promise] = None
        expire = partial(_expire, promise, life.path, deadline_s)
        self._alarm = life.clock.call_later(deadline_s, expire)

    def over(self) -> None:
        """It was answered, or nobody waits any more: nothing of it stays behind."""
        self._alarm.cancel()
        self._life.promises.pop(self.promise, None)
        if self._in_line is not None:
            self._life.mailbox.leave(self._in_line)


class _Told:
    """Calls `answered` with the answer to `asked`, in the asker's context."""

    __slots__ = ("_answered", "_context", "asked")

    asked: _Asked

    def __init__(self, answered: Callable[[Any], None]) -> None:
        self._answered = answered
        self._context = copy_context()

    def __call__(self, promise: Promise) -> None:
        self.asked.over()
        answer = promise.result()
        self._answered(answer.fresh() if isinstance(answer, Failure) else answer)

    def at_once(self, promise: Promise) -> None:
        try:
            self._context.run(self, promise)
        except Exception as error:  # noqa: BLE001 - the asker's fault is not the actor's
            told = {"message": "an asker failed over its answer", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)


def _turn_away(admitted: asyncio.Future[bool]) -> None:
    if not admitted.done():
        admitted.set_result(False)


def _expire(promise: Promise, path: str, deadline_s: float) -> None:
    if not promise.done():
        promise.set_result(Failure(AskTimeout(path, deadline_s)))
