"""A message on its way to an actor, and the way back to the caller."""

import asyncio
from typing import Generic, Protocol, TypeVar

M = TypeVar("M")
R_co = TypeVar("R_co", covariant=True)

Promise = asyncio.Future[object]
"""What a caller waits on. Errors are results of type `Failure`, because asyncio would log an
exception that nobody retrieves."""


class Request(Generic[R_co]):
    """Base of the messages that expect an answer of type R."""

    __slots__ = ()


class Failure:
    """An answer that is raised instead of returned."""

    __slots__ = ("_traceback", "error")

    def __init__(self, error: Exception) -> None:
        self.error = error
        self._traceback = error.__traceback__

    def fresh(self) -> Exception:
        """The error with its first traceback: raising it again would add to the traceback."""
        return self.error.with_traceback(self._traceback)


class AskCallback(Protocol):
    """A caller that does not wait: a callback of its promise."""

    def __call__(self, promise: Promise, /) -> None: ...

    def at_once(self, promise: Promise, /) -> None:
        """The same, called from the answering actor's code; must not raise."""
        ...


class Envelope(Generic[M]):
    """One message as `receive` gets it; may be kept and answered later."""

    __slots__ = ("_callback", "_promise", "message")

    def __init__(
        self, message: M, promise: Promise | None = None, callback: AskCallback | None = None
    ) -> None:
        self.message = message
        self._promise = promise
        self._callback = callback

    def wanted(self) -> bool:
        """Whether a caller still waits for the answer: False for a tell, and after any answer."""
        return self._promise is not None and not self._promise.done()

    def reply(self, value: object) -> None:
        """Answer the caller; no-op if there is none, or if it has left or was answered."""
        if self._promise is not None and not self._promise.done():
            self._promise.set_result(value)

    def reply_at_once(self, value: object) -> None:
        """As `reply`, but a callback of `ask_then` runs before this returns.

        That saves the caller a turn of the event loop at the cost of the actor's own progress. Use
        it for an answer that is more urgent than what the actor does next.
        """
        promise, callback = self._promise, self._callback
        if callback is None or promise is None or promise.done():
            self.reply(value)
            return
        # Otherwise the loop would call it a second time. The result is set first: the callback
        # reads it.
        promise.remove_done_callback(callback)
        promise.set_result(value)
        callback.at_once(promise)

    def fail(self, error: Exception) -> None:
        """Raise `error` to the caller; otherwise as `reply`."""
        self.reply(Failure(error))
