"""Wraps an object of the async client so that its methods block; the names stay the same.

One wrapper serves every class, so none of them can lack a method. Only these names differ: `aclose`
is `close`, and the methods behind `async with` and `async for` are those of `with` and `for`.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import wraps
from inspect import getattr_static
from typing import Any, ClassVar, Self

from broker.client.errors import BadCommit
from broker.client.message import Appended
from broker.client.sync.loop_thread import LoopThread

ACLOSE = "aclose"
INTERNAL = {
    # Its argument is a coroutine function; `cut` is for programs.
    "Client": {"cut_cluster"},
    "Collections": {"targets"},
    "LeasedBatch": {"ack_in", "mark", "plain_closed_tick", "until_s"},
    "RowScanner": {"gathered"},
    "Scanner": {"step", "taken"},
    "BatchScanner": {"step", "taken"},
    "Stage": {"txn_for"},
    "StagedBatch": {"seal", "txn_for"},
    "Txn": {"append_pieces", "append_rows", "check_whole", "seal"},
}
"""Methods that are public for other parts of the client, and not for programs."""


class Blocking:
    """The common part of every wrapper; made by the client, not by a program.

    A method runs on the client's thread while the caller's waits. Its arguments may be wrappers;
    results that are alive, such as readers and transactions, are wrapped again.
    """

    WRAPPERS: ClassVar[dict[type, type["Blocking"]]] = {}
    """The wrapper of each async class."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        inner = self._inner
        if name == "close" and not hasattr(inner, "close"):
            name = ACLOSE
        elif name == ACLOSE:
            raise AttributeError(f"{type(self).__name__} has close, not aclose")
        if isinstance(getattr_static(type(inner), name, None), property):
            # On the loop, behind what this thread has sent there.
            return self._loop.read(inner, name)
        value = getattr(inner, name)
        found = blocking(value, self._loop) if callable(value) else wrapped(value, self._loop)
        # A value may change, so it is asked for each time; methods and parts stay what they are.
        if found is not value:
            self.__dict__["close" if name == ACLOSE else name] = found
        return found

    def __dir__(self) -> list[str]:
        public = {it for it in dir(self._inner) if not it.startswith("_")}
        own = {it for it in dir(type(self)) if not it.startswith("_")} - {"WRAPPERS"}
        return sorted({"close" if it == ACLOSE else it for it in public} | own)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__}>"


class BlockingContext(Blocking):
    """What `async with` takes, for `with`."""

    def __enter__(self) -> Self:
        self._loop.call(self._inner.__aenter__)
        return self

    def __exit__(self, *raised: Any) -> Any:
        return self._loop.call(self._inner.__aexit__, *raised)


class Steps:
    """The steps of one reader. An interrupted step loses nothing: the next one returns its result.

    The interrupt may come when the step has ended on the loop, and its result is on the way here.
    """

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._under_way: asyncio.Task[Any] | None = None
        self._arrived: deque[Any] = deque()

    def next(self, step: Callable[[], Awaitable[Any]]) -> Any:
        """The result of a step. Raises StopIteration at the end."""
        if not self.left_over():
            try:
                self._loop.call(self._run, step)
            except StopAsyncIteration:
                self._under_way = None
                raise StopIteration from None
            except Exception:
                self._under_way = None
                raise
        self._under_way = None
        return self._arrived.popleft()

    def left_over(self) -> bool:
        """Whether an interrupted step has a result that was not returned yet."""
        if self._under_way is not None:
            self._loop.call(self._settle)
        return bool(self._arrived)

    async def _run(self, step: Callable[[], Awaitable[Any]]) -> Any:
        self._under_way = asyncio.current_task()
        self._arrived.append(await step())

    async def _settle(self) -> Any:
        if self._under_way is not None:
            await asyncio.wait([self._under_way])


