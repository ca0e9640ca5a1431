"""Members of an ordered group settle a key at once while the log refuses some of its records."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from actors import Request
from actors.testing import run_seeded
from broker.core.log.backlog import Backlog
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupView, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick
from broker.node.group_messages import AckMessages, CreateGroup, RejectMessages
from tests.broker.node.groups.test_dead_letters import LIMIT, dead, nothing_dies, rows, took
from tests.broker.node.groups.test_group_leases import KEY, Worker, join, keeper
from tests.broker.node.world import PCHANNEL, World, appended, running_node

LEASE_MS = 60_000


class RefusingBacklog:
    """Refuses the next `refuses` batches, as a full one would."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self.refuses = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._backlog, name)

    def admit(self, size_bytes: int) -> bool:
        if self.refuses:
            self.refuses -= 1
            return False
        return self._backlog.admit(size_bytes)


class Member:
    """Has three messages of one key on lease: `a` before `b` before one that keeps the lease."""

    def __init__(self, world: World, backlog: RefusingBacklog, worker: Worker) -> None:
        self.world, self.backlog, self.worker = world, backlog, worker
        self.number = worker.joined.member
        self.lease = 0
        self.a = self.b = TickSpan(TimeTick(0), TimeTick(0))

    async def take(self) -> list[str]:
        self.lease, texts, _ = await took(self.worker)
        return texts

    def ack(self, span: TickSpan) -> AckMessages:
        return AckMessages(self.number, self.lease, (span,))

    def reject(self, span: TickSpan) -> RejectMessages:
        return RejectMessages(self.number, self.lease, (span,), "bad")

    async def said(self, *requests: Request[Refusal | None]) -> list[Refusal | Exception | None]:
        """The answers to requests that come at once, in this order."""
        answers = [self._answer(it) for it in requests]
        return [await it for it in answers]

    def _answer(
        self, request: Request[Refusal | None], then: Callable[[], object] = lambda: None
    ) -> asyncio.Future[Refusal | Exception | None]:
        answer: asyncio.Future[Refusal | Exception | None] = (
            asyncio.get_running_loop().create_future()
        )

        def answered(value: Refusal | Exception | None) -> None:
            answer.set_result(value)
            then()

        self.worker.group.ask_then(request, answered, deadline_s=60)
        return answer

    async def said_after(
        self, first: Request[Refusal | None], second: Request[Refusal | None]
    ) -> list[Refusal | Exception | None]:
        """The second one is sent as soon as the first one is answered."""
        later: list[asyncio.Future[Refusal | Exception | None]] = []
        answer = await self._answer(first, lambda: later.append(self._answer(second)))
        return [answer, await later[0]]


@asynccontextmanager
async def a_member(mode: GroupMode) -> AsyncIterator[Member]:
    async with running_node() as world:
        await world.assign()
        request = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=False, limit=LIMIT, mode=mode)
        answer = await (await keeper(world)).ask(request, deadline_s=60)
        assert isinstance(answer, GroupView), answer
        (a,) = appended(await world.append(rows("a")))
        (b,) = appended(await world.append(rows("b")))
        appended(await world.append(rows("c")))
        opened = world.node.open_channels.find(PCHANNEL)
        assert opened is not None
        backlog = RefusingBacklog(opened.backlog)
        object.__setattr__(opened, "backlog", backlog)
        member = Member(world, backlog, await join(world))
        assert await member.take() == ["a", "b", "c"]
        member.a, member.b = TickSpan(TimeTick(a.tick - 1), a.tick), TickSpan(a.tick, b.tick)
        yield member


MODES = pytest.mark.parametrize("mode", [GroupMode.BY_KEY, GroupMode.BY_VCHANNEL])


@MODES
@pytest.mark.parametrize("first", ["ack", "reject"])
@pytest.mark.parametrize("second", ["ack", "reject"])
def test_what_comes_behind_a_message_of_its_key_that_is_not_settled_is_not_either(
    mode: GroupMode, first: str, second: str
) -> None:
    async def scenario() -> None:
        async with a_member(mode) as member:
            ways = {"ack": member.ack, "reject": member.reject}
            member.backlog.refuses = 1
            answers = await member.said(ways[first](member.a), ways[second](member.b))
            assert [isinstance(it, Refusal) for it in answers] == [True, True]
            # They are on lease as before, in their order.
            (behind,) = await member.said(ways[second](member.b))
            assert isinstance(behind, Refusal)
            assert behind.code is StreamingCode.INVALID_ARGUMENT
            done = await member.said(ways[first](member.a), ways[second](member.b))
            assert done == [None, None]
            member.worker.leave()
            member.worker = await join(member.world, "bob")
            assert await member.take() == ["c"]
            await nothing_dies(member.world)
            died = [it for it, way in ((b"a", first), (b"b", second)) if way == "reject"]
            assert [it.payload for it in await dead(member.world)] == died

    run_seeded(1, scenario)


@MODES
@pytest.mark.parametrize("seed", range(5))
def test_what_comes_right_after_a_refusal_is_in_order_with_what_was_refused(
    mode: GroupMode, seed: int
) -> None:
    async def scenario() -> None:
        async with a_member(mode) as member:
            member.backlog.refuses = 1
            refused, behind = await member.said_after(member.ack(member.a), member.ack(member.b))
            assert isinstance(refused, Refusal)
            assert isinstance(behind, Refusal)
            assert behind.code is StreamingCode.INVALID_ARGUMENT
            member.worker.leave()
            member.worker = await join(member.world, "bob")
            assert await member.take() == ["a", "b", "c"]

    run_seeded(seed, scenario)


def test_messages_that_a_shared_group_rejects_do_not_wait_for_those_that_are_acknowledged() -> None:
    async def scenario() -> None:
        async with a_member(GroupMode.SHARED) as member:
            member.backlog.refuses = 1
            answers = await member.said(member.reject(member.a), member.ack(member.b))
            assert [isinstance(it, Refusal) for it in answers] == [True, False]

    run_seeded(1, scenario)
