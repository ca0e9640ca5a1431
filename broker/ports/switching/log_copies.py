"""A log that can become the copy of another one; `broker/wal/alter` copies."""

from collections.abc import Sequence
from typing import Protocol

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.ports.wal import Log, Wal


class CopyTarget(Log, Protocol):
    """Implemented by all drivers. Errors are those of `append`; one call at a time."""

    async def begin_anew(self, first_id: MessageId, removed_tick: TimeTick) -> None:
        """Forget all messages for good, durably, and go on at `first_id` above `removed_tick`.

        Both are as retention would have left them. A crash leaves the log as it was, or empty. A
        fenced owner removes nothing of a newer one.
        """
        ...

    async def append_copies(
        self, records: Sequence[Record], until_id: MessageId, until_tick: TimeTick
    ) -> None:
        """Store records of another log as they are, durably; their terms may be older.

        Ids that are missing before, between and behind them up to `until_id` are as if their space
        had been given back; `until_tick` is the last tick up to there.
        """
        ...

    async def discard(self) -> None:
        """Forget all messages for good, with what only they needed. Then only `close` is left."""
        ...


class CopyingWal(Wal, Protocol):
    """Opens such logs."""

    async def open(self, channel: PChannelName, term: Term) -> CopyTarget: ...

    async def open_anew(self, channel: PChannelName, term: Term) -> CopyTarget:
        """`open` for who begins a copy, or discards the log: what it holds is of no use.

        It may be gone afterwards, and damage in it is no error where nothing of it must be read.
        """
        ...

    async def remove(self, channel: PChannelName, term: Term) -> bool:
        """Discard a log that is not open here, without an opening, and so without room for one.

        False: this driver cannot, and nothing was done. After a WalError it may be tried again at
        the same term. A fenced owner removes nothing of a newer one.
        """
        ...
