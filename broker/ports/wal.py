"""A log as actors see it. Implemented in `broker/wal`: `segmented`, `kafka` and `memory_wal.py`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Contents, Dead
from broker.model.retention.policy import (
    Retention,
    SealedSegment,
)

Judge = Callable[[Record], Sequence[Record] | None]
"""What is left of a record: None: all of it; else parts of it with their ids and ticks, or none.

Called on another thread, for each record in the order of the log.
"""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What is durable now: ids in [first_id, next_id), empty if they are equal.

    `removed_tick`: that of the newest record that retention has removed; 0 if it removed none.
    """

    first_id: MessageId
    next_id: MessageId
    last_tick: TimeTick
    last_term: Term
    size_bytes: int
    removed_tick: TimeTick = TimeTick(0)


class WalError(Exception):
    """An operation on a log failed."""


class Fenced(WalError):
    """A newer term owns the log. Final for this writer: it must never append again."""

    def __init__(self, channel: str, term: int, newer: int) -> None:
        super().__init__(f"{channel}: term {term} is fenced by term {newer}")
        self.channel, self.term, self.newer = channel, term, newer


class WriterFailed(WalError):
    """A write or sync failed; whether the group survives is unknown. Final for this writer.

    Reads below the last durable id continue. Opening at a higher term reads back what survived.
    """


class NotStored(WriterFailed):
    """The storage refused a write as a whole: nothing of it is stored. As final."""


class Unsuitable(WalError):
    """The storage answers, but is not set up as a log needs it; the message says what to change."""


class LogClosed(WalError):
    """The log object is closed."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"{channel}: the log is closed")
        self.channel = channel


class NotNow(WalError):
    """The log is sound, but cannot do this at this moment. Nothing was done; list segments again.

    An error, because an answer such as "nothing given back" would be taken for a segment that is
    dealt with.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; try again later")


class LogMoves(NotNow):
    """The log is being copied to another place: its segments are not read or rewritten."""

    def __init__(self, place: str) -> None:
        super().__init__(f"the log is being moved from {place}")
        self.place = place


class OutOfRange(WalError):
    """The id is not in the log, which holds [first_id, next_id): removed, or not yet written."""

    def __init__(self, channel: str, asked: int, first_id: int, next_id: int) -> None:
        super().__init__(
            f"{channel}: message id {asked} is outside the log, which holds [{first_id}, {next_id})"
        )
        self.channel, self.asked, self.first_id, self.next_id = channel, asked, first_id, next_id


class Corrupt(WalError):
    """A stored record fails its checksum or does not parse."""

    def __init__(self, file: str, offset: int, reason: str, unit: str = "byte") -> None:
        super().__init__(f"{file}: damaged at {unit} {offset}: {reason}")
        self.file, self.offset, self.reason, self.unit = file, offset, reason, unit


class UnknownFormat(WalError):
    """A file has a format version that this program does not know."""

    def __init__(self, file: str, found: int, known: int) -> None:
        super().__init__(f"{file}: format version {found}; this program reads version {known}")
        self.file, self.found, self.known = file, found, known


