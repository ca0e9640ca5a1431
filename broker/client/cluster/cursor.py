"""Named cursors: how far something has been processed, kept by the server under a name."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

import anyio

from broker.client.batch_mark import BatchMark
from broker.client.batch_tick import BatchTick
from broker.client.cluster.cursor_calls import CursorCalls, Positions, may_retry
from broker.client.cluster.cursor_lag import CursorLags
from broker.client.cluster.given_rows import GivenRows
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.retrying import retried
from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Targets
from broker.client.errors import BadCommit, BadTarget, InvalidArgument, NoSuchCursor
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.client.start_time import Time, refuse_removed, refuse_tick, tick_at, time_of
from broker.model.channel import ChannelOffsets
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import ChannelPosition, CursorView

MOVE_S = 10.0
COMMIT_S = 10.0
LAGS_AT_ONCE: Final = 8
_TICK_MAX = (1 << 63) - 1

ResetTo = (
    Literal["all", "latest"]
    | tuple[Literal["tick"], int]
    | tuple[Literal["time"], Time]
    | datetime
    | Cut
)
FirstIds = Callable[[], Awaitable[Mapping[str, MessageId]]]


@dataclass(frozen=True, slots=True)
class CursorParts:
    """What the cursors of one client share."""

    calls: CursorCalls
    targets: Targets
    offsets: Offsets
    lags: CursorLags
    rows_given: GivenRows


class Cursor:
    """The cursor of one name; `log.cursor(name)` makes it without asking the server.

        reader = log.read("flights", start=log.cursor("billing"))
        async for batch in reader:
            ...  # process the batch
            await log.cursor("billing").commit(batch)

    The server keeps a position for each vchannel: nothing is cached here, and two programs that use
    one name share it.
    """

    def __init__(self, parts: CursorParts, name: str) -> None:
        self.name = name
        self._parts = parts

    @property
    def rows_given(self) -> GivenRows:
        """The Arrow batches that this client's readers gave out."""
        return self._parts.rows_given

    async def commit(self, batch: Any, *, deadline_s: float = COMMIT_S) -> None:
        """Record that a batch is processed: one of a reader that was started from this cursor.

        Batches may be committed in any order and more than once. The position of a vchannel moves
        to the end of the last batch before the first one that is not committed, and is durable on
        return; so a batch that is never committed is read again after a restart, with all behind
        it. Batches without messages need no commit.

        Raises BadCommit for anything else than such a batch, and when more than 65,536 runs of
        batches are committed behind one that is not; CursorWasReset, NoSuchCursor when it was
        dropped, DeadlineExceeded. After an error of the connection commit again.
        """
        for mark in self._marks(batch):
            assert mark.commits is not None
            await mark.commits.commit(mark, deadline_s)

    async def move(
        self, tick: int, targets: str | Iterable[str] = (), *, deadline_s: float = MOVE_S
    ) -> CursorView:
        """Record that everything up to `tick` on all the targets is processed; durable on return.

        For a tick that is closed on all of them: of a cut, a barrier, or `scanner.closed_tick`. The
        first move creates the cursor and has to name its targets; a later move that names targets
        replaces them. Moving to the same tick again is allowed, and a vchannel that is further
        already stays where it is. Errors that may pass are retried until `deadline_s`.

        Raises InvalidArgument for the `closed_tick` of a batch when the cursor has other vchannels
        too, which may be behind: use `commit`. CursorMovedBack for a tick below the cursor's,
        NoSuchCursor for a new name without targets, InvalidArgument for a tick from the future,
        NoSuchCollection.
        """
        if not 0 < tick <= _TICK_MAX:
            raise InvalidArgument(
                f"{tick} is not a time tick; use one of a cut, a barrier or scanner.closed_tick"
            )
        channels = await self._channels(targets) if targets else ()
        if isinstance(tick, BatchTick):
            await self._refuse_others(tick, channels)
        return await retried(
            lambda: self._parts.calls.move(self.name, int(tick), channels),
            deadline_s,
            may_retry=may_retry,
        )

    async def reset(
        self,
        to: ResetTo,
        targets: str | Iterable[str] = (),
        *,
        holds: bool | None = None,
        deadline_s: float = MOVE_S,
    ) -> CursorView:
        """Set the cursor forward or back; durable on return.

        `to`: "all" (what the log holds), "latest" (what is appended from now on), ("tick", n), a
        datetime or ("time", t), or a cut (what comes after it). `targets`: those the cursor has
        from now on, none for those it has. Readers that were started from it before can no longer
        commit: they get CursorWasReset.

        `holds`: whether retention keeps what the cursor needs, within the server's
        `hold_bytes_max` and `hold_s_max`; None: as before, and a new cursor does.

        Raises OutOfRange when retention removed messages behind that tick or cut; of a time, what
        is left counts. NoSuchCursor for a new name without targets; BadTarget for another `to`, or
        a cut of other vchannels; InvalidArgument for a time from the future.
        """
        channels = await self._channels(targets) if targets else ()
        channels = channels or (await self._parts.calls.get(self.name)).channels
        held = await self._parts.offsets.describe(channels)
        positions = {name: _position(name, to, held[name]) for name in channels}
        return await retried(
            lambda: self._parts.calls.reset(self.name, positions, holds=holds),
            deadline_s,
            may_retry=may_retry,
        )

    async def get(self, *, measured: bool = True) -> CursorView:
        """Where the cursor is on each vchannel, and how far that is behind. Raises NoSuchCursor.

        `measured=False` leaves out the lag in messages and bytes, for which the owners of the
        vchannels are asked.
        """
        view = await self._parts.calls.get(self.name)
        return replace(view, lags=await self._parts.lags.of(view)) if measured else view

    async def drop(self) -> None:
        """Forget the cursor. Raises NoSuchCursor."""
        await self._parts.calls.drop(self.name)

    # ---- for readers ---------------------------------------------------------------------------

    async def open(self, channels: Sequence[str], first_ids: FirstIds) -> CursorView:
        """The cursor; a new one, at the first ids of the channels, if there is none.

        Raises BadTarget when it has no position for one of the channels.
        """
        try:
            view = await self._parts.calls.get(self.name)
        except NoSuchCursor:
            begins = await first_ids()
            positions = {it: ChannelPosition(TimeTick(0), from_id=begins[it]) for it in channels}
            view = await self._parts.calls.open(self.name, positions)
        missing = [it for it in channels if it not in view.positions]
        if missing:
            raise BadTarget(
                f"cursor {self.name!r} has no position for {missing[0]}; it is for"
                f" {', '.join(view.channels)}. Use another cursor; or, if the collection was"
                f' dropped and created again, log.cursor({self.name!r}).reset("all", name)'
            )
        return view

    async def store(self, epoch: int, positions: Positions, deadline_s: float) -> None:
        """Commit positions of a reader; retried until the deadline."""
        await retried(
            lambda: self._parts.calls.commit(self.name, epoch, positions),
            deadline_s,
            may_retry=may_retry,
        )

    def _marks(self, batch: Any) -> Sequence[BatchMark]:
        mark = getattr(batch, "mark", None)
        marks = [mark] if isinstance(mark, BatchMark) else self.rows_given.marks(batch)
        if marks is None:
            raise BadCommit(
                f"a {type(batch).__name__} cannot be committed: pass a batch as the reader gave it"
                " out, and no part or copy of it; scanner.commit() commits all that was given out"
            )
        for each in marks:
            cursor = None if each.commits is None else each.commits.cursor
            # The registry stands for the client: another client may have another server.
            if cursor is None or (cursor.name, cursor.rows_given) != (self.name, self.rows_given):
                raise BadCommit(
                    f"the batch is not of a reader that was started from cursor {self.name!r};"
                    f" read with start=log.cursor({self.name!r}), and commit to that one"
                )
        return marks

    async def _refuse_others(self, tick: BatchTick, channels: Sequence[str]) -> None:
        others = tick.others(channels or (await self._parts.calls.get(self.name)).channels)
        if others:
            raise InvalidArgument(
                f"tick {int(tick)} is the closed tick of a batch of {', '.join(tick.channels)};"
                f" {others[0]} may be behind, and its messages would be skipped. Use"
                " cursor.commit(batch), or move to scanner.closed_tick"
            )

    async def _channels(self, targets: str | Iterable[str]) -> tuple[str, ...]:
        return (await self._parts.targets.resolve_all(targets)).vchannels


