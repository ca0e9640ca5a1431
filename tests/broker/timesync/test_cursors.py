"""Named cursors over a store that fails and pchannels that are late, and over restarts."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from actors import Ref, Request, System
from actors.testing import VirtualClock, run_seeded
from broker.core.time.named_cursor import CHANNELS_MAX, CURSORS_MAX
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import ChannelPosition, CursorView, NamedCursor
from broker.ports.meta import Conflict, MetaError
from broker.ports.meta_writes import split_write
from broker.timesync.cursor_records import CURSOR_PREFIX, decode_cursor, encode_cursor
from broker.timesync.messages import (
    CommitCursor,
    CursorMessage,
    DropCursor,
    GetCursor,
    ListCursors,
    MoveCursor,
    OpenCursor,
    ResetCursor,
)
from broker.timesync.tree import TimesyncParts, timesync_tree
from tests.broker.coordinator.fakes import LosingStore
from tests.broker.timesync.fakes import NAMES, TIMING, FakePChannels, now_tick

PATH = "/timesync/cursors"
SHARDS = tuple(f"{name}_7v0" for name in NAMES)
WITHIN_S = 5.0


@dataclass
class World:
    clock: VirtualClock
    store: LosingStore
    pchannels: FakePChannels
    system: System

    @property
    def cursors(self) -> Ref[CursorMessage]:
        return self.system.find(PATH)

    async def move(self, tick: int, *channels: str, name: str = "c") -> CursorView:
        move = MoveCursor(name, channels, TimeTick(tick))
        return await self.cursors.ask(move, deadline_s=WITHIN_S)

    async def get(self, name: str = "c") -> CursorView:
        return await self.cursors.ask(GetCursor(name), deadline_s=WITHIN_S)


def play(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        clock, store = VirtualClock(), LosingStore(MemoryMetaStore())
        pchannels = FakePChannels(clock)
        spec = timesync_tree(TimesyncParts(store, pchannels, NAMES, TIMING), "")
        async with System(spec, clock=clock) as system:
            await clock.sleep(0.3)
            await test(World(clock, store, pchannels, system))

    run_seeded(1, main)


async def code_of(asked: Awaitable[object]) -> StreamingCode:
    with pytest.raises(Refused) as caught:
        await asked
    assert caught.value.refusal.cause
    return caught.value.refusal.code


def test_a_cursor_is_made_moved_listed_and_dropped() -> None:
    async def test(world: World) -> None:
        first = now_tick(world.clock)
        assert (await world.move(first, *SHARDS)).tick == first
        await world.clock.sleep(2.0)
        seen = await world.get()
        assert (seen.tick, seen.channels, seen.lag_ms, seen.behind_ms) == (
            first,
            SHARDS,
            2000,
            2000,
        )
        second = now_tick(world.clock)
        assert (await world.move(second)).channels == SHARDS
        await world.move(second, SHARDS[0], name="b")
        listed = await world.cursors.ask(ListCursors(), deadline_s=WITHIN_S)
        assert [(it.name, it.tick, it.channels) for it in listed] == [
            ("b", second, SHARDS[:1]),
            ("c", second, SHARDS),
        ]
        await world.cursors.ask(DropCursor("c"), deadline_s=WITHIN_S)
        assert await code_of(world.get()) is StreamingCode.CHANNEL_NOT_EXIST
        drop = world.cursors.ask(DropCursor("c"), deadline_s=WITHIN_S)
        assert await code_of(drop) is StreamingCode.CHANNEL_NOT_EXIST
        assert (await world.get("b")).tick == second

    play(test)


def test_a_bad_move_has_a_code_and_moves_nothing() -> None:
    async def test(world: World) -> None:
        tick = now_tick(world.clock)
        await world.move(tick, *SHARDS)
        written = world.store.writes
        bad = [
            (world.move(tick - 1), StreamingCode.INVALID_REQUEST_SEQ),
            (world.move(tick, name="new"), StreamingCode.CHANNEL_NOT_EXIST),
            (world.move(tick, name=""), StreamingCode.INVALID_ARGUMENT),
            (world.move(tick, "by-dev-rootcoord-dml_9"), StreamingCode.CHANNEL_NOT_EXIST),
            (world.move(tick + (60_000 << 18)), StreamingCode.INVALID_ARGUMENT),
            (world.move(tick + (5_000 << 18)), StreamingCode.INNER),
        ]
        for asked, code in bad:
            assert await code_of(asked) is code
        assert (await world.move(tick)).tick == tick
        assert world.store.writes == written
        assert (await world.get()).tick == tick

    play(test)


def test_a_tick_that_is_late_on_one_channel_is_taken_once_it_is_closed_there() -> None:
    async def test(world: World) -> None:
        world.pchannels.stuck[NAMES[1]] = now_tick(world.clock)
        await world.clock.sleep(1.0)
        tick = now_tick(world.clock)
        assert (await world.move(tick, SHARDS[0])).tick == tick
        assert await code_of(world.move(tick, *SHARDS)) is StreamingCode.INNER
        world.pchannels.stuck.clear()
        assert (await world.move(tick, *SHARDS)).channels == SHARDS

    play(test)


def test_what_was_seen_closed_stays_closed_while_a_channel_has_no_owner() -> None:
    async def test(world: World) -> None:
        tick = now_tick(world.clock)
        await world.move(tick, *SHARDS)
        await world.get()
        await world.clock.sleep(1.0)
        later = now_tick(world.clock)
        await world.get()
        world.pchannels.absent.add(NAMES[2])
        world.pchannels.down = True
        assert (await world.move(later)).tick == later
        assert await code_of(world.move(later + 1)) is StreamingCode.INNER
        world.pchannels.down = False
        assert (await world.get()).tick == later

    play(test)


def test_cursors_are_there_after_a_crash_and_a_failing_store_only_delays_them() -> None:
    async def test(world: World) -> None:
        tick = now_tick(world.clock)
        await world.move(tick, *SHARDS)
        world.system.kill(PATH)
        await world.clock.sleep(1.0)
        assert (await world.get()).tick == tick
        later = now_tick(world.clock)
        world.store.broken = True
        assert await code_of(world.move(later)) is StreamingCode.INNER
        world.store.broken = False
        world.store.lost_races = 2
        assert (await world.move(later)).tick == later
        world.store.lost_races = 100
        drop = world.cursors.ask(DropCursor("c"), deadline_s=WITHIN_S)
        assert await code_of(drop) is StreamingCode.INNER
        assert await code_of(world.move(later, SHARDS[0])) is StreamingCode.INNER
        world.store.lost_races = 0
        assert (await world.get()).channels == SHARDS

    play(test)


@pytest.mark.parametrize("applies", [True, False])
def test_a_change_whose_answer_is_lost_is_unknown_and_shown_if_it_was_stored(applies: bool) -> None:
    async def test(world: World) -> None:
        tick = now_tick(world.clock)
        world.store.applies, world.store.loses = applies, CURSOR_PREFIX
        assert await code_of(world.move(tick, *SHARDS)) is StreamingCode.UNKNOWN
        if applies:
            assert (await world.get()).tick == tick
        else:
            assert await code_of(world.get()) is StreamingCode.CHANNEL_NOT_EXIST
        assert (await world.move(tick, *SHARDS)).tick == tick
        world.store.loses = CURSOR_PREFIX
        drop = world.cursors.ask(DropCursor("c"), deadline_s=WITHIN_S)
        assert await code_of(drop) is StreamingCode.UNKNOWN
        listed = await world.cursors.ask(ListCursors(), deadline_s=WITHIN_S)
        assert len(listed) == (0 if applies else 1)

    play(test)


def test_there_is_room_for_so_many_cursors_and_no_more() -> None:
    async def test(world: World) -> None:
        tick = now_tick(world.clock)
        at = {SHARDS[0]: ChannelPosition(tick)}
        others = [NamedCursor(str(it), at, 1) for it in range(CURSORS_MAX)]
        puts = {CURSOR_PREFIX + it.name: encode_cursor(it) for it in others}
        for some, _ in split_write(puts):
            await world.store.inner.write(some)
        assert await code_of(world.move(tick, SHARDS[0])) is StreamingCode.INNER
        assert (await world.move(tick, *SHARDS, name="5")).channels == SHARDS

    play(test)


def test_a_cursor_whose_record_fits_no_store_is_refused_before_anything_is_stored() -> None:
    async def test(world: World) -> None:
        tick = now_tick(world.clock)
        shards = [f"{SHARDS[0]}{number:0210d}" for number in range(CHANNELS_MAX)]
        with pytest.raises(
            Refused, match=r"takes \d+ bytes, at most 983040 are possible"
        ) as caught:
            await world.move(tick, *shards)
        assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
        assert await world.store.inner.list(CURSOR_PREFIX, limit=1) == []
        assert len((await world.move(tick, *shards[: CHANNELS_MAX // 2])).channels) == 2048

    play(test)


def test_a_record_is_read_back_and_a_foreign_one_is_named() -> None:
    inside = ChannelPosition(TimeTick(7), MessageId(12), MessageId(11))
    positions = {SHARDS[0]: inside, SHARDS[1]: ChannelPosition(TimeTick(9))}
    cursor = NamedCursor("c", positions, 9, 77)
    assert decode_cursor("cursor/c", encode_cursor(cursor)) == cursor
    newer = encode_cursor(cursor).replace(b'"version":2', b'"version":3')
    for value in (newer, b"", b"[]", b'{"version":2}', b'{"version":2,"positions":[]}'):
        with pytest.raises(MetaError, match="cursor/c"):
            decode_cursor("cursor/c", value)
    assert issubclass(Conflict, MetaError)


def test_a_record_with_one_tick_for_all_channels_is_read_as_that_tick_on_each() -> None:
    stored = b'{"version":1,"name":"c","tick":7,"channels":["%s","%s"],"moved_ms":9}' % tuple(
        it.encode() for it in SHARDS[:2]
    )
    cursor = decode_cursor("cursor/c", stored)
    at = ChannelPosition(TimeTick(7))
    assert cursor == NamedCursor("c", {SHARDS[0]: at, SHARDS[1]: at}, 9)
    assert (cursor.tick, cursor.channels) == (7, SHARDS[:2])


def test_commits_move_each_channel_and_a_reset_fences_the_readers_before_it() -> None:
    async def test(world: World) -> None:
        async def ask(message: Request[CursorView]) -> CursorView:
            # An actor's reference is typed with the union of its messages.
            asked: Any = message
            answer: CursorView = await world.cursors.ask(asked, deadline_s=WITHIN_S)
            return answer

        begin = dict.fromkeys(SHARDS[:2], ChannelPosition(TimeTick(0), from_id=MessageId(1)))
        made = await ask(OpenCursor("c", begin))
        assert made.positions == begin
        assert (made.tick, made.behind_ms) == (0, 0), "counted from now, and not from 1970"
        assert await ask(OpenCursor("c", {SHARDS[0]: ChannelPosition(TimeTick(9))})) == made
        tick = now_tick(world.clock)
        ahead, behind = ChannelPosition(tick), ChannelPosition(TimeTick(tick - 7), MessageId(3))
        await ask(CommitCursor("c", made.epoch, {SHARDS[0]: ahead}))
        await ask(CommitCursor("c", made.epoch, {SHARDS[0]: behind, SHARDS[1]: behind}))
        seen = await world.get()
        assert seen.positions[SHARDS[0]] == ChannelPosition(tick, from_id=MessageId(1))
        assert seen.positions[SHARDS[1]].id == 3
        assert seen.tick == tick - 8, "the tick of a transaction that is half processed is not"
        written = world.store.writes
        await ask(CommitCursor("c", made.epoch, {SHARDS[1]: behind}))
        assert world.store.writes == written, "a commit without news is no write"
        back = await ask(ResetCursor("c", {SHARDS[0]: behind}))
        assert (back.channels, back.positions[SHARDS[0]]) == (SHARDS[:1], behind)
        for bad, code in [
            (CommitCursor("c", made.epoch, {SHARDS[0]: ahead}), StreamingCode.INVALID_REQUEST_SEQ),
            (CommitCursor("c", back.epoch, {SHARDS[1]: ahead}), StreamingCode.INVALID_ARGUMENT),
            (CommitCursor("x", back.epoch, {SHARDS[0]: ahead}), StreamingCode.CHANNEL_NOT_EXIST),
            (
                CommitCursor("c", back.epoch, {SHARDS[0]: ChannelPosition(TimeTick(tick << 1))}),
                StreamingCode.INVALID_ARGUMENT,
            ),
            (OpenCursor("n", {}), StreamingCode.INVALID_ARGUMENT),
            (OpenCursor("n", {"dml_9": ahead}), StreamingCode.CHANNEL_NOT_EXIST),
            (OpenCursor("Latest", {SHARDS[0]: ahead}), StreamingCode.INVALID_ARGUMENT),
        ]:
            assert await code_of(ask(bad)) is code
        await world.cursors.ask(DropCursor("c"), deadline_s=WITHIN_S)
        again = await ask(OpenCursor("c", {SHARDS[0]: behind}))
        assert again.epoch > back.epoch, "a cursor made again is another one"

    play(test)
