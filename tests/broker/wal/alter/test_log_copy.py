"""A copy beside its source: gaps, removed beginnings, another content, and what lies in between."""

from dataclasses import replace

import pytest

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.retention.policy import Retention
from broker.wal.alter.log_copy import CopyDiffers, LogCopy
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.wal.some_records import group, record
from tests.contracts.wal_drivers import read_all

NAME = PChannelName("p0")
ALL_OLD = Retention(age_ms_max=1)


async def opened(wal: MemoryWal | None = None) -> MemoryLog:
    return await (wal or MemoryWal(segment_bytes=2000)).open(NAME, Term(1))


async def whole(source: MemoryLog, target: MemoryLog) -> LogCopy:
    copy = LogCopy(source, target, MessageId(0))
    await copy.begin()
    assert await copy.rest()
    return copy


async def test_a_copy_is_whole_when_all_was_copied_and_compared() -> None:
    source, target = await opened(), await opened()
    await source.append(group(1, 60))
    copy = LogCopy(source, target, MessageId(1))
    assert not copy.is_whole
    await copy.begin()
    await copy.step()
    assert (copy.copied_id, copy.checked_id) == (source.bounds().next_id, 1)
    assert copy.left_bytes == source.bounds().size_bytes
    await copy.step()
    assert (copy.is_whole, copy.left_bytes) == (True, 0)
    assert await read_all(target) == await read_all(source)


async def test_an_empty_log_and_one_whose_begin_was_removed_are_copied() -> None:
    empty = await whole(await opened(), await opened())
    assert (empty.copied_id, empty.left_bytes) == (1, 0)
    source, target = await opened(), await opened()
    await source.append(group(1, 60))
    await source.seal()
    end = source.bounds().next_id
    await source.append([record(end)])
    await source.truncate(end, ALL_OLD, 1 << 50)
    await whole(source, target)
    assert target.bounds() == source.bounds()


async def test_ids_without_records_are_copied_as_such() -> None:
    source, target = await opened(), await opened()
    await source.append_copies([record(5), record(9)], MessageId(20), TimeTick(500))
    copy = await whole(source, target)
    assert copy.copied_id == 20
    assert list(await target.read(MessageId(6), 1000)) == [record(9)]


@pytest.mark.parametrize("wrong", ["other", "more", "less", "tick"])
async def test_a_copy_that_differs_is_told_with_the_message(wrong: str) -> None:
    source, target = await opened(), await opened()
    records = group(1, 4)
    await source.append(records)
    end, tick = records[-1].next_id, records[-1].last_tick
    if wrong == "other":
        records[2] = replace(records[2], body=bytes(len(records[2].body)))
    elif wrong == "more":
        records[3:] = [record(10), record(11), record(12)]
        records[3] = replace(records[3], vchannel="x")
    elif wrong == "less":
        records = records[:3]
    else:
        tick = TimeTick(tick + 1)
    await target.append_copies(records, end, tick)
    copy = LogCopy(source, target, MessageId(1))
    assert copy.fits
    with pytest.raises(CopyDiffers, match="is begun anew by itself") as caught:
        await copy.rest()
    assert caught.value.at in (7, 10, end)


async def test_a_target_fits_only_with_a_part_of_the_source_from_its_begin_on() -> None:
    source = await opened()
    await source.append_copies(group(10, 4), MessageId(22), TimeTick(500))
    for first, until, checked, fits in (
        (1, 22, 10, True), (1, 16, 16, True), (11, 22, 11, False), (1, 23, 10, False),
        (1, 16, 17, False),
    ):  # fmt: skip
        target = await opened()
        await target.begin_anew(MessageId(first), TimeTick(0))
        await target.append_copies([], MessageId(until), TimeTick(1))
        assert LogCopy(source, target, MessageId(checked)).fits is fits


async def test_the_rest_is_given_up_when_it_is_too_much_for_a_pause() -> None:
    source, target = await opened(), await opened()
    copy = LogCopy(source, target, MessageId(0))
    await copy.begin()
    for at in range(1, 11):
        await source.append([record(at, size=1 << 20)])
    assert not await copy.rest()
    assert await copy.rest()


async def test_a_copy_goes_on_although_retention_has_removed_what_was_not_checked() -> None:
    """As after a restart: the log is held again only at the first step."""
    source, target = await opened(), await opened()
    records = group(1, 8)
    await source.append(records)
    at = records[3].next_id
    await target.append_copies(records[:6], records[5].next_id, records[5].last_tick)
    cut = await opened()
    await cut.begin_anew(at, records[3].last_tick)
    await cut.append_copies(records[4:], records[-1].next_id, records[-1].last_tick)
    copy = LogCopy(cut, target, MessageId(records[1].next_id))
    if not copy.fits:
        await copy.begin()
    assert await copy.rest()
