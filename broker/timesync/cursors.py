"""Named cursors: how far each of some readers, anywhere, has processed its channels.

What they still need holds back retention, within limits: the owners of pchannels ask here first.

Closed ticks seen before are remembered, so that most moves are one write, and a poll that fails
does not refuse what is already known to be closed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.core.time import tso
from broker.core.time.cursor_holds import (
    from_what_is_left,
    lost_on,
    passed_refusal,
    passed_text,
    removed_refusal,
)
from broker.core.time.named_cursor import (
    Positions,
    channels_refusal,
    commit_refusal,
    committed,
    future_refusal,
    move_refusal,
    moved,
    name_refusal,
    new_name_refusal,
    positions_refusal,
    room_refusal,
    view,
)
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import CursorView, NamedCursor
from broker.model.retention.holders import (
    HeldBack,
    Hold,
    HolderKind,
)
from broker.ports.closed_ticks import ClosedTicks
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaError, MetaStore, WriteUnconfirmed
from broker.timesync.cursor_records import CursorRecords, RecordedCursor, record_refusal
from broker.timesync.holds.ledger import HeldFigures, HoldLedger, HoldRule
from broker.timesync.messages import (
    AllowRemovals,
    CommitCursor,
    CursorMessage,
    DropCursor,
    FindHolds,
    GetCursor,
    HoldMessage,
    ListCursors,
    MoveCursor,
    OpenCursor,
    ResetCursor,
    ShowHeldBack,
)

Answer = (
    CursorView
    | tuple[CursorView, ...]
    | Mapping[PChannelName, Sequence[Hold]]
    | Mapping[PChannelName, HeldBack]
    | Collection[PChannelName]
    | None
)


class Cursors(Actor[CursorMessage]):
    """A change is durable when it is answered."""

    def __init__(
        self,
        store: MetaStore,
        source: ClosedTicks,
        pchannels: Sequence[PChannelName],
        rule: HoldRule,
        figures: HeldFigures,
    ) -> None:
        self._records = CursorRecords(store)
        self._ledger = HoldLedger(store, rule, self._wall_ms)
        self._figures = figures
        self._source = source
        self._pchannels = frozenset(pchannels)
        self._closed: dict[PChannelName, TimeTick] = {}
        self._newest_epoch = 0

    async def started(self, context: Context[CursorMessage]) -> None:
        self._clock = context.clock

    async def receive(self, batch: Sequence[Envelope[CursorMessage]]) -> None:
        for envelope in batch:
            try:
                answer = await self._answer(envelope.message)
                await self._note(envelope.message)
                envelope.reply(answer)
            except Refused as error:
                envelope.fail(error)
            except WriteUnconfirmed as error:
                # Nothing to read again: each request reads the record of its cursor.
                cause = f"{error}: read the cursors, and repeat the change if it is not there"
                envelope.fail(Refused(StreamingCode.UNKNOWN, cause))
            except MetaError as error:
                envelope.fail(Refused(StreamingCode.INNER, str(error)))

    async def _answer(self, message: CursorMessage) -> Answer:
        match message:
            case MoveCursor(name, channels, tick):
                return await self._view(await self._move(name, channels, tick))
            case OpenCursor():
                return await self._view(await self._set(message))
            case CommitCursor(name, epoch, positions):
                return await self._view(await self._commit(name, epoch, positions))
            case ResetCursor():
                return await self._view(await self._set(message))
            case GetCursor(name):
                found, _ = await self._found(name)
                await self._refresh_closed()
                return await self._view(found)
            case ListCursors():
                cursors = await self._records.list()
                await self._refresh_closed()
                return tuple([await self._view(it) for it in cursors])
            case DropCursor(name):
                await self._drop(name)
                return None
            case request:
                return await self._answer_owner(request)

    async def _note(self, message: CursorMessage) -> None:
        """For the metrics: who holds and who was passed, where that may have changed."""
        match message:
            case FindHolds() | GetCursor() | ListCursors() | ShowHeldBack():
                return
            case AllowRemovals():
                pass
            case changed:
                # A cursor that was passed may have moved on; others hold until the next report.
                if not self._figures.names(changed.name):
                    return
        try:
            self._figures.seen = await self._ledger.held_back(await self._records.list())
        except MetaError:
            pass  # the change itself is stored; the next one shows it

    async def _answer_owner(self, message: HoldMessage) -> Answer:
        cursors = await self._records.list()
        match message:
            case FindHolds(starts):
                return await self._ledger.holds(starts, cursors)
            case AllowRemovals(removals):
                return await self._ledger.allow(removals, cursors)
            case ShowHeldBack():
                return await self._ledger.held_back(cursors)
            case _:
                assert_never(message)

    async def _move(self, name: str, channels: tuple[str, ...], tick: TimeTick) -> NamedCursor:
        _check(name_refusal(name))

        async def attempt() -> NamedCursor:
            recorded = await self._records.read(name)
            before = recorded.cursor
            _check(move_refusal(name, before, channels, tick, self._pchannels))
            after = moved(name, before, channels, tick, self._clock.wall_ms())
            await self._check_closed(after)
            if after == before:
                return after
            if before is None:
                after = replace(after, epoch=self._next_epoch())
            await self._save(recorded, after)
            return after

        return await retry_conflicts(f"cursor {name!r}", attempt)

    async def _set(self, wanted: OpenCursor | ResetCursor) -> NamedCursor:
        name, positions = wanted.name, wanted.positions
        _check(name_refusal(name))
        _check(channels_refusal(tuple(positions), self._pchannels))
        if not positions:
            raise invalid_argument(f"cursor {name!r} needs at least one channel; name a target")
        await self._check_possible(positions)
        starts = await self._ledger.starts()
        positions = from_what_is_left(positions, starts)

        async def attempt() -> NamedCursor:
            recorded = await self._records.read(name)
            before = recorded.cursor
            if before is not None and isinstance(wanted, OpenCursor):
                return before
            _check(removed_refusal(name, positions, starts))
            # A reader from before must not undo the reset, nor commit to a cursor made again.
            epoch = self._next_epoch(before.epoch if before else 0)
            holds = wanted.holds
            if holds is None:
                holds = before is None or before.holds
            after = NamedCursor(name, positions, self._clock.wall_ms(), epoch, holds)
            await self._save(recorded, after)
            return after

        return await retry_conflicts(f"cursor {name!r}", attempt)

    async def _commit(self, name: str, epoch: int, positions: Positions) -> NamedCursor:
        await self._check_possible(positions)

        async def attempt() -> NamedCursor:
            before, recorded = await self._found(name)
            _check(commit_refusal(before, positions, epoch))
            after = committed(before, positions, self._clock.wall_ms())
            await self._check_not_passed(after)
            if after != before:
                await self._records.save(recorded, after)
            return after

        return await retry_conflicts(f"cursor {name!r}", attempt)

    async def _check_not_passed(self, cursor: NamedCursor) -> None:
        """Refuse a commit that leaves the cursor behind what retention has removed."""
        starts = await self._ledger.starts()
        for pchannel in lost_on(cursor, starts):
            passed = await self._ledger.passed(HolderKind.CURSOR, cursor.name, pchannel)
            # One that never held anything was promised nothing: its reads are refused alone.
            if passed is not None:
                _check(passed_refusal(cursor, pchannel, starts[pchannel], passed))

    def _next_epoch(self, before: int = 0) -> int:
        # By the clock, since nothing is left of a cursor that was dropped.
        self._newest_epoch = max(self._newest_epoch + 1, before + 1, self._clock.wall_ms())
        return self._newest_epoch

    async def _save(self, recorded: RecordedCursor, after: NamedCursor) -> None:
        before = recorded.cursor
        if before is None:
            _check(new_name_refusal(after.name))
        # Limits count all cursors; an ordinary move need not list them.
        if before is None or len(after.channels) > len(before.channels):
            others = [it for it in await self._records.list() if it.name != after.name]
            _check(room_refusal(others, after))
            _check(record_refusal(after))
        await self._records.save(recorded, after)

    async def _check_possible(self, positions: Positions) -> None:
        """Refuse ticks that no reader can have seen yet; ticks may run ahead of the clock."""
        now = tso.compose(self._clock.wall_ms(), 0)
        newest = max(now, *self._closed.values(), TimeTick(0))
        if positions_refusal(positions, newest) is not None:
            await self._refresh_closed()
            _check(positions_refusal(positions, max(now, *self._closed.values(), TimeTick(0))))

    async def _check_closed(self, after: NamedCursor) -> None:
        # Poll only if needed: most moves are to ticks that are known to be closed already.
        if future_refusal(after.channels, after.tick, self._closed) is not None:
            await self._refresh_closed()
            _check(future_refusal(after.channels, after.tick, self._closed))

    async def _drop(self, name: str) -> None:
        async def attempt() -> None:
            _, recorded = await self._found(name)
            await self._records.drop(recorded, name)

        await retry_conflicts(f"cursor {name!r}", attempt)

    async def _found(self, name: str) -> tuple[NamedCursor, RecordedCursor]:
        _check(name_refusal(name))
        recorded = await self._records.read(name)
        if recorded.cursor is None:
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, f"there is no cursor {name!r}")
        return recorded.cursor, recorded

    async def _refresh_closed(self) -> None:
        """Poll the closed ticks; keep the larger ones, since a closed tick stays closed."""
        try:
            seen = await self._source.closed_ticks()
        except Refused:
            return  # what was closed at an earlier poll still is
        for name, tick in seen.items():
            self._closed[name] = max(tick, self._closed.get(name, tick))

    def _wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def _view(self, cursor: NamedCursor) -> CursorView:
        found = view(cursor, self._closed, self._clock.wall_ms())
        starts = await self._ledger.starts()
        lost: dict[str, str] = {}
        for pchannel in lost_on(cursor, starts):
            passed = await self._ledger.passed(HolderKind.CURSOR, cursor.name, pchannel)
            lost[pchannel] = passed_text(starts[pchannel], passed)
        held = self._ledger.held_by(HolderKind.CURSOR, cursor.name)
        return replace(found, holds=cursor.holds, held_bytes=held, passed=lost)


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal.code, refusal.cause)
