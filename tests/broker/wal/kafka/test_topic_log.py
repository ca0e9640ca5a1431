"""Logs in topics: what others do to a topic is told, and nothing is read that is not needed."""

import asyncio
import random
import threading

import pytest

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Dead, VChannelPart
from broker.model.retention.policy import Retention
from broker.ports.wal import (
    Corrupt,
    Fenced,
    LogClosed,
    NotNow,
    OutOfRange,
    Unsuitable,
    WriterFailed,
)
from broker.wal.kafka.entries import NOWHERE, EntryHead, EntryKind, encode_key
from broker.wal.kafka.kafka_wal import KafkaSizes
from broker.wal.kafka.log_state import PAGE_SEGMENTS
from broker.wal.kafka.partition import AnswerLost
from tests.broker.wal.kafka.topic_in_memory import MemoryPartition, MemoryTopic, MemoryTopics
from tests.broker.wal.some_records import group, record
from tests.contracts.wal_drivers import read_all

CHANNEL = PChannelName("c")
SMALL = KafkaSizes(segment_bytes=8192, index_spacing_bytes=512, record_bytes_max=1 << 20)


def topics_of(
    *, skip: bool = False, cluster: str = "c", of: MemoryTopics | None = None
) -> MemoryTopics:
    return MemoryTopics(SMALL, cluster, None if of is None else of.topics, skip=skip)


async def filled(wal: MemoryTopics, groups: int = 30, term: int = 1) -> MemoryTopic:
    log = await wal.open(CHANNEL, Term(term))
    for _ in range(groups):
        await log.append(group(log.bounds().next_id, 4, term=term, messages=3, size=100))
    await log.close()
    return wal.topics[CHANNEL]


async def test_a_topic_of_which_somebody_removed_the_begin_is_told_when_it_is_opened() -> None:
    wal = topics_of()
    topic = await filled(wal)
    topic.drop_before(10)
    with pytest.raises(Corrupt, match=r"offsets 1 to 9 were removed, not by Tidemark"):
        await wal.open(CHANNEL, Term(2))
    skipping = topics_of(skip=True, of=wal)
    log = await skipping.open(CHANNEL, Term(3))
    assert [it.reason[:17] for it in skipping.damages] == ["offsets 1 to 9 we"]
    bounds = log.bounds()
    assert 1 < bounds.first_id < bounds.next_id == 361
    found = await read_all(log)
    assert (found[0].base_id, found[-1].next_id) == (bounds.first_id, 361)
    await log.close()


async def test_a_topic_of_which_somebody_removed_all_is_told_when_it_is_opened() -> None:
    wal = topics_of()
    topic = await filled(wal)
    topic.drop_before(topic.high)
    with pytest.raises(Corrupt, match="none is left that says what the log held"):
        await wal.open(CHANNEL, Term(2))


async def test_a_state_that_somebody_removed_is_told_when_a_log_is_opened() -> None:
    wal = topics_of()
    log = await wal.open(CHANNEL, Term(1))
    await log.append(group(1, 4, messages=3))
    await log.append(group(13, 4, messages=3))
    await log.close()
    topic = wal.topics[CHANNEL]
    topic.drop_before(topic.high - 1)
    with pytest.raises(Corrupt, match="were removed, not by Tidemark"):
        await wal.open(CHANNEL, Term(2))


async def test_a_read_of_what_somebody_removed_is_damage_and_not_the_end_of_retention() -> None:
    wal = topics_of()
    topic = await filled(wal)
    log = await wal.open(CHANNEL, Term(2))
    topic.drop_before(20)
    with pytest.raises(Corrupt, match="it was removed, not by Tidemark"):
        await log.read(MessageId(1), 100)
    with pytest.raises(Corrupt):
        await log.seek_tick(TimeTick(100))
    assert (await log.read(MessageId(350), 100))[0].next_id > 350
    await log.close()


