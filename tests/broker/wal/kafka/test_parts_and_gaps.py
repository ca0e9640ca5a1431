"""Groups that are stored in several parts, and ticks that lie in gaps or in what is damaged."""

import pytest

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.ports.wal import NotStored, WriterFailed
from broker.wal.kafka.entries import EntryKind, entries_of
from broker.wal.kafka.partition import Rejected
from tests.broker.wal.kafka.test_topic_log import SMALL, filled, topics_of
from tests.broker.wal.kafka.topic_in_memory import MemoryTopics
from tests.broker.wal.some_records import group, record

CHANNEL = PChannelName("c")


async def test_a_group_of_which_a_part_is_stored_is_not_told_as_not_stored() -> None:
    appends = 0

    def step(what: str) -> None:
        nonlocal appends
        appends += what == "append"
        if appends == 4 and what == "append":  # a claim, a state, the first part, this one
            raise Rejected("this user may not write to the topic")

    wal = MemoryTopics(SMALL, step=step, value_bytes_max=1000)
    log = await wal.open(CHANNEL, Term(1))
    with pytest.raises(WriterFailed) as failed:
        await log.append(group(1, 4, messages=3, size=200))
    await log.close()
    again = await wal.open(CHANNEL, Term(2))
    stored = again.bounds().next_id > 1
    await again.close()
    assert not (stored and isinstance(failed.value, NotStored))


async def test_a_tick_in_a_gap_before_a_large_record_is_found_before_that_record() -> None:
    log = await MemoryTopics(SMALL, value_bytes_max=1000).open(CHANNEL, Term(1))
    large = record(20, size=2000)  # tick 200; ids 2 to 19 were given back
    for each in (record(1), large, record(21)):
        await log.append_copies([each], each.next_id, each.last_tick)
    assert await log.seek_tick(TimeTick(100)) == 20
    await log.close()


async def test_a_tick_in_a_damaged_group_skips_no_more_than_the_group() -> None:
    wal = topics_of()
    topic = await filled(wal, groups=10)
    found = entries_of(topic.stored, "some.topic", lambda _: None)
    hurt = [it for it in found if it.head.kind is EntryKind.GROUP][3]
    at = hurt.offset - topic.low
    value = bytearray(hurt.value)
    for place in range(len(value)):
        value[place] ^= 0xFF
    topic.stored[at] = topic.stored[at]._replace(value=bytes(value))
    skipping = topics_of(skip=True, of=wal)
    log = await skipping.open(CHANNEL, Term(2))
    assert await log.seek_tick(TimeTick(hurt.head.base_tick)) == MessageId(hurt.head.next_id)
    await log.close()
