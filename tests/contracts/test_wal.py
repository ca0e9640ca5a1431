"""What every driver of the log port must do; see `broker/ports/wal.py`."""

import asyncio
import random

import pytest

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.retention.policy import Retention
from broker.ports.wal import Fenced, LogClosed, OutOfRange
from tests.broker.wal.some_records import group, record, seek_in
from tests.contracts.wal_drivers import CHANNEL, Driver, driver, kafka_node, read_all

__all__ = ["driver", "kafka_node"]
NOW_MS = 1_700_000_000_000


def tick_at(ms: int) -> TimeTick:
    return TimeTick(ms << 18)


async def test_an_empty_log_begins_at_id_one_and_is_empty(driver: Driver) -> None:
    log = await driver.open()
    bounds = log.bounds()
    assert (bounds.first_id, bounds.next_id, bounds.last_tick, bounds.size_bytes) == (1, 1, 0, 0)
    assert log.term == 1
    assert list(await log.read(MessageId(1), 1000)) == []
    await log.close()


async def test_what_was_appended_is_read_as_it_was(driver: Driver) -> None:
    log = await driver.open()
    first = [record(1, messages=4, size=7), record(5, vchannel="", size=0), record(6, size=5000)]
    await log.append(first)
    second = group(7, 40, size=100)
    await log.append(second)
    assert await read_all(log) == first + second
    bounds = log.bounds()
    assert (bounds.next_id, bounds.last_tick) == (second[-1].next_id, second[-1].last_tick)
    assert bounds.last_term == 1
    await log.close()


async def test_a_group_is_told_written_once_and_a_fenced_one_never(driver: Driver) -> None:
    log = await driver.open()
    told: list[str] = []
    await log.append(group(1, 3), lambda: told.append("written"))
    assert told == ["written"]
    assert log.bounds().next_id == 10
    newer = await driver.open(2)
    with pytest.raises(Fenced):
        await log.append(group(10, 1), lambda: told.append("fenced"))
    await log.close()
    assert await read_all(newer) == group(1, 3)
    assert told == ["written"]
    await newer.close()


async def test_each_term_continues_where_the_one_before_ended(driver: Driver) -> None:
    written = []
    for term in (1, 2, 5):
        log = await driver.open(term)
        written += group(log.bounds().next_id, 30, term=term)
        await log.append(written[-30:])
        await log.close()
    log = await driver.open(9)
    assert log.bounds().last_term == 5
    assert log.bounds().last_tick == written[-1].last_tick
    assert await read_all(log) == written
    await log.close()


