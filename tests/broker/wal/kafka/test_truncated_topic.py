"""Reads of a topic whose start a truncation removes: what is left of an intact log is read."""

from collections.abc import Callable

import pytest

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.retention.policy import Retention
from broker.ports.wal import Corrupt, Fenced, OutOfRange, Unsuitable
from broker.wal.kafka.kafka_log import OpenedTopic
from broker.wal.kafka.partition import Unavailable
from tests.broker.wal.kafka.test_topic_log import SMALL, filled, topics_of
from tests.broker.wal.kafka.topic_in_memory import MemoryTopics
from tests.broker.wal.some_records import group
from tests.contracts.wal_drivers import read_all

CHANNEL = PChannelName("c")
NOTHING_KEPT = Retention(bytes_max=1)


async def test_a_reader_that_has_caught_up_reads_on_after_two_truncations() -> None:
    log = await topics_of().open(CHANNEL, Term(1))
    await log.append(group(1, 4, messages=3))
    await log.seal()
    await log.append(group(13, 4, messages=3))
    await read_all(log)
    for end in (13, 25):
        assert await log.truncate(MessageId(end), NOTHING_KEPT, 0) == end
    behind = group(25, 4, messages=3)
    await log.append(behind)
    assert await log.read(MessageId(25), 1 << 20) == behind
    await log.close()


async def test_a_reader_that_has_caught_up_reads_on_when_a_quiet_log_became_too_old() -> None:
    log = await topics_of().open(CHANNEL, Term(1))
    await log.append(group(1, 4, messages=3))
    await read_all(log)
    for before_id in (1, 13):  # the first one seals only: something still needs the messages
        await log.truncate(MessageId(before_id), Retention(age_ms_max=1000), now_ms=10**15)
    assert log.bounds().first_id == 13
    behind = group(13, 4, messages=3)
    await log.append(behind)
    assert await log.read(MessageId(13), 1 << 20) == behind
    await log.close()


async def test_what_follows_the_recovered_log_is_read_when_that_log_is_truncated() -> None:
    wal = topics_of()
    await filled(wal)
    log = await wal.open(CHANNEL, Term(2))
    await read_all(log)  # as recovery does
    end = log.bounds().next_id
    behind = group(end, 4, term=2, messages=3)
    await log.append(behind)
    assert await log.truncate(end, NOTHING_KEPT, 0) == end
    assert await log.read(end, 1 << 20) == behind
    await log.close()


def test_a_read_goes_on_behind_what_a_truncation_removes_meanwhile() -> None:
    opened, truncate_at_next_read = opened_again()
    [*_, last] = opened.reader.read(MessageId(13), 1 << 20)
    behind = group(last.next_id, 4, term=2, messages=3)
    opened.writer.append(behind)
    truncate_at_next_read(last.next_id)
    assert opened.reader.read(MessageId(25), 1 << 20) == behind
    assert opened.writer.view.first_id == 25


def test_a_read_of_what_a_truncation_removes_meanwhile_is_told_so() -> None:
    opened, truncate_at_next_read = opened_again()
    truncate_at_next_read(MessageId(25))
    with pytest.raises(
        OutOfRange, match=r"message id 1 is outside the log, which holds \[25, 25\)"
    ):
        opened.reader.read(MessageId(1), 1)


def test_a_search_for_a_tick_finds_the_first_one_that_a_truncation_leaves_meanwhile() -> None:
    opened, truncate_at_next_read = opened_again()
    opened.writer.append(group(25, 4, term=2, messages=3))
    truncate_at_next_read(MessageId(25))
    assert opened.reader.seek_tick(TimeTick(10)) == 25


def opened_again() -> tuple[OpenedTopic, Callable[[MessageId], None]]:
    """A topic with messages 1 to 24, and what truncates it before the next fetch of a reader."""
    due = list[MessageId]()

    def step(what: str) -> None:
        if what == "read" and due:
            opened.writer.truncate(due.pop(), NOTHING_KEPT, 0)

    wal = MemoryTopics(SMALL, step=step)
    before = wal.open_now(CHANNEL, 1)
    before.writer.append(group(1, 4, messages=3))
    before.writer.append(group(13, 4, messages=3))
    opened = wal.open_now(CHANNEL, 2)
    return opened, due.append


async def test_what_kafka_did_not_delete_when_a_copy_began_retention_deletes_later() -> None:
    failures = ["once"]

    def step(what: str) -> None:
        if what == "delete" and failures:
            failures.pop()
            raise Unavailable("Kafka does not answer")

    wal = MemoryTopics(SMALL, step=step)
    topic = await filled(wal)
    log = await wal.open(CHANNEL, Term(2))
    await log.begin_anew(MessageId(1), TimeTick(0))
    assert (log.bounds().size_bytes, topic.low, failures) == (0, 0, [])
    await log.truncate(MessageId(1), Retention(), 0)
    assert topic.low == topic.high - 1, "the state alone"
    await log.close()


async def test_a_topic_trimmed_by_hand_is_opened_by_who_needs_nothing_of_it() -> None:
    wal = topics_of()
    topic = await filled(wal)
    topic.drop_before(10)
    with pytest.raises(Corrupt):
        await wal.open(CHANNEL, Term(2))
    with pytest.raises(Unsuitable, match="belongs to cluster"):
        await topics_of(cluster="other", of=wal).open_anew(CHANNEL, Term(9))
    with pytest.raises(Fenced):
        await wal.open_anew(CHANNEL, Term(1))
    log = await wal.open_anew(CHANNEL, Term(3))
    bounds = log.bounds()
    assert (bounds.first_id, bounds.next_id) == (1, 1)
    await log.begin_anew(MessageId(40), TimeTick(7))
    copies = group(40, 3)
    await log.append_copies(copies, copies[-1].next_id, copies[-1].last_tick)
    assert await read_all(log) == copies
    await log.close()
    again = await wal.open(CHANNEL, Term(4))
    assert await read_all(again) == copies
    await again.close()
