"""What every driver of the log port must do when space is given back; see `broker/ports/wal.py`."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Dead, VChannelPart
from broker.model.retention.policy import Retention
from broker.ports.wal import Fenced, Log, LogClosed, NotNow
from tests.broker.wal.some_records import record
from tests.contracts.wal_drivers import CHANNEL, Driver, read_all, rewriting_driver

__all__ = ["rewriting_driver"]
LIVE, DROPPED = f"{CHANNEL}_1v0", f"{CHANNEL}_2v0"
LATE = MessageId(1 << 62)
DEAD = Dead({DROPPED: LATE})


def mixed(first_id: int, count: int, *, term: int = 1, live_every: int = 10) -> list[Record]:
    """Records of three messages; every tenth is of a live collection."""
    ids = range(first_id, first_id + 3 * count, 3)
    return [
        record(
            it,
            term=term,
            messages=3,
            size=200,
            vchannel=DROPPED if (it // 3) % live_every else LIVE,
        )
        for it in ids
    ]


async def filled(log: Log, records: int = 200, first_id: int = 1) -> list[Record]:
    written = []
    for at in range(first_id, first_id + 3 * records, 30):
        written += mixed(at, 10, term=log.term)
        await log.append(written[-10:])
    return written


async def read_on(log: Log, from_id: int, bytes_max: int = 3000) -> list[Record]:
    """Everything from an id on, in order."""
    found, at = list[Record](), MessageId(from_id)
    while at < log.bounds().next_id:
        batch = await log.read(at, bytes_max)
        assert batch, f"nothing at or behind {at}"
        assert batch[-1].next_id > at
        found += batch
        at = batch[-1].next_id
    return found


def left(records: Sequence[Record], sealed_to: int, dead: Dead = DEAD) -> list[Record]:
    return [it for it in records if it.base_id >= sealed_to or not dead.covers(it)]


async def give_back_all(log: Log, dead: Dead = DEAD) -> int:
    return sum([await log.give_back(it, dead) for it in log.segments()])


async def test_what_is_left_keeps_its_ids_and_ticks_and_the_rest_takes_no_space(
    driver: Driver,
) -> None:
    log = await driver.open()
    written, before = await filled(log), log.bounds()
    sealed_to = log.segments()[-1].next_id
    given = await give_back_all(log)
    after = log.bounds()
    expected = left(written, sealed_to)
    assert await read_on(log, 1) == expected
    assert given == before.size_bytes - after.size_bytes > 0.7 * before.size_bytes
    assert (after.first_id, after.next_id, after.last_tick) == (1, before.next_id, before.last_tick)
    for from_id in range(1, before.next_id, 7):
        found = await log.read(MessageId(from_id), 1)
        assert found == [next(it for it in expected if it.next_id > from_id)]
    await log.append([record(before.next_id, vchannel=LIVE)])
    await log.close()
    log = await driver.open()
    assert (await read_on(log, 1))[:-1] == expected, "also after a restart"
    assert log.bounds().size_bytes <= after.size_bytes + 500
    await log.close()


async def test_a_second_drop_gives_back_the_rest(driver: Driver) -> None:
    log = await driver.open()
    written = await filled(log)
    sealed_to = log.segments()[-1].next_id
    await give_back_all(log)
    assert await give_back_all(log) == 0, "nothing more is dead"
    both = Dead({DROPPED: LATE, LIVE: LATE})
    assert await give_back_all(log, both) > 0
    assert await read_on(log, 1) == left(written, sealed_to, both)
    await log.close()
    log = await driver.open()
    assert await read_on(log, 1) == left(written, sealed_to, both)
    await log.close()


async def test_contents_count_the_bytes_of_each_vchannel(driver: Driver) -> None:
    log = await driver.open()
    assert await log.contents(None) == {}
    written = await filled(log)
    sizes = dict.fromkeys((LIVE, DROPPED), 0)
    for segment in (*log.segments(), None):
        for name, part in (await log.contents(segment)).items():
            sizes[name] += part.bytes
            mine = [it for it in written if it.vchannel == name]
            assert part.base_id in {it.base_id for it in mine}
            assert part.next_id in {it.next_id for it in mine}
    assert sum(sizes.values()) == log.bounds().size_bytes
    assert 8 < sizes[DROPPED] / sizes[LIVE] < 10
    gone = log.segments()[0]
    await log.truncate(gone.next_id, Retention(bytes_max=1), 0)
    assert await log.contents(gone) == {}
    assert await log.give_back(gone, DEAD) == 0
    await log.close()


async def test_definitions_of_a_purged_collection_and_what_is_above_a_floor_stay(
    driver: Driver,
) -> None:
    log = await driver.open()
    plain = [record(it, size=3000, vchannel=DROPPED) for it in range(1, 9)]
    written = [replace(it, kind=7) if it.base_id in (2, 5) else it for it in plain]
    for each in written:
        await log.append([each])
    await log.seal()
    await log.append([record(9, vchannel=LIVE)])
    await give_back_all(log, Dead(purged={DROPPED: MessageId(7)}))
    assert [it.base_id for it in await read_on(log, 1)] == [2, 5, 7, 8, 9]
    await give_back_all(log, Dead({DROPPED: MessageId(5), LIVE: MessageId(9)}))
    assert [it.base_id for it in await read_on(log, 1)] == [5, 7, 8, 9]
    await log.close()


async def test_ticks_are_found_across_gaps(driver: Driver) -> None:
    log = await driver.open()
    written = await filled(log)
    sealed_to = log.segments()[-1].next_id
    await give_back_all(log)
    kept = left(written, sealed_to)
    for tick in range(0, written[-1].last_tick, 13):
        found = await log.seek_tick(TimeTick(tick))
        behind = [it for it in kept if it.last_tick >= tick]
        assert found <= max(behind[0].base_id, behind[0].base_id + tick - behind[0].base_tick)
        below = [it for it in kept if it.last_tick < tick]
        assert not below or found >= below[-1].next_id
    at, until = MessageId(1), log.bounds().next_id
    while at < until:
        after = await log.advance(at, until, 2000)
        assert at < after <= until
        at = after
    await log.close()


async def test_nothing_is_given_back_while_nothing_lies_behind_it(driver: Driver) -> None:
    """So a read at any id below the end finds a record."""
    log = await driver.open()
    await log.append([record(1, messages=3, size=5000, vchannel=DROPPED)])
    await log.seal()
    [segment] = log.segments()
    with pytest.raises(NotNow):
        await log.give_back(segment, DEAD)
    with pytest.raises(NotNow):
        await log.thin(segment, lambda _: ())
    await log.seal()
    assert len(log.segments()) == 1, "an empty segment is not sealed"
    await log.append([record(4, vchannel=LIVE)])
    assert await log.give_back(segment, DEAD) > 0
    assert [it.base_id for it in await log.read(MessageId(2), 10)] == [4]
    await log.close()


@dataclass(frozen=True)
class Listed:
    """A segment as another log showed it."""

    next_id: MessageId
    last_tick: TimeTick = TimeTick(1)
    size_bytes: int = 1


async def test_a_segment_of_a_log_that_was_moved_is_not_taken_for_one_that_was_removed(
    driver: Driver,
) -> None:
    log = await driver.open()
    await filled(log)
    removed, kept, *_ = log.segments()
    await log.truncate(removed.next_id, Retention(bytes_max=1), 0)
    shown = list[Record]()

    def show(it: Record) -> bool:
        shown.append(it)
        return True

    for gone in (removed, Listed(MessageId(removed.next_id - 1))):
        assert await log.contents(gone) == {}
        assert await log.give_back(gone, DEAD) == 0
        assert await log.look(gone, lambda _: False)
        assert await log.thin(gone, lambda _: ()) == 0
    for unknown in (Listed(MessageId(kept.next_id - 1)), Listed(LATE)):
        with pytest.raises(NotNow):
            await log.contents(unknown)
        with pytest.raises(NotNow):
            await log.give_back(unknown, DEAD)
        with pytest.raises(NotNow):
            await log.look(unknown, show)
        with pytest.raises(NotNow):
            await log.thin(unknown, lambda _: ())
    assert not shown
    await log.close()


async def test_a_fenced_owner_gives_nothing_back(driver: Driver) -> None:
    old = await driver.open()
    written = await filled(old)
    segments = old.segments()
    new = await driver.open()
    for segment in segments:
        with pytest.raises(Fenced):
            await old.give_back(segment, DEAD)
    assert await read_all(new) == written
    await old.close()
    with pytest.raises(LogClosed):
        await old.give_back(segments[0], DEAD)
    with pytest.raises(LogClosed):
        await old.contents(None)
    await new.close()


async def test_truncation_drops_rewritten_segments(driver: Driver) -> None:
    log = await driver.open()
    await filled(log)
    await give_back_all(log)
    half = log.segments()[len(log.segments()) // 2].next_id
    assert await log.truncate(half, Retention(bytes_max=1), 0) == half
    kept = await read_on(log, half)
    await log.close()
    log = await driver.open()
    assert (log.bounds().first_id, await read_on(log, half)) == (half, kept)
    await log.close()


async def test_reads_go_on_undisturbed_while_space_is_given_back(driver: Driver) -> None:
    log = await driver.open()
    chance = random.Random(7)
    done = asyncio.Event()
    written = await filled(log, 20)

    async def read_anywhere() -> int:
        reads = 0
        while not done.is_set() or not reads:
            from_id = MessageId(chance.randrange(1, log.bounds().next_id))
            found = await log.read(from_id, 4000)
            assert all([it] == mixed(it.base_id, 1) for it in found)
            ids = [it.base_id for it in found]
            assert ids == sorted(ids)
            assert found[-1].next_id > from_id
            first = from_id - (from_id - 1) % 3
            live = [it for it in range(first, ids[-1] + 1, 3) if mixed(it, 1)[0].vchannel == LIVE]
            assert [it.base_id for it in found if it.vchannel == LIVE] == live, "no live one lost"
            reads += 1
        return reads

    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read_anywhere()) for _ in range(3)]
        for _ in range(20):
            written += await filled(log, 20, log.bounds().next_id)
            await give_back_all(log)
        done.set()
    assert all(reader.result() > 0 for reader in readers)
    assert log.bounds().size_bytes < sum(len(it.body) for it in written) / 3
    await log.close()


def test_parts_of_a_vchannel_are_joined() -> None:
    one, two = (VChannelPart(5, MessageId(it), MessageId(it + 2)) for it in (1, 7))
    assert one.joined(two) == VChannelPart(10, MessageId(1), MessageId(9))