async def test_a_read_begins_with_the_record_that_holds_the_id(driver: Driver) -> None:
    log = await driver.open()
    records = group(1, 20, messages=5, size=50)
    await log.append(records)
    for from_id in range(1, 101):
        [found] = await log.read(MessageId(from_id), 1)
        assert found == records[(from_id - 1) // 5]
    await log.close()


async def test_a_read_takes_about_the_bytes_it_was_told(driver: Driver) -> None:
    log = await driver.open()
    await log.append(group(1, 20, messages=1, size=100))
    assert len(await log.read(MessageId(1), 1)) == 1
    assert 4 <= len(await log.read(MessageId(1), 1000)) <= 10
    await log.close()


async def test_ids_outside_the_log_are_refused_with_its_range(driver: Driver) -> None:
    log = await driver.open()
    await log.append(group(1, 3))
    for asked in (0, -1, 11):
        with pytest.raises(OutOfRange, match=r"\[1, 10\)"):
            await log.read(MessageId(asked), 100)
    assert list(await log.read(MessageId(10), 100)) == []
    await log.close()


async def test_a_group_that_does_not_continue_the_log_is_refused(driver: Driver) -> None:
    log = await driver.open()
    await log.append(group(1, 3))
    for wrong in (
        [record(11)],
        [record(9)],
        [record(10, tick=5)],
        [record(10), record(12)],
        [record(10, term=2)],
    ):
        with pytest.raises(ValueError, match="record"):
            await log.append(wrong)
    await log.append([])
    await log.append([record(10)])
    assert log.bounds().next_id == 11
    await log.close()


async def test_a_higher_term_fences_a_lower_one_for_ever(driver: Driver) -> None:
    old = await driver.open(1)
    await old.append(group(1, 2))
    new = await driver.open(2)
    for _ in range(2):
        with pytest.raises(Fenced):
            await old.append(group(7, 1))
    assert await read_all(old) == group(1, 2), "a fenced owner may still read"
    assert new.bounds().next_id == 7
    await new.append(group(7, 1, term=2))
    with pytest.raises(Fenced):
        await old.truncate(MessageId(7), Retention(bytes_max=1), NOW_MS)
    await old.close()
    assert await read_all(new) == group(1, 2) + group(7, 1, term=2)
    await new.close()


@pytest.mark.parametrize("term", [1, 2, 3])
async def test_a_term_that_was_used_or_passed_is_refused(driver: Driver, term: int) -> None:
    await (await driver.open(3)).close()
    with pytest.raises(Fenced) as caught:
        await driver.open(term)
    assert (caught.value.term, caught.value.newer) == (term, 3)


async def test_channels_do_not_know_each_other(driver: Driver) -> None:
    wal = driver.again()
    one = await wal.open(CHANNEL, Term(1))
    other = await wal.open(PChannelName("other"), Term(1))
    await one.append(group(1, 4))
    assert other.bounds().next_id == 1
    await one.close()
    await other.close()


async def test_seeking_a_tick_finds_the_first_message_at_or_above_it(driver: Driver) -> None:
    log = await driver.open()
    records = group(1, 150, messages=3, size=60)
    for at in range(0, 150, 15):
        await log.append(records[at : at + 15])
    next_id = log.bounds().next_id
    for tick in [0, 1, *range(10, 4600, 7), 1 << 40]:
        assert await log.seek_tick(TimeTick(tick)) == seek_in(records, tick, next_id), tick
    await log.close()


async def test_advancing_ends_at_records_and_takes_about_the_bytes(driver: Driver) -> None:
    log = await driver.open()
    for at in range(1, 450, 45):
        await log.append(group(at, 15, messages=3, size=60))
    next_id = log.bounds().next_id
    for until_id in (next_id, 301):
        for bytes_max in (1, 700, 5000, 1 << 30):
            at, ends = MessageId(1), []
            while at < until_id:
                end = await log.advance(at, MessageId(until_id), bytes_max)
                assert at < end <= until_id
                assert (end - 1) % 3 == 0, "a record ends here"
                assert end - at <= max(3, 3 * (bytes_max // 180 + 1))
                assert end - at >= min(until_id - at, 3 * (bytes_max // 500))
                at = end
                ends.append(end)
            assert ends[-1] == until_id
    assert await log.advance(MessageId(2), MessageId(3), 1) == 3, "never above the limit"
    assert await log.advance(next_id, next_id, 100) == next_id
    with pytest.raises(OutOfRange):
        await log.advance(MessageId(next_id + 1), next_id, 100)
    await log.close()


async def test_truncation_drops_old_segments_by_size(driver: Driver) -> None:
    log = await driver.open()
    for at in range(1, 600, 30):
        await log.append(group(at, 10, messages=3, size=300))
    before, stored = log.bounds(), await read_all(log)
    assert before.removed_tick == 0
    first_id = await log.truncate(before.next_id, Retention(bytes_max=60_000), NOW_MS)
    after = log.bounds()
    assert first_id == after.first_id > 1
    assert after.next_id == before.next_id
    assert 30_000 < after.size_bytes <= 60_000
    assert (await read_all(log))[0].base_id == first_id
    with pytest.raises(OutOfRange):
        await log.read(MessageId(first_id - 1), 100)
    assert await log.seek_tick(TimeTick(0)) == first_id
    newest_removed = max(it.last_tick for it in stored if it.next_id <= first_id)
    assert after.removed_tick == newest_removed
    await log.close()
    log = await driver.open()
    assert log.bounds().first_id == first_id
    assert log.bounds().removed_tick == newest_removed, "also after a restart"
    assert (await read_all(log))[-1].next_id == before.next_id
    await log.close()


async def test_truncation_drops_old_segments_by_age(driver: Driver) -> None:
    log, at = await driver.open(), 1
    for minute in range(60):
        tick = tick_at(NOW_MS + minute * 60_000)
        await log.append([record(at, messages=5, size=400, tick=tick)])
        at += 5
    hour_later = NOW_MS + 60 * 60_000
    first_id = await log.truncate(MessageId(at), Retention(age_ms_max=30 * 60_000), hour_later)
    assert 1 < first_id <= 1 + 30 * 5, "nothing younger than half an hour went"
    assert await log.truncate(MessageId(at), Retention(age_ms_max=1 << 50), hour_later) == first_id
    await log.close()


async def test_a_log_that_has_gone_quiet_forgets_everything_in_time(driver: Driver) -> None:
    log = await driver.open()
    await log.append([record(1, messages=5, tick=tick_at(NOW_MS))])
    retention = Retention(age_ms_max=30 * 60_000)
    assert await log.truncate(MessageId(6), retention, NOW_MS + 30 * 60_000) == 1
    for later in range(2):
        now_ms = NOW_MS + (31 + later) * 60_000
        assert await log.truncate(MessageId(6), retention, now_ms) == 6
    assert (log.bounds().next_id, log.bounds().size_bytes) == (6, 0)
    await log.append([record(6, tick=tick_at(NOW_MS + 32 * 60_000))])
    assert (await read_all(log))[0].base_id == 6
    await log.close()
    log = await driver.open()
    assert (log.bounds().first_id, log.bounds().next_id) == (6, 7)
    await log.close()


async def test_a_slow_log_keeps_nothing_for_more_than_about_twice_its_age(driver: Driver) -> None:
    log, minutes = await driver.open(), 30
    for minute in range(200):
        now_ms = NOW_MS + minute * 60_000
        await log.append([record(minute + 1, size=1, tick=tick_at(now_ms))])
        retention = Retention(age_ms_max=minutes * 60_000)
        first_id = await log.truncate(MessageId(minute + 2), retention, now_ms)
        assert minute - 2 * minutes - 2 <= first_id - 1 <= max(0, minute - minutes)
        assert (await read_all(log))[0].base_id == first_id
    assert first_id - 1 >= minute - 2 * minutes - 2
    await log.close()


async def test_truncation_without_a_limit_keeps_everything(driver: Driver) -> None:
    log = await driver.open()
    for at in range(1, 300, 30):
        await log.append(group(at, 10, messages=3, size=300))
    assert await log.truncate(log.bounds().next_id, Retention(), NOW_MS) == 1
    await log.close()


async def test_truncation_never_goes_above_the_id_it_was_told(driver: Driver) -> None:
    log = await driver.open()
    for at in range(1, 300, 30):
        await log.append(group(at, 10, messages=3, size=300))
    retention = Retention(bytes_max=1)
    for before_id in range(1, 302, 25):
        assert await log.truncate(MessageId(before_id), retention, NOW_MS) <= before_id
    await log.close()


async def test_a_log_truncated_to_nothing_keeps_its_ids_and_ticks(driver: Driver) -> None:
    log = await driver.open()
    await log.append(group(1, 10))
    end = log.bounds()
    await log.close()
    for _ in range(2):
        log = await driver.open()
        await log.truncate(end.next_id, Retention(bytes_max=1), NOW_MS)
        bounds = log.bounds()
        assert (bounds.first_id, bounds.next_id) == (end.next_id, end.next_id)
        assert (bounds.last_tick, bounds.last_term, bounds.size_bytes) == (end.last_tick, 1, 0)
        assert bounds.removed_tick == end.last_tick
        await log.close()
    log = await driver.open()
    with pytest.raises(ValueError, match="above tick"):
        await log.append([record(end.next_id, term=driver.term, tick=end.last_tick)])
    await log.append(group(end.next_id, 1, term=driver.term))
    await log.close()


async def test_reads_go_on_while_the_log_grows_and_is_truncated(driver: Driver) -> None:
    log = await driver.open()
    chance = random.Random(7)
    done = asyncio.Event()

    async def read_on() -> int:
        reads = 0
        while not done.is_set() or not reads:
            bounds = log.bounds()
            if bounds.first_id == bounds.next_id:
                await asyncio.sleep(0)
                continue
            from_id = MessageId(chance.randrange(bounds.first_id, bounds.next_id))
            try:
                found = await log.read(from_id, 4000)
            except OutOfRange:
                assert from_id < log.bounds().first_id
                continue
            assert found[0].base_id <= from_id < found[0].next_id
            assert found == [record(r.base_id, messages=3, size=200) for r in found]
            reads += 1
        return reads

    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read_on()) for _ in range(3)]
        for at in range(1, 1800, 30):
            await log.append(group(at, 10, messages=3, size=200))
            await log.truncate(log.bounds().next_id, Retention(bytes_max=40_000), NOW_MS)
        done.set()
    assert all(reader.result() > 0 for reader in readers)
    assert log.statistics()["groups"] == 60
    await log.close()


async def test_a_closed_log_says_so(driver: Driver) -> None:
    log = await driver.open()
    await log.append(group(1, 2))
    await log.close()
    await log.close()
    with pytest.raises(LogClosed):
        await log.append(group(7, 1))
    with pytest.raises(LogClosed):
        await log.read(MessageId(1), 10)


async def test_a_healthy_storage_is_writable(driver: Driver) -> None:
    assert await driver.again().why_unwritable(CHANNEL) == ""
    log = await driver.open()
    assert await driver.again().why_unwritable(CHANNEL) == ""
    await log.close()