async def test_an_owner_whose_topic_was_made_anew_acknowledges_nothing() -> None:
    wal = topics_of()
    await filled(wal)
    log = await wal.open(CHANNEL, Term(2))
    topic = wal.topics[CHANNEL]
    topic.stored, topic.stamps, topic.low = [], [], 0
    with pytest.raises(WriterFailed, match="truncated, or deleted and made anew: offset 0 follow"):
        await log.append(group(361, 1, term=2))
    with pytest.raises(WriterFailed):
        await log.append(group(361, 1, term=2))
    await log.close()


async def test_what_others_write_is_told_by_the_next_append_and_by_reads() -> None:
    wal = topics_of()
    topic = await filled(wal)
    log = await wal.open(CHANNEL, Term(2))
    topic.put(None, b"somebody's")
    with pytest.raises(WriterFailed, match="not written by Tidemark"):
        await log.append(group(361, 1, term=2))
    await log.close()
    with pytest.raises(Corrupt, match="not written by Tidemark"):
        await wal.open(CHANNEL, Term(3))
    skipping = topics_of(skip=True, of=wal)
    log = await skipping.open(CHANNEL, Term(4))
    assert log.bounds().next_id == 364, "the group behind it is there"
    assert (await read_all(log))[-1].next_id == 364
    await log.close()


async def test_two_clusters_on_one_prefix_do_not_take_each_others_topics() -> None:
    one = topics_of(cluster="one")
    log = await one.open(CHANNEL, Term(1))
    other = topics_of(cluster="other", of=one)
    with pytest.raises(Unsuitable, match="belongs to cluster 'one', and this is cluster 'other'"):
        await other.open(CHANNEL, Term(5))
    await log.append(group(1, 1))
    with pytest.raises(Unsuitable, match="belongs to cluster 'one'"):
        await other.open(CHANNEL, Term(6))
    await log.append(group(4, 1))
    await log.close()


@pytest.mark.parametrize("written", ["a claim", "a state", "a group"])
async def test_a_new_cluster_is_told_whose_the_topic_is_however_high_its_term(written: str) -> None:
    one = topics_of(cluster="one")
    if written == "a claim":
        topic = one.topics.setdefault(CHANNEL, MemoryTopic())
        topic.put(encode_key(EntryHead(EntryKind.CLAIM, 40, NOWHERE), b"one"), b"one")
    else:
        log = await one.open(CHANNEL, Term(40))
        if written == "a group":
            await log.append(group(1, 2, term=40))
        await log.close()
    other = topics_of(cluster="other", of=one)
    with pytest.raises(Unsuitable, match="belongs to cluster 'one', and this is cluster 'other'"):
        await other.open(CHANNEL, Term(1))
    with pytest.raises(Fenced):
        await topics_of(cluster="one", of=one).open(CHANNEL, Term(1))


async def test_an_old_term_is_fenced_where_nothing_is_left_that_names_the_cluster() -> None:
    wal = topics_of()
    log = await wal.open(CHANNEL, Term(40))
    await log.append(group(1, 2, term=40))
    await log.append(group(7, 2, term=40))
    await log.close()
    topic = wal.topics[CHANNEL]
    topic.drop_before(topic.high - 1)
    with pytest.raises(Fenced) as caught:
        await wal.open(CHANNEL, Term(2))
    assert caught.value.newer == 40


async def test_copies_that_retries_left_are_passed_over() -> None:
    wal = topics_of()
    log = await wal.open(CHANNEL, Term(1))
    written = group(1, 4, messages=3)
    await log.append(written)
    topic = wal.topics[CHANNEL]
    for offset in (topic.high - 1, 1, topic.high - 1):
        topic.put(topic[offset].key, topic[offset].value)
    more = group(13, 4, messages=3)
    await log.append(more)
    topic.put(topic[2].key, topic[2].value)
    assert await read_all(log) == written + more
    assert log.statistics()["gaps_passed"] == 1
    await log.close()
    log = await wal.open(CHANNEL, Term(2))
    assert await read_all(log) == written + more
    assert log.bounds().next_id == 25
    await log.close()


