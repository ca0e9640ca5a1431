"""Acknowledgements at the same time: what is sent together, and what waits for nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from actors.testing import run_seeded
from broker.client.errors import (
    ConnectionLost,
    DeadlineExceeded,
    LeaseLost,
    OutcomeUnknown,
    TidemarkError,
)
from broker.client.groups.gathered_acks import LINGER_S, WANTED_MAX
from broker.client.groups.member_stream import MemberStream
from broker.client.groups.settle_request import SettleRequest
from broker.core.groups.group_changes import SPANS_MAX
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from schemas.encoding.frames import HEAD_BYTES
from schemas.generated.tidemark import v1
from tests.broker.client.groups.test_groups import filled, running, take

ACK, NACK, EXTEND = v1.Settlement.ACKNOWLEDGE, v1.Settlement.RETURN, v1.Settlement.EXTEND


def request(how: v1.Settlement = ACK) -> SettleRequest:
    return SettleRequest(7, (), how)


class Wire:
    """Notes the numbers of the requests in each write.

    `full`: nothing can be sent at once. `broken`: a write that waits fails.
    """

    def __init__(self) -> None:
        self.writes: list[list[int]] = []
        self.full = self.broken = False

    def write_at_once(self, framed: bytes) -> bool:
        if self.full:
            return False
        self.writes.append(numbers_in(framed))
        return True

    async def write(self, framed: bytes, _: float) -> None:
        if self.broken:
            raise ConnectionLost("nobody is there")
        self.writes.append(numbers_in(framed))


def numbers_in(framed: bytes) -> list[int]:
    found: list[int] = []
    while framed:
        size = int.from_bytes(framed[1:HEAD_BYTES])
        whole, framed = framed[HEAD_BYTES : HEAD_BYTES + size], framed[HEAD_BYTES + size :]
        found += [it.number for it in v1.JoinGroupRequest.parse(whole).settle]
    return found


class Settling:
    """A stream and the tasks that settle over it, in virtual time."""

    def __init__(self, wire: Wire, tasks: asyncio.TaskGroup) -> None:
        self.stream = MemberStream(wire, 1 << 20)  # type: ignore[arg-type]
        self.broke: TidemarkError | None = None
        self.requests: list[SettleRequest] = []
        self.rest = tasks.create_task(self._send_rest())
        self._tasks = tasks

    async def begin(
        self, how: v1.Settlement = ACK, deadline_s: float = 9
    ) -> "asyncio.Task[Exception | None]":
        """The task of a new request, which has got as far as it can; its result is the error."""

        async def run() -> Exception | None:
            self.requests.append(request(how))
            try:
                await self.stream.settle(self.requests[-1], deadline_s)
            except TidemarkError as error:
                return error
            return None

        task = self._tasks.create_task(run())
        await settled()
        return task

    async def _send_rest(self) -> None:
        try:
            await self.stream.send_rest()
        except TidemarkError as error:
            self.broke = error

    async def answer(self, *numbers: int) -> None:
        """As the server does."""
        for each in numbers:
            self.stream.answered(each, None)
        await settled()


async def settled() -> None:
    """All have done what they can now."""
    await asyncio.sleep(LINGER_S / 10)


async def lingered() -> None:
    """What gathered has waited for long enough."""
    await asyncio.sleep(LINGER_S)


def with_a_stream(scenario: Callable[[Wire, Settling], Awaitable[None]]) -> None:
    async def run() -> None:
        wire = Wire()
        async with asyncio.TaskGroup() as tasks:
            settling = Settling(wire, tasks)
            await settled()
            await scenario(wire, settling)
            settling.rest.cancel()

    run_seeded(1, run)


def test_acknowledgements_gather_while_one_is_on_its_way() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin() for _ in range(5)]
        assert wire.writes == [[1]]
        await settling.answer(1)
        assert wire.writes == [[1]], "they wait for one more"
        await lingered()
        assert wire.writes == [[1], [2, 3, 4, 5]]
        tasks.append(await settling.begin())
        await settling.answer(4, 2, 5)
        await lingered()
        assert len(wire.writes) == 2
        await settling.answer(3)
        await lingered()
        assert wire.writes[2:] == [[6]]
        await settling.answer(6)
        assert [await it for it in tasks] == [None] * 6

    with_a_stream(scenario)


def test_what_gathered_goes_as_soon_as_as_many_are_there_as_before() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin() for _ in range(2)]
        await settling.answer(1)
        tasks.append(await settling.begin())
        assert wire.writes == [[1], [2, 3]]
        await settling.answer(2, 3)
        tasks.append(await settling.begin())
        assert len(wire.writes) == 2
        tasks.append(await settling.begin())
        assert wire.writes[2:] == [[4, 5]]
        await settling.answer(4, 5)
        assert [await it for it in tasks] == [None] * 5

    with_a_stream(scenario)


def test_many_tasks_wait_for_a_few_of_them_only() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin() for _ in range(2 + WANTED_MAX)]
        together = list(range(2, 3 + WANTED_MAX))
        await settling.answer(1)
        assert wire.writes == [[1], together], "they are enough"
        await settling.answer(*together)
        for sent in range(WANTED_MAX):
            assert len(wire.writes) == 2, sent
            tasks.append(await settling.begin())
        assert len(wire.writes[2]) == WANTED_MAX
        await settling.answer(*wire.writes[2])
        assert [await it for it in tasks] == [None] * len(tasks)

    with_a_stream(scenario)


def test_one_that_comes_alone_after_many_waits_once() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin() for _ in range(2)]
        await settling.answer(1)
        await lingered()
        await settling.answer(2)
        for number in (3, 4):
            tasks.append(await settling.begin())
            if number == 3:
                assert wire.writes == [[1], [2], [3]], "nobody was with the last one"
            await settling.answer(number)
        tasks += [await settling.begin() for _ in range(2)]
        assert wire.writes[3:] == [[4], [5]]
        await settling.answer(5)
        tasks.append(await settling.begin())
        await settling.answer(6, 7)
        tasks.append(await settling.begin())
        assert wire.writes[5:] == [[6, 7]]
        await lingered()
        assert wire.writes[6:] == [[8]], "the other did not come back"
        await settling.answer(8)
        assert [await it for it in tasks] == [None] * 8

    with_a_stream(scenario)


def test_a_member_that_waits_for_each_answer_waits_for_nothing_else() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        for number in range(1, 5):
            task = await settling.begin()
            assert wire.writes[-1] == [number]
            await settling.answer(number)
            assert await task is None

    with_a_stream(scenario)


def test_what_is_given_back_is_sent_behind_what_was_acknowledged_before() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin(how) for how in (ACK, ACK, ACK, NACK)]
        assert wire.writes == [[1], [2, 3, 4]]
        tasks.append(await settling.begin())
        await settling.answer(1, 2, 4)
        assert len(wire.writes) == 2
        await settling.answer(3)
        await lingered()
        assert wire.writes[2:] == [[5]]
        await settling.answer(5)
        assert [await it for it in tasks] == [None] * 5

    with_a_stream(scenario)


def test_a_lease_is_extended_without_delay() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin(how) for how in (ACK, ACK, EXTEND)]
        assert wire.writes == [[1], [3]]
        await settling.answer(3, 1, 2)
        assert [await it for it in tasks] == [None] * 3

    with_a_stream(scenario)


def test_one_that_is_not_answered_holds_others_up_no_longer_than_its_deadline() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        first, second = await settling.begin(deadline_s=3), await settling.begin(deadline_s=60)
        assert isinstance(await first, OutcomeUnknown)
        await lingered()
        await settled()
        assert wire.writes == [[1], [2]]
        await settling.answer(2)
        assert await second is None

    with_a_stream(scenario)


def test_one_that_was_never_sent_by_its_deadline_says_so_and_is_not_sent_later() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        first, second = await settling.begin(deadline_s=60), await settling.begin(deadline_s=3)
        error = await second
        assert isinstance(error, DeadlineExceeded)
        assert str(error) == "nothing was sent within 3 s"
        await settling.answer(1)
        assert await first is None
        assert wire.writes == [[1]]

    with_a_stream(scenario)


def test_one_that_is_told_unsent_is_not_sent_by_the_one_before_it_whose_time_is_up_too() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin(deadline_s=3) for _ in range(2)]
        numbers = [it.number for it in settling.requests]
        # As two timers that are due in one turn of the event loop.
        for each in settling.requests:
            settling.stream._end_wait(each, 3)
        await settled()
        assert numbers == [1, 2]
        assert [type(await it) for it in tasks] == [OutcomeUnknown, DeadlineExceeded]
        assert wire.writes == [[1]]

    with_a_stream(scenario)


def test_one_whose_task_was_cancelled_before_it_was_sent_is_not_sent() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        first, second, third = [await settling.begin() for _ in range(3)]
        second.cancel()
        await settled()
        await settling.answer(1)
        await lingered()
        assert wire.writes == [[1], [3]]
        await settling.answer(3)
        assert (await first, await third) == (None, None)

    with_a_stream(scenario)


def test_at_the_end_of_the_stream_only_what_was_sent_is_in_doubt() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        sent, held = await settling.begin(), await settling.begin()
        settling.stream.end()
        assert isinstance(await sent, OutcomeUnknown)
        assert isinstance(await held, LeaseLost)
        assert wire.writes == [[1]]

    with_a_stream(scenario)


def test_what_gathered_goes_when_the_socket_has_room_again() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin() for _ in range(3)]
        wire.full = True
        await settling.answer(1)
        await lingered()
        assert wire.writes == [[1], [2, 3]]
        await settling.answer(2, 3)
        assert [await it for it in tasks] == [None] * 3

    with_a_stream(scenario)


def test_a_member_that_leaves_sends_what_was_kept() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        tasks = [await settling.begin() for _ in range(3)]
        settling.stream.leave()
        assert wire.writes == [[1], [2, 3]]
        assert [type(await it) for it in tasks] == [OutcomeUnknown] * 3

    with_a_stream(scenario)


def test_what_could_not_be_sent_before_the_stream_ended_is_in_no_doubt() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        settling.rest.cancel()
        await settled()
        tasks = [await settling.begin() for _ in range(2)]
        wire.full = True
        tasks.append(await settling.begin(NACK))
        settling.stream.leave()
        assert [type(await it) for it in tasks] == [OutcomeUnknown, LeaseLost, LeaseLost]
        assert wire.writes == [[1]]

    with_a_stream(scenario)


def test_a_write_that_breaks_leaves_those_that_it_held_in_doubt() -> None:
    async def scenario(wire: Wire, settling: Settling) -> None:
        wire.full = wire.broken = True
        tasks = [await settling.begin() for _ in range(2)]
        assert isinstance(await tasks[0], OutcomeUnknown)
        assert "the stream broke" in str(settling.broke)
        settling.stream.end()
        assert isinstance(await tasks[1], LeaseLost)

    with_a_stream(scenario)


async def test_a_hundred_acknowledgements_at_a_time_are_a_few_records(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        payloads = await filled(log, shards=1)
        (collection,) = await log.collections.list()
        (vchannel,) = collection.vchannels

        async def written() -> int:
            return (await log.offsets.describe([vchannel]))[vchannel].next_id

        async with log.group("workers").join("trains") as member:
            batch = await take(member)
            assert set(batch.payloads) == payloads
            before = await written()
            async with asyncio.TaskGroup() as tasks:
                for message in batch.messages:
                    tasks.create_task(batch.ack([message]))
            assert await written() - before < 20
        (lag,) = (await log.group("workers").lag("trains")).values()
        assert lag.messages == 0


def test_requests_of_many_spans_go_in_messages_that_a_server_decodes() -> None:
    spans = tuple([TickSpan(TimeTick(2 * it), TimeTick(2 * it + 1)) for it in range(SPANS_MAX)])

    async def scenario(wire: Wire, settling: Settling) -> None:
        wire.full = True
        sizes = (1, 1, SPANS_MAX, SPANS_MAX, 1)
        requests = [SettleRequest(7, spans[:it], v1.Settlement.RETURN) for it in sizes]
        async with asyncio.TaskGroup() as tasks:
            for each in requests:
                tasks.create_task(settling.stream.settle(each, 9))
            await settled()
            size_of = {it.number: len(it.spans) for it in requests}
            assert sorted(number for write in wire.writes for number in write) == sorted(size_of)
            assert max(sum(size_of[it] for it in write) for write in wire.writes) == SPANS_MAX
            await settling.answer(1, 2, 3, 4, 5)

    with_a_stream(scenario)
