"""The faults that the in-memory log injects."""

import pytest

from broker.model.ids import MessageId, PChannelName, Term
from broker.ports.wal import Fenced, Log, WriterFailed
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.wal.some_records import group

CHANNEL = PChannelName("c")


@pytest.mark.parametrize(("fault", "survives"), [(Fault.LOST, False), (Fault.KEPT, True)])
async def test_an_injected_fault_ends_the_writer(fault: Fault, survives: bool) -> None:
    wal = MemoryWal(fault_of=lambda _, records: fault if records[0].base_id > 1 else None)
    log = await wal.open(CHANNEL, Term(1))
    await log.append(group(1, 2))
    with pytest.raises(WriterFailed) as first:
        await log.append(group(7, 2))
    with pytest.raises(WriterFailed) as second:
        await log.append(group(7, 2))
    assert second.value is first.value
    assert log.bounds().next_id == 7
    assert await log.read(MessageId(1), 10_000) == group(1, 2)
    assert (await wal.open(CHANNEL, Term(2))).bounds().next_id == (13 if survives else 7)


async def test_a_new_owner_may_come_between_the_write_and_its_acknowledgement() -> None:
    newer: list[Log] = []

    async def take_over() -> None:
        if not newer:
            newer.append(await wal.open(CHANNEL, Term(2)))

    wal = MemoryWal(pause=take_over)
    log = await wal.open(CHANNEL, Term(1))
    with pytest.raises(Fenced):
        await log.append(group(1, 2))
    assert log.bounds().next_id == 1
    assert newer[0].bounds().next_id == 7


async def test_writable_returns_what_the_test_sets() -> None:
    assert await MemoryWal(is_writable=lambda: False).why_unwritable(CHANNEL)
