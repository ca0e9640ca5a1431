"""A message on its way to an actor, and the way back to the caller."""

from typing import Generic, Protocol, TypeVar

M = TypeVar("M")
R_co = TypeVar("R_co", covariant=True)


class Promise(Protocol):
    """What a caller waits on: a future, or the callback of `ask_then`.

    Errors are results of type `Failure`, because asyncio would log an exception that nobody
    retrieves.
    """

    def done(self) -> bool: ...

    def set_result(self, result: object, /) -> None:
        """Answer the caller, in a later turn of the event loop."""
        ...


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


class PromptPromise(Promise, Protocol):
    """A caller that does not wait, and can be answered at once."""

    def set_result_now(self, result: object, /) -> None:
        """As `set_result`, but the caller's code runs before this returns; must not raise."""
        ...


class Envelope(Generic[M]):
    """One message as `receive` gets it; may be kept and answered later."""

    __slots__ = ("_promise", "_prompt", "message")

    def __init__(
        self, message: M, promise: Promise | None = None, prompt: PromptPromise | None = None
    ) -> None:
        """`prompt`: the promise, if its caller can be answered at once."""
        self.message = message
        self._promise = promise
        self._prompt = prompt

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
        prompt = self._prompt
        if prompt is None:
            self.reply(value)
        elif not prompt.done():
            prompt.set_result_now(value)

    def fail(self, error: Exception) -> None:
        """Raise `error` to the caller; otherwise as `reply`."""
        self.reply(Failure(error))