async def test_a_claim_that_was_refused_stops_nobody() -> None:
    wal = topics_of()
    log = await wal.open(CHANNEL, Term(5))
    wal.topics[CHANNEL].put(encode_key(EntryHead(EntryKind.CLAIM, 4, NOWHERE), b"c"), b"c")
    await log.append(group(1, 2, term=5))
    assert log.bounds().next_id == 7
    wal.topics[CHANNEL].put(encode_key(EntryHead(EntryKind.CLAIM, 6, NOWHERE), b"c"), b"c")
    with pytest.raises(Fenced) as caught:
        await log.append(group(7, 2, term=5))
    assert caught.value.newer == 6
    await log.close()


async def test_a_group_larger_than_kafka_takes_goes_in_parts() -> None:
    topic, sizes = MemoryTopic(), SMALL
    wal = MemoryTopics(sizes, topics={CHANNEL: topic}, value_bytes_max=2000)
    log = await wal.open(CHANNEL, Term(1))
    written = [*group(1, 30, messages=3, size=100), record(91, size=5000)]
    await log.append(written)
    assert max(len(it.value) for it in topic.stored[2:-1]) <= 2000
    assert await read_all(log, 700) == written
    await log.close()
    log = await wal.open(CHANNEL, Term(2))
    assert await read_all(log, 700) == written
    await log.close()


async def test_opening_and_searching_read_little_of_a_long_log() -> None:
    wal = MemoryTopics(KafkaSizes(segment_bytes=1 << 19))
    log = await wal.open(CHANNEL, Term(1))
    for at in range(1, 4000, 2):
        await log.append(group(at, 1, messages=2, size=2000))
    await log.close()
    topic = wal.topics[CHANNEL]
    total = sum(len(it.value) for it in topic.stored)
    opened = wal.open_now(CHANNEL, 2)
    partition = opened.partition
    assert isinstance(partition, MemoryPartition)
    assert partition.read_bytes < total / 500
    before, chance = partition.reads, random.Random(3)
    for _ in range(20):
        from_id = chance.randrange(1, 4001)
        [found] = opened.reader.read(MessageId(from_id), 1)
        assert found.base_id <= from_id < found.next_id
    assert partition.reads - before < 20 * 9
    before = partition.reads
    for _ in range(20):
        tick = TimeTick(chance.randrange(10, 40_000))
        assert opened.reader.seek_tick(tick) >= tick // 10
    assert partition.reads - before < 20 * 9


async def test_a_log_of_many_segments_is_opened_page_by_page() -> None:
    wal = MemoryTopics(KafkaSizes(segment_bytes=1, index_spacing_bytes=512))
    log = await wal.open(CHANNEL, Term(1))
    count = 2 * PAGE_SEGMENTS + 40
    for at in range(1, count + 1):
        await log.append([record(at, size=1)])
    sealed = log.segments()
    await log.close()
    log = await wal.open(CHANNEL, Term(2))
    assert list(log.segments())[:-1] == list(sealed)
    assert len(log.segments()) == count
    kept = PAGE_SEGMENTS + 7
    newest = sum(it.size_bytes for it in log.segments()[-kept:])
    first_id = await log.truncate(log.bounds().next_id, Retention(bytes_max=newest), 0)
    assert first_id == count - kept + 1
    await log.close()
    log = await wal.open(CHANNEL, Term(3))
    assert len(log.segments()) == kept
    assert [it.base_id for it in await read_all(log)] == list(range(first_id, count + 1))
    assert wal.topics[CHANNEL].low > 0, "the prefix went"
    await log.close()


async def test_no_space_is_given_back_in_the_middle_and_a_fenced_owner_is_told() -> None:
    wal = topics_of()
    await filled(wal)
    old = await wal.open(CHANNEL, Term(2))
    [*_, segment] = old.segments()
    assert not old.gives_back
    dead = Dead({segment_name: MessageId(1 << 60) for segment_name in await old.contents(segment)})
    assert await old.give_back(segment, dead) == 0
    assert await old.thin(segment, lambda _record: ()) == 0
    assert len(await read_all(old)) == 120
    new = await wal.open(CHANNEL, Term(3))
    for act in (old.give_back(segment, dead), old.thin(segment, lambda _record: None)):
        with pytest.raises(Fenced):
            await act
    await old.close()
    with pytest.raises(LogClosed):
        await old.give_back(segment, dead)
    await new.close()


