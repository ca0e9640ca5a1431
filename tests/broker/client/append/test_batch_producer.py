"""When an open batch is sent and when it waits, and how its answer is reported."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from broker.client import Deadlines, Gathering, Message, SendLimits, Ticket, connect
from broker.client.append.batch_producer import IN_FLIGHT_FEW, IN_FLIGHT_SMALL, MESSAGES_FEW
from broker.client.errors import ProtocolBroken
from tests.broker.client.scripted import VCHANNEL, ScriptedBroker, scripted_broker

UNTIL_ANSWERED = Gathering(linger_ms=60_000)
SOON_CLOSED = Deadlines(close_s=0.1)
LATE_CLOSED = Deadlines(append_s=120, call_s=60, close_s=60)


@pytest.fixture
async def silent() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as started:
        started.silent = True
        yield started


async def test_small_batches_are_sent_at_once_up_to_four_in_flight(
    silent: ScriptedBroker,
) -> None:
    assert await _stored(silent, IN_FLIGHT_SMALL, each=1) == [*[1] * IN_FLIGHT_SMALL, 2]


async def test_of_batches_with_many_messages_two_are_in_flight(silent: ScriptedBroker) -> None:
    each = MESSAGES_FEW
    assert await _stored(silent, IN_FLIGHT_FEW, each) == [*[each] * IN_FLIGHT_FEW, 2 * each]


async def test_an_invalid_answer_fails_each_append_of_the_batch_with_its_own_error() -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        broker.level = 9
        tickets = [await log.append_soon(VCHANNEL, Message(b"it")) for _ in range(3)]
        errors = await asyncio.gather(*tickets, return_exceptions=True)
    assert [type(it) for it in errors] == [ProtocolBroken] * 3
    assert len({id(it) for it in errors}) == 3


async def test_a_batch_counts_the_bytes_of_its_keys_too() -> None:
    limited = Gathering(bytes_max=100_000, linger_ms=60_000)
    async with scripted_broker() as broker, connect(broker.address, gathering=limited) as log:
        messages = [Message(b"it", key=b"k" * 20_000) for _ in range(20)]
        await asyncio.gather(*[await log.append_soon(VCHANNEL, it) for it in messages])
    assert max(len(batch) for batch in broker.numbers.values()) <= 100_000 // 20_000


async def test_what_the_caller_changes_after_the_call_is_not_stored() -> None:
    payload = bytearray(b"before")
    async with scripted_broker() as broker, connect(broker.address) as log:
        given = Message(payload)  # type: ignore[arg-type]  # it is taken at run time
        ticket = await log.append_soon(VCHANNEL, given)
        payload[:] = b"change"
        await ticket
    assert [stored.body[-6:] for stored in broker.log] == [b"before"]


async def test_room_that_a_cancelled_caller_was_woken_for_goes_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_broker() as broker, connect(broker.address) as log:
        await log.append(VCHANNEL, b"first")
        (producer,) = log._appends._batches.all()
        room = [0]
        monkeypatch.setattr(producer, "_room", lambda: room[0])
        at_s = asyncio.get_running_loop().time() + 30
        async with asyncio.TaskGroup() as tasks:
            first, second = (tasks.create_task(producer.wait_for_room(at_s)) for _ in range(2))
            while len(producer._for_room) < 2:
                await anyio.lowlevel.checkpoint()
            room[0] = 1
            # As when an answer wakes it and it is cancelled in the same turn of the loop.
            producer._admit_waiters()
            first.cancel()
            await second
        assert first.cancelled()


async def test_a_wait_for_room_counts_towards_the_deadline_of_the_append() -> None:
    async with scripted_broker() as broker:
        broker.silent = True
        limits = SendLimits(appends_max=1)
        async with connect(broker.address, limits=limits, deadlines=SOON_CLOSED) as log:
            await log.append_soon(VCHANNEL, Message(b"held"), deadline_s=1.0)
            began_s = asyncio.get_running_loop().time()
            ticket = await log.append_soon(VCHANNEL, Message(b"late"), deadline_s=60.0)
            producer = log._appends._batches.all()[0]
            (late,) = producer._open.values()
            # Counted from the end of the wait it would be 61 s.
            assert late.deadline_at_s <= began_s + 60.5, "not the whole deadline after the wait"
            ticket.cancel()


async def _stored(broker: ScriptedBroker, at_once: int, each: int) -> list[int]:
    """The sizes of the batches of so many messages at a time, two times more than go at once."""
    tickets: list[Ticket] = []

    def arrived() -> bool:
        return len(broker.log) == len(tickets)

    async with (
        connect(broker.address, gathering=UNTIL_ANSWERED, deadlines=LATE_CLOSED) as log,
        anyio.create_task_group() as tasks,
    ):
        for time in range(at_once + 2):
            tickets += [await log.append_soon(VCHANNEL, Message(b"it")) for _ in range(each)]
            await (broker.until(arrived) if time < at_once else log.offsets.describe([VCHANNEL]))
        # Closing sends what is left; its answer never comes.
        tasks.start_soon(log.aclose)
        await broker.until(arrived)
        log.abort()
    await asyncio.gather(*tickets, return_exceptions=True)
    return [len(batch) for batch in broker.numbers.values()]
