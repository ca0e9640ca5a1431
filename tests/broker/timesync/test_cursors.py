"""Named cursors over a store that fails and pchannels that are late, and over restarts."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from actors import Ref, System
from actors.testing import VirtualClock, run_seeded
from broker.core.time.named_cursor import CURSORS_MAX
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.model.named_cursor import CursorView, NamedCursor
from broker.ports.meta import Conflict, MetaError
from broker.timesync.cursor_records import CURSOR_PREFIX, decode_cursor, encode_cursor
from broker.timesync.messages import (
    CursorMessage,
    DropCursor,
    GetCursor,
    ListCursors,
    MoveCursor,
)
from broker.timesync.tree import TimesyncParts, timesync_tree
from tests.broker.coordinator.fakes import ShakyStore
from tests.broker.timesync.fakes import NAMES, TIMING, FakePChannels, now_tick

PATH = "/timesync/cursors"
SHARDS = tuple(f"{name}_7v0" for name in NAMES)
WITHIN_S = 5.0


@dataclass
class World:
    clock: VirtualClock
    store: ShakyStore
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
        clock, store = VirtualClock(), ShakyStore(MemoryMetaStore())
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


def test_there_is_room_for_so_many_cursors_and_no_more() -> None:
    async def test(world: World) -> None:
        tick = now_tick(world.clock)
        others = [NamedCursor(str(it), tick, SHARDS[:1], 1) for it in range(CURSORS_MAX)]
        puts = {CURSOR_PREFIX + it.name: encode_cursor(it) for it in others}
        await world.store.inner.write(puts)
        assert await code_of(world.move(tick, SHARDS[0])) is StreamingCode.INNER
        assert (await world.move(tick, *SHARDS, name="5")).channels == SHARDS

    play(test)


def test_a_record_is_read_back_and_a_foreign_one_is_named() -> None:
    cursor = NamedCursor("c", TimeTick(7), SHARDS, 9)
    assert decode_cursor("cursor/c", encode_cursor(cursor)) == cursor
    newer = encode_cursor(cursor).replace(b'"version":1', b'"version":2')
    for value in (newer, b"", b"[]", b'{"version":1}'):
        with pytest.raises(MetaError, match="cursor/c"):
            decode_cursor("cursor/c", value)
    assert issubclass(Conflict, MetaError)