class BlockingIterator(BlockingContext):
    """What `async for` takes, for `for`."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        super().__init__(inner, loop)
        self._steps = Steps(loop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._steps.next(self._inner.__anext__)

    def __del__(self) -> None:
        """Drop the reader where it runs: its own end is not made for other threads."""
        parts = self.__dict__
        if "_inner" in parts and "_loop" in parts:
            parts["_loop"].release(parts.pop("_inner"))


class BlockingGroupMember(BlockingIterator):
    """A member of a group, whose batches have calls of their own."""

    def __next__(self) -> Any:
        return wrapped(super().__next__(), self._loop)


class BlockingLeased(Blocking):
    """Messages on lease."""

    def __len__(self) -> int:
        return len(self._inner)


class BlockingRowScanner(BlockingIterator):
    """A reader of rows."""

    def commit(self, **given: Any) -> None:
        """Commit all rows that the program has got; see `Scanner.commit`."""
        if self._steps.left_over():
            # The reader counts them as taken, and the program does not have them.
            raise BadCommit("rows of an interrupted step are still to be taken; call next()")
        self._loop.call(self._inner.commit, **given)


class BlockingScanner(BlockingIterator):
    """A reader of batches, which may be iterated message by message as well."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        super().__init__(inner, loop)
        self._part: tuple[Any, Any] | None = None
        """A batch, and two messages between which ends what the program has of it.

        The reader is notified when it matters: each notice would cost as much as a message."""

    def __next__(self) -> Any:
        unacked = self._step()
        self._took(unacked)
        return unacked.batch

    def messages(self) -> Iterator[Any]:
        """The same, message by message; an interrupted step loses none."""
        return _Messages(self)

    def commit(self, **given: Any) -> None:
        """Commit all that the program has got to the cursor that the reader was started from."""
        if self._part is not None:
            self._took(*self._part)
        self._loop.call(self._inner.commit, **given)

    def _step(self) -> Any:
        return self._steps.next(self._inner.step)

    def _took(self, unacked: Any, between: Any = None) -> None:
        self._part = None
        # Not waited for: what is asked of the loop after this comes behind it.
        self._loop.post(self._inner.taken, unacked, between)


class _Messages(Iterator[Any]):
    """One switch of threads for each batch. Not a generator: an interrupt would end that."""

    def __init__(self, scanner: BlockingScanner) -> None:
        self._scanner = scanner
        self._unacked: Any = None
        self._rest: deque[Any] = deque()

    def __next__(self) -> Any:
        scanner = self._scanner
        while not self._rest:
            self._unacked = scanner._step()  # noqa: SLF001 - one class in two parts
            self._rest.extend(self._unacked.batch.messages)
            if not self._rest:
                scanner._took(self._unacked)  # noqa: SLF001
        message = self._rest.popleft()
        # The rest of the batch is not the program's yet, and must not count as processed.
        if self._rest:
            scanner._part = (self._unacked, (message, self._rest[0]))  # noqa: SLF001
        else:
            scanner._took(self._unacked)  # noqa: SLF001
        return message


class BlockingClient(Blocking):
    """The part of a client that the async one leaves to its `async with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait up to `Deadlines.close_s` for pending appends, then end everything."""
        self._loop.close()

    def abort(self) -> None:
        """End everything now; appends that are not answered end with OutcomeUnknown."""
        self._loop.abort()


class BlockingTicket(Blocking):
    """An append that is under way, made by `append_soon`; `result` waits for its answer."""

    def result(self, timeout_s: float | None = None) -> Appended:
        """Where the message landed. Raises its error, or TimeoutError while there is no answer."""
        outcome: Any = self._loop.started(_shielded, self._inner)(timeout_s)
        return Appended(*outcome)

    def done(self) -> bool:
        """Whether the answer is there."""
        return bool(self._inner.done())

    def cancel(self) -> bool:
        """Withdraw the message if its batch was not sent yet; whether there was no answer yet."""
        return bool(self._loop.call(self._inner.cancel))


async def _shielded(ticket: "asyncio.Future[Any]") -> Any:
    # An interrupted wait must not withdraw the message.
    return await asyncio.shield(ticket)


def blocking(function: Callable[..., Any], loop: LoopThread) -> Callable[..., Any]:
    """The function, run on the loop's thread; with its name, its documentation and its signature.

    It must not keep the wrapper it is an attribute of alive: dropped, that has to end at once.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        plain = [unwrapped(it) for it in args]
        named = {name: unwrapped(it) for name, it in kwargs.items()}
        return wrapped(loop.call(function, *plain, **named), loop)

    call.__doc__ = without_await(function.__doc__ or "")
    return call


def without_await(documentation: str) -> str:
    """The documentation of a method, with its examples as they are here."""
    plain = re.sub(r"\bawait |\basync (?=with\b|for\b)", "", documentation)
    return re.sub(rf"\b{ACLOSE}\b", "close", plain)


def wrapped(value: Any, loop: LoopThread) -> Any:
    """A wrapper of something alive; anything else as it is."""
    for kind in type(value).__mro__:
        if kind in Blocking.WRAPPERS:
            return Blocking.WRAPPERS[kind](value, loop)
    if isinstance(value, AsyncIterator):
        return BlockingIterator(value, loop)
    return value


def unwrapped(value: Any) -> Any:
    """What the async client takes for this argument."""
    if isinstance(value, Blocking):
        return value._inner  # noqa: SLF001 - its own wrapper
    if isinstance(value, Mapping) and any(isinstance(it, Blocking) for it in value.values()):
        return {name: unwrapped(it) for name, it in value.items()}
    return value