async def test_contents_and_looks_show_what_segments_hold() -> None:
    wal = topics_of()
    await filled(wal)
    log = await wal.open(CHANNEL, Term(2))
    assert await log.contents(None) == {}
    shown, parts = list[int](), list[VChannelPart]()

    def show(it: Record) -> bool:
        shown.append(it.base_id)
        return True

    for segment in log.segments():
        parts += (await log.contents(segment)).values()
        assert await log.look(segment, show)
    assert sum(it.bytes for it in parts) == log.bounds().size_bytes
    assert shown == [it.base_id for it in await read_all(log)]
    gone = log.segments()[0]
    unknown = gone._replace(next_id=MessageId(gone.next_id + 1))
    for act in (log.contents(unknown), log.look(unknown, show)):
        with pytest.raises(NotNow):
            await act
    assert not await log.look(gone, lambda _record: False)
    await log.truncate(gone.next_id, Retention(bytes_max=1), 0)
    assert await log.contents(gone) == {}
    assert await log.look(gone, lambda _record: False), "nothing is left to show"
    await log.close()


async def test_a_fenced_owner_is_told_so_where_the_newer_one_removed_its_own_claim() -> None:
    wal = topics_of()
    topic = await filled(wal)
    old = await wal.open(CHANNEL, Term(2))
    new = await wal.open(CHANNEL, Term(3))
    await new.append(group(361, 1, term=3))
    await new.seal()
    await new.truncate(MessageId(364), Retention(bytes_max=1), 0)
    assert topic.low == topic.high - 1
    with pytest.raises(Fenced) as caught:
        await old.read(MessageId(1), 100)
    assert caught.value.newer == 3
    with pytest.raises(Fenced):
        await old.append(group(361, 1, term=2))
    await old.close()
    await new.close()


async def test_a_prefix_that_could_not_be_given_back_goes_with_the_next_truncation() -> None:
    wal = topics_of()
    topic = await filled(wal)
    log = await wal.open(CHANNEL, Term(2))
    await log.truncate(MessageId(100), Retention(bytes_max=1), 0)
    kept = topic.low
    assert 0 < kept < topic.high
    with pytest.raises(OutOfRange):
        await log.read(MessageId(1), 10)
    assert await log.truncate(MessageId(100), Retention(bytes_max=1), 0) == log.bounds().first_id
    assert topic.low == kept, "nothing more went"
    await log.close()


async def test_a_log_closes_though_kafka_answers_no_write() -> None:
    silent, interrupted = threading.Event(), threading.Event()

    def step(what: str) -> None:
        if what == "interrupt":
            interrupted.set()
        if what == "append" and silent.is_set():
            interrupted.wait(30.0)
            raise AnswerLost("interrupted")

    log = await MemoryTopics(SMALL, step=step).open(CHANNEL, Term(1))
    silent.set()
    write = asyncio.ensure_future(log.append([record(1)]))  # noqa: TID251 - awaited below
    await log.close()
    assert interrupted.is_set()
    with pytest.raises(WriterFailed, match="interrupted"):
        await write


async def test_a_log_that_closes_waits_for_the_answer_to_a_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.wal.kafka.kafka_log.WRITE_ENDS_S", 30.0)
    asked, answer = threading.Event(), threading.Event()
    steps = list[str]()

    def step(what: str) -> None:
        steps.append(what)
        if what == "answer" and asked.is_set():
            answer.wait(30.0)

    wal = MemoryTopics(SMALL, step=step)
    log = await wal.open(CHANNEL, Term(1))
    asked.set()
    write = asyncio.ensure_future(log.append([record(1)]))  # noqa: TID251 - awaited below
    closing = asyncio.ensure_future(log.close())  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    answer.set()
    await closing
    await write
    assert "interrupt" not in steps