class NamedCursors:
    """`log.cursors`: all cursors that the server keeps."""

    def __init__(
        self,
        connection: Connection,
        owners: Owners,
        targets: Targets,
        offsets: Offsets,
        *,
        deadline_s: float,
    ) -> None:
        calls = ServiceCalls(connection, "tidemark.v1.TimeSync", deadline_s=deadline_s)
        lags = CursorLags(owners, offsets, deadline_s=deadline_s)
        self._parts = CursorParts(CursorCalls(calls), targets, offsets, lags, GivenRows())

    def named(self, name: str) -> Cursor:
        """The positions that the server keeps under this name; no request is made yet."""
        return Cursor(self._parts, name)

    async def list(self, *, measured: bool = True) -> list[CursorView]:
        """Every cursor, sorted by name, with how far it is behind; `measured` as for `get`."""
        found = await self._parts.calls.list()
        if not measured:
            return found
        limit = anyio.CapacityLimiter(LAGS_AT_ONCE)

        async def measure(at: int, view: CursorView) -> None:
            async with limit:
                found[at] = replace(view, lags=await self._parts.lags.of(view))

        async with anyio.create_task_group() as tasks:
            for at, view in enumerate(found):
                tasks.start_soon(measure, at, view)
        return found


def _position(name: str, to: object, held: ChannelOffsets) -> ChannelPosition:
    begin = ChannelPosition(TimeTick(0), from_id=held.first_id)
    time = time_of(to)
    if time is not None:
        tick = tick_at(time)
        return ChannelPosition(TimeTick(tick - 1)) if tick > held.removed_tick else begin
    match to:
        case "all":
            return begin
        case "latest":
            # A transaction that is open now is read whole when it is committed.
            from_id = min(held.next_id, held.last_confirmed_id)
            return ChannelPosition(held.closed_tick, from_id=from_id)
        case ("tick", int(number)):
            refuse_tick(name, number, held, (name,))
            return ChannelPosition(TimeTick(int(number) - 1)) if number > 1 else begin
        case Cut(tick, ends):
            if name not in ends:
                raise BadTarget(f"the cut was not made for {name}; it is for {', '.join(ends)}")
            refuse_removed(name, tick, held)
            return ChannelPosition(tick)
        case _:
            raise BadTarget(
                f"{to!r} is no position; use 'all', 'latest', ('tick', n), a datetime or a cut"
            )
