"""A message on its way to an actor, and the way back to the caller."""

import asyncio
from typing import Generic, Protocol, TypeVar

M = TypeVar("M")
R_co = TypeVar("R_co", covariant=True)

Promise = asyncio.Future[object]
"""What an asker waits on. Errors travel in it as `Failure`: unread, they make no noise."""


class Request(Generic[R_co]):
    """Base of the messages that expect an answer of type R."""

    __slots__ = ()


class Failure:
    """The answer that is raised instead of returned."""

    __slots__ = ("_traceback", "error")

    def __init__(self, error: Exception) -> None:
        self.error = error
        self._traceback = error.__traceback__

    def fresh(self) -> Exception:
        """The error as it was given: one that is raised to many askers must not grow with each."""
        return self.error.with_traceback(self._traceback)


class Told(Protocol):
    """An asker that does not wait: a callback of its promise."""

    def __call__(self, promise: Promise, /) -> None: ...

    def at_once(self, promise: Promise, /) -> None:
        """The same from an actor's own code, which it must not harm."""
        ...


class Envelope(Generic[M]):
    """One message as `receive` gets it; may be kept and answered long after."""

    __slots__ = ("_promise", "_told", "message")

    def __init__(
        self, message: M, promise: Promise | None = None, told: Told | None = None
    ) -> None:
        self.message = message
        self._promise = promise
        self._told = told

    def wanted(self) -> bool:
        """Whether somebody still waits for the answer: false for a tell, and after any answer."""
        return self._promise is not None and not self._promise.done()

    def reply(self, value: object) -> None:
        """Answer the asker; no-op when nobody asked, or the asker has left or was answered."""
        if self._promise is not None and not self._promise.done():
            self._promise.set_result(value)

    def reply_at_once(self, value: object) -> None:
        """Like `reply`, but a caller of `ask_then` gets the answer before this returns.

        That saves a turn of the loop, and the actor's code goes on that much later: for an answer
        that is waited for more than whatever the actor does next.
        """
        promise, told = self._promise, self._told
        if told is None or promise is None or promise.done():
            self.reply(value)
            return
        promise.remove_done_callback(told)
        promise.set_result(value)
        told.at_once(promise)

    def fail(self, error: Exception) -> None:
        """Make the asker raise `error`; otherwise as `reply`."""
        self.reply(Failure(error))
