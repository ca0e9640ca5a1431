"""What actors see of a log. Implemented by `broker/wal/segmented` and `broker/wal/memory`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What is durable now: ids in [first_id, next_id), which is empty when they are equal."""

    first_id: MessageId
    next_id: MessageId
    last_tick: TimeTick
    last_term: Term
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Retention:
    """Whole segments older than `age_ms_max`, or beyond `bytes_max` in all, may go. 0: no limit."""

    bytes_max: int = 0
    age_ms_max: int = 0


class WalError(Exception):
    """A log could not do what it was asked."""


class Fenced(WalError):
    """A newer term owns the log. Final for this writer: it must never append again."""

    def __init__(self, channel: str, term: int, newer: int) -> None:
        super().__init__(f"{channel}: term {term} is fenced by term {newer}")
        self.channel, self.term, self.newer = channel, term, newer


class WriterFailed(WalError):
    """A write or sync failed; whether the group survives is unknown. Final for this writer.

    Reads below the last durable id go on. A new open, at a higher term, reads back what survived.
    """


class LogClosed(WalError):
    """The log object was closed before; it is of no more use."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"{channel}: the log is closed")
        self.channel = channel


class OutOfRange(WalError):
    """The asked id is no longer, or not yet, in the log, which holds [first_id, next_id)."""

    def __init__(self, channel: str, asked: int, first_id: int, next_id: int) -> None:
        super().__init__(
            f"{channel}: message id {asked} is outside the log, which holds [{first_id}, {next_id})"
        )
        self.channel, self.asked, self.first_id, self.next_id = channel, asked, first_id, next_id


class Corrupt(WalError):
    """A stored record fails its checksum or does not parse."""

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(f"{file}: damaged at byte {offset}: {reason}")
        self.file, self.offset, self.reason = file, offset, reason


class UnknownFormat(WalError):
    """A file was written by a format version this program does not know."""

    def __init__(self, file: str, found: int, known: int) -> None:
        super().__init__(f"{file}: format version {found}; this program reads version {known}")
        self.file, self.found, self.known = file, found, known


class Log(Protocol):
    """One pchannel's log, open for writing at one term. One caller appends; any number read."""

    @property
    def term(self) -> Term: ...

    def bounds(self) -> LogBounds:
        """Durable bounds; never waits, never does I/O."""
        ...

    def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> Awaitable[None]:
        """Store the group in one write and one sync; returns when it would survive a power cut.

        What comes is to be awaited; the write may have begun before that.

        `when_written` is called once, on the caller's event loop, when the group would survive the
        death of this process, and before it is synced; never when it was not written, nor when a
        newer term owns the log by then.

        Records continue at `bounds().next_id`, ticks above `last_tick`. One call at a time.
        Cancelling the call does not cancel the write: the group may still become durable.
        Raises Fenced or WriterFailed; both are final for this object.
        """
        ...

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        """Whole records from the one that holds `from_id`, at least one, up to about `bytes_max`.

        Empty when `from_id` is `next_id`. Raises OutOfRange or Corrupt. Any number at once.
        """
        ...

    async def seek_tick(self, tick: TimeTick) -> MessageId:
        """The id of the first message with a tick >= `tick`; `next_id` when there is none."""
        ...

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        """The largest record end <= until_id such that [from_id, end) takes about <= `bytes_max`.

        At least one record, so a loop over it always moves on; precise to the index spacing.
        """
        ...

    async def truncate(self, before_id: MessageId, retention: Retention, now_ms: int) -> MessageId:
        """Drop whole sealed segments below `before_id` that retention lets go; the new first_id.

        The segment that takes appends is sealed first when its first message is too old, so a
        quiet log forgets, too: nothing is kept for more than about twice `age_ms_max`. Not to be
        called while an append runs. Raises Fenced and WriterFailed, both final, and WalError when
        old data stays.
        """
        ...

    async def close(self) -> None:
        """Release files. Idempotent; waits for a running append. Afterwards calls raise Closed."""
        ...

    def statistics(self) -> Mapping[str, int | float]:
        """Counters since opening, for people: groups, records, written_bytes, segments and more."""
        ...


class Wal(Protocol):
    """Opens logs. `name` is what clients are told, such as `rocksmq`."""

    @property
    def name(self) -> str: ...

    async def open(self, channel: PChannelName, term: Term) -> Log:
        """Fence every lower term durably, recover, and continue at `term`.

        Raises Fenced when a term >= `term` has been there, Corrupt or UnknownFormat when the log
        cannot be trusted, WriterFailed when the storage refuses. Nothing is left open on failure.
        """
        ...

    async def writable(self) -> bool:
        """Whether the storage would take a synced write now; the way out of a full disk."""
        ...
