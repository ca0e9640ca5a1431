"""Calls that need a login while the member of etcd that is asked is silent: deadlines hold."""

from typing import TypeVar

import anyio
import pytest

from actors.testing import run_seeded
from broker.etcd.etcd_errors import Unanswered
from broker.etcd.members import ATTEMPTS_S, Member, Members
from broker.etcd.place import etcd_place
from broker.etcd.requests import RANGE
from broker.transport.codec import WireMessage
from schemas.generated.etcdserverpb import AuthenticateResponse, RangeRequest, RangeResponse

A = TypeVar("A", bound=WireMessage)
CALL_S = 3.0


class TimedMember(Member):
    """Answers each call after `answers_s`, or not in time."""

    def __init__(self, name: str, answers_s: float) -> None:
        super().__init__(name, 1, None)
        self.answers_s = answers_s
        self.logins = self.calls = 0

    async def ask(
        self, path: str, request: WireMessage, answer: type[A], token: str, deadline_s: float
    ) -> A:
        self.calls += 1
        self.logins += answer is AuthenticateResponse
        await anyio.sleep(min(self.answers_s, deadline_s))
        if self.answers_s > deadline_s:
            raise Unanswered(f"{self.address} is silent")
        found = AuthenticateResponse(token="t") if answer is AuthenticateResponse else answer()
        assert isinstance(found, answer)
        return found


async def called(
    members: list[TimedMember], calls: int = 8, apart_s: float = 0.0
) -> list[tuple[float, str]]:
    """How long each call took, and how it ended."""
    place = etcd_place(f"etcd://u@{','.join(it.address for it in members)}/p")
    asked = Members(place, None, lambda: "p", call_s=CALL_S)
    asked._members = list(members)
    ended: list[tuple[float, str]] = []

    async def call() -> None:
        began_s, how = anyio.current_time(), "answered"
        try:
            await asked.call(RANGE, RangeRequest(key=b"k"), RangeResponse)
        except Unanswered as unanswered:
            how = str(unanswered)
        ended.append((anyio.current_time() - began_s, how))

    async with anyio.create_task_group() as tasks:
        for _ in range(calls):
            tasks.start_soon(call)
            await anyio.sleep(apart_s)
    return ended


@pytest.mark.parametrize("apart_s", [0.0, 0.1])
def test_calls_that_wait_for_a_login_go_on_to_the_next_member(apart_s: float) -> None:
    async def scenario() -> None:
        silent, well = TimedMember("silent", 60.0), TimedMember("well", 0.01)
        ended = await called([silent, well], apart_s=apart_s)
        assert [how for _, how in ended] == ["answered"] * 8
        assert max(took_s for took_s, _ in ended) < CALL_S
        assert well.logins == 1

    run_seeded(1, scenario)


def test_calls_that_wait_for_a_login_end_by_their_deadline() -> None:
    async def scenario() -> None:
        ended = await called([TimedMember("a", 60.0), TimedMember("b", 60.0)])
        for took_s, how in ended:
            assert took_s == pytest.approx(CALL_S)
            assert "no answer from" in how

    run_seeded(1, scenario)


def test_a_login_and_the_call_behind_it_share_a_deadline() -> None:
    async def scenario() -> None:
        slow = TimedMember("slow", 0.9 * ATTEMPTS_S[0])
        [(took_s, _)] = await called([slow, TimedMember("silent", 60.0)], calls=1)
        assert took_s == pytest.approx(CALL_S), "with the login it took longer than it may"

    run_seeded(1, scenario)


def test_a_member_is_not_called_silent_when_a_login_left_a_call_no_time() -> None:
    async def scenario() -> None:
        slow, well = TimedMember("slow", ATTEMPTS_S[0] - 0.01), TimedMember("well", 0.01)
        ended = await called([slow, well], calls=4)
        assert [how for _, how in ended] == ["answered"] * 4
        assert slow.calls == slow.logins, "no call without time was made"

    run_seeded(1, scenario)
