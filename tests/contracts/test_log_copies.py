"""What a driver must do as the copy of another log: `broker/ports/switching/log_copies.py`."""

from typing import cast

import pytest

from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.switching.log_copies import CopyTarget
from broker.ports.wal import Fenced, OutOfRange
from tests.broker.wal.some_records import group, record
from tests.contracts.wal_drivers import Driver, driver, kafka_node, read_all

__all__ = ["driver", "kafka_node"]


async def opened(driver: Driver, term: int | None = None) -> CopyTarget:
    return cast(CopyTarget, await driver.open(term))


async def copy_in(log: CopyTarget, records: list[Record]) -> None:
    await log.append_copies(records, records[-1].next_id, records[-1].last_tick)


async def test_a_copy_keeps_ids_ticks_and_the_terms_of_others(driver: Driver) -> None:
    log = await opened(driver, 9)
    records = [*group(1, 30, term=2), *group(91, 30, term=5)]
    await copy_in(log, records[:20])
    await copy_in(log, records[20:])
    assert await read_all(log) == records
    assert log.bounds().last_term == 5
    own = group(181, 3, term=9)
    await log.append(own)
    await log.close()
    again = await opened(driver, 10)
    assert await read_all(again) == [*records, *own]
    await again.close()


async def test_a_copy_begins_where_the_other_log_does(driver: Driver) -> None:
    log = await opened(driver)
    await log.append(group(1, 5))
    await log.begin_anew(MessageId(40), TimeTick(300))
    for _ in range(2):
        bounds = log.bounds()
        assert (bounds.first_id, bounds.next_id, bounds.size_bytes) == (40, 40, 0)
        assert (bounds.removed_tick, bounds.last_tick) == (300, 300)
        with pytest.raises(OutOfRange):
            await log.read(MessageId(39), 100)
        await log.close()
        log = await opened(driver)
    copies = group(40, 20)
    await copy_in(log, copies)
    assert await read_all(log) == copies
    assert await log.seek_tick(TimeTick(5)) == 40
    await log.close()


async def test_a_log_that_begins_anew_may_begin_at_a_lower_id(driver: Driver) -> None:
    log = await opened(driver)
    for first in (1, 50, 3):
        await log.begin_anew(MessageId(first), TimeTick(first))
        records = group(first, 40, size=900)
        await copy_in(log, records)
        assert await read_all(log) == records
    await log.close()
    log = await opened(driver)
    assert await read_all(log) == records
    assert log.bounds().first_id == 3
    await log.close()


async def test_ids_that_are_missing_in_the_source_are_missing_in_the_copy(driver: Driver) -> None:
    log = await opened(driver, 4)
    records = [record(10, messages=2, tick=100), record(20, messages=3, tick=200, term=3)]
    await log.begin_anew(MessageId(5), TimeTick(7))
    await log.append_copies(records, MessageId(30), TimeTick(300))
    for _ in range(2):
        bounds = log.bounds()
        assert (bounds.first_id, bounds.next_id, bounds.last_tick) == (5, 30, 300)
        for at, found in ((5, records), (12, records[1:]), (19, records[1:]), (23, [])):
            assert list(await log.read(MessageId(at), 10_000)) == found
        assert await log.seek_tick(TimeTick(50)) == 10
        assert await log.seek_tick(TimeTick(150)) == 20
        await log.seal()
        await log.close()
        log = await opened(driver)
    own = record(30, tick=400, term=log.term)
    await log.append([own])
    assert list(await log.read(MessageId(24), 10_000)) == [own]
    assert await log.seek_tick(TimeTick(301)) == 30
    await log.close()


async def test_a_copy_is_truncated_as_any_log(driver: Driver) -> None:
    log = await opened(driver)
    await copy_in(log, group(1, 40, size=900))
    await copy_in(log, group(121, 40, size=900))
    await log.seal()
    end = log.bounds().next_id
    await log.append(group(end, 1, term=log.term))
    await log.truncate(end, Retention(age_ms_max=1), 1 << 50)
    assert log.bounds().first_id == end
    await log.close()


async def test_a_discarded_log_is_empty_at_the_next_term(driver: Driver) -> None:
    log = await opened(driver)
    await copy_in(log, group(1, 60, size=900))
    await log.discard()
    await log.close()
    again = await opened(driver)
    bounds = again.bounds()
    assert bounds.first_id == bounds.next_id
    assert bounds.size_bytes == 0
    await again.begin_anew(MessageId(2), TimeTick(1))
    await copy_in(again, group(2, 3))
    assert await read_all(again) == group(2, 3)
    await again.close()


async def test_a_fenced_owner_removes_nothing(driver: Driver) -> None:
    log = await opened(driver)
    await copy_in(log, group(1, 20, size=900))
    newer = await opened(driver)
    records = group(61, 2, term=newer.term)
    await newer.append(records)
    for work in (log.begin_anew(MessageId(1), TimeTick(0)), log.discard()):
        with pytest.raises(Fenced):
            await work
    assert (await read_all(newer))[-2:] == records
    await log.close()
    await newer.close()


async def test_records_that_go_back_are_refused(driver: Driver) -> None:
    log = await opened(driver)
    await copy_in(log, group(10, 2))
    for wrong in (record(9, tick=900), record(20, tick=101), record(15, tick=1)):
        with pytest.raises(ValueError, match="copied record"):
            await log.append_copies([wrong], wrong.next_id, wrong.last_tick)
    await log.close()