class Log(Protocol):
    """One pchannel's log, open for writing at one term: one appender, any number of readers."""

    @property
    def term(self) -> Term: ...

    @property
    def gives_back(self) -> bool:
        """Whether `give_back` and `thin` can give back space; without, there is no use in them."""
        ...

    def bounds(self) -> LogBounds:
        """The durable bounds; never blocks, no I/O."""
        ...

    def segments(self) -> Sequence[SealedSegment]:
        """Those that can be removed, oldest first; never blocks, no I/O."""
        ...

    def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> Awaitable[None]:
        """Store the group in one write and one sync; returns when it would survive a power cut.

        Returns an awaitable; the write may already have started.

        `when_written` is called once on the caller's event loop, after the write and before the
        sync, when the group survives the death of this process; not if the write failed or a newer
        term owns the log by then.

        Records continue at `bounds().next_id`, ticks above `last_tick`. One call at a time.
        Cancelling the call does not cancel the write: the group may still become durable.
        Raises Fenced or WriterFailed; both are final for this object.
        """
        ...

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        """Whole records from the one that holds `from_id`, at least one, up to about `bytes_max`.

        Ids whose space was given back have no record: it goes on with the next one behind them.
        Empty if `from_id` is `next_id`; in a restored log also if there is none behind them. Raises
        OutOfRange or Corrupt. Calls may run concurrently.
        """
        ...

    async def seek_tick(self, tick: TimeTick) -> MessageId:
        """The id of the first message with a tick >= `tick`; `next_id` if there is none."""
        ...

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        """The largest record end <= until_id such that [from_id, end) takes about <= `bytes_max`.

        At least one record, so that a loop always advances; precise to the index spacing.
        """
        ...

    async def truncate(self, before_id: MessageId, retention: Retention, now_ms: int) -> MessageId:
        """Drop sealed segments below `before_id` that retention allows to drop; the new first_id.

        The active segment is sealed first when its first message is too old, so that a quiet log
        keeps nothing for more than about twice `age_ms_max`. Do not call during an append. Raises
        Fenced and WriterFailed, both final, and WalError when old data could not be removed.
        """
        ...

    async def seal(self) -> None:
        """Start a new segment unless the active one is empty: only sealed ones give space back.

        Do not call during an append. Raises as `truncate`.
        """
        ...

    async def contents(self, segment: SealedSegment | None) -> Contents:
        """What a sealed segment, or the active one (None), holds of each vchannel; reads its heads.

        Empty if the segment was removed. May take seconds, in steps that leave the disk to appends;
        cancelling it, or closing the log, ends it. Raises NotNow while the log is moved, and for a
        segment that was listed before that; Corrupt, LogClosed and WalError.
        """
        ...

    async def give_back(self, segment: SealedSegment, dead: Dead) -> int:
        """Rewrite a sealed segment without what is dead; returns the bytes given back.

        What is left keeps its ids and ticks, and running reads finish undisturbed. Atomic: a crash
        leaves the segment as it was or as it will be. 0 if it would not be smaller, or was removed.
        Takes time, and ends, as `contents`; one call at a time. Raises NotNow as `contents`, and if
        nothing was appended since the last seal; Fenced; Corrupt for a damaged segment, LogClosed
        and WalError: all of them with nothing changed.
        """
        ...

    async def look(self, segment: SealedSegment, use: Callable[[Record], bool]) -> bool:
        """Show every record of a sealed segment to `use`, in order, until it returns False.

        Returns the last answer; True if the segment was removed. `use` is called on another thread.
        Takes time, ends and raises as `contents`.
        """
        ...

    async def thin(self, segment: SealedSegment, judge: Judge) -> int:
        """Rewrite a sealed segment with what `judge` leaves of its records; otherwise `give_back`.

        Readers get what is left of a record as several ones; ids are missing between them. A record
        that would not become smaller may stay as it is.
        """
        ...

    async def close(self) -> None:
        """Close files, after a running append. Idempotent. Later calls raise LogClosed."""
        ...

    def statistics(self) -> Mapping[str, int | float]:
        """Counters since opening: groups, records, written_bytes, segments and more."""
        ...


class Wal(Protocol):
    """Opens logs. `name` is the kind of log reported to clients, such as `rocksmq`."""

    @property
    def name(self) -> str: ...

    async def open(self, channel: PChannelName, term: Term) -> Log:
        """Fence every lower term durably, recover, and continue at `term`.

        Raises Fenced if a term >= `term` was opened before, Corrupt or UnknownFormat if the log
        cannot be trusted, WriterFailed if the storage fails, Unsuitable if it is not set up for it.
        On failure nothing is left open.
        """
        ...

    def warnings(self) -> Sequence[str]:
        """What keeps logs from being written, for the operator; a sentence each. No I/O."""
        ...

    async def why_unwritable(self, channel: PChannelName) -> str:
        """Why the storage takes no synced write for this log now; empty: it does.

        Tells when a full disk has space again.
        """
        ...
