"""What every driver of the log port must do when messages are removed from records."""

import random
from collections.abc import Sequence

import pytest

from broker.core.space.record_runs import kept_runs
from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Dead
from broker.ports.wal import Fenced, Judge, Log, LogClosed
from tests.broker.wal.some_records import batched, in_txn, record, with_own
from tests.contracts.test_wal_space import read_on
from tests.contracts.wal_drivers import CHANNEL, Driver, rewriting_driver

__all__ = ["rewriting_driver"]
LIVE = f"{CHANNEL}_1v0"


async def filled(log: Log, first_id: int, records: int, chance: random.Random) -> list[Record]:
    """Records of 1 to 6 messages in each form that a record can have."""
    written, at = list[Record](), first_id
    for _ in range(records):
        plain = record(at, term=log.term, messages=chance.randrange(1, 7), size=150, vchannel=LIVE)
        form = chance.choice((batched, with_own, lambda it: it, in_txn))
        made = form(plain)
        if chance.random() < 0.3:
            made = in_txn(made)
        written.append(made)
        at = made.next_id
        await log.append([made])
    return written


def left_of(records: Sequence[Record], gone: set[int], sealed_to: int) -> list[Record]:
    """The naive model: each record cut into the runs of what is kept."""
    return [
        run
        for it in records
        for run in (
            (it,)
            if it.base_id >= sealed_to
            else kept_runs(it, [id not in gone for id in range(it.base_id, it.next_id)])
        )
    ]


def judge(gone: set[int]) -> Judge:
    def left(it: Record) -> Sequence[Record] | None:
        kept = [id not in gone for id in range(it.base_id, it.next_id)]
        return None if all(kept) else kept_runs(it, kept)

    return left


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_left_has_its_ids_and_ticks_after_several_rounds(
    driver: Driver, seed: int
) -> None:
    chance = random.Random(seed)
    log = await driver.open()
    written, gone, sealed_to = list[Record](), set[int](), 1
    for _ in range(3):
        written += await filled(log, log.bounds().next_id, 60, chance)
        before = log.bounds().size_bytes
        sealed_to = log.segments()[-1].next_id
        gone |= {it for it in range(1, sealed_to) if chance.random() < 0.4}
        given = sum([await log.thin(it, judge(gone)) for it in log.segments()])
        assert given == before - log.bounds().size_bytes > 0
        expected = left_of(written, gone, sealed_to)
        assert await read_on(log, 1) == expected
        for from_id in range(1, log.bounds().next_id, 5):
            found = await log.read(MessageId(from_id), 1)
            assert found[0] == next(it for it in expected if it.next_id > from_id)
        for tick in range(0, written[-1].last_tick, 37):
            reached = await log.seek_tick(TimeTick(tick))
            behind = [it for it in expected if it.last_tick >= tick]
            assert reached <= max(behind[0].base_id, behind[0].base_id + tick - behind[0].base_tick)
        await log.close()
        log = await driver.open()
        assert await read_on(log, 1) == expected, "also after a restart"
    await log.append([record(log.bounds().next_id, term=log.term)])
    assert sum([await log.thin(it, judge(gone)) for it in log.segments()]) == 0
    await log.close()


async def test_a_thinned_record_can_be_dropped_like_any_other(driver: Driver) -> None:
    chance = random.Random(1)
    log = await driver.open()
    written = await filled(log, 1, 60, chance)
    sealed_to = log.segments()[-1].next_id
    gone = {it for it in range(1, sealed_to) if it % 3}
    for segment in log.segments():
        await log.thin(segment, judge(gone))
    for segment in log.segments():
        await log.give_back(segment, Dead({LIVE: MessageId(sealed_to)}))
    assert await read_on(log, 1) == [it for it in written if it.base_id >= sealed_to]
    await log.close()


async def test_a_fenced_or_closed_owner_removes_nothing(driver: Driver) -> None:
    old = await driver.open()
    written = await filled(old, 1, 40, random.Random(2))
    segments = old.segments()
    new = await driver.open()
    for segment in segments:
        with pytest.raises(Fenced):
            await old.thin(segment, judge({1, 2, 3}))
    assert await read_on(new, 1) == written
    await old.close()
    with pytest.raises(LogClosed):
        await old.thin(segments[0], judge({1}))
    await new.close()
