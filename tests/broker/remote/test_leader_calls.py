"""Calls to coordinators at several addresses: wrong, away, silent, standing by, leading."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.model.failure import DoesNotLead, Refused, StreamingCode
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.remote.leader_calls import LeaderCalls
from schemas.generated.tidemark import v1

DEADLINE_S = 2.0


class Servers:
    """What each address answers; absent ones do not listen. Notes who was asked and closed."""

    def __init__(self, **answers: Callable[[], Any]) -> None:
        self.answers = {f"{host}:1": answer for host, answer in answers.items()}
        self.asked: list[str] = []
        self.closed: list[str] = []

    def connect(self, host: str, port: int) -> Calls:
        return CallsFake(self, f"{host}:{port}")


class CallsFake(Calls):
    def __init__(self, servers: Servers, address: str) -> None:
        self._servers = servers
        self._at = address

    async def call(self, path: str, request: Any, answer: Any, *, deadline_s: float) -> Any:
        self._servers.asked.append(self._at)
        reply = self._servers.answers.get(self._at)
        if reply is None:
            raise Unreachable(f"nothing listens at {self._at}", absent=True)
        found = reply()
        if found == "silent":
            await anyio.sleep(deadline_s)
            raise Unreachable(f"{self._at} did not answer")
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self._servers.closed.append(self._at)


def leads() -> Any:
    return v1.ReserveTicksResponse(first=5, count=1)


def stands_by(leader: str) -> Callable[[], Any]:
    return lambda: DoesNotLead("stands by", leader)


async def ask(calls: LeaderCalls) -> Any:
    request = v1.ReserveTicksRequest(count=1)
    return await calls.call("/x", request, v1.ReserveTicksResponse, deadline_s=DEADLINE_S)


async def test_the_leader_is_found_behind_one_that_is_away_and_one_that_stands_by() -> None:
    servers = Servers(b=stands_by(""), c=leads)
    calls = LeaderCalls(lambda: ["a:1", "b:1", "c:1"], servers.connect)
    assert (await ask(calls)).first == 5
    assert servers.asked == ["a:1", "b:1", "c:1"]
    await ask(calls)
    assert servers.asked[3:] == ["c:1"], "the next call begins there"


async def test_a_standby_is_believed_also_about_an_address_that_was_not_given() -> None:
    servers = Servers(a=stands_by("z:1"), z=leads)
    calls = LeaderCalls(lambda: ["a:1", "b:1"], servers.connect)
    await ask(calls)
    assert servers.asked == ["a:1", "z:1"]
    # It goes, and another one leads; its connection is not kept for ever.
    del servers.answers["z:1"]
    servers.answers["a:1"] = leads
    await ask(calls)
    assert servers.asked[2:] == ["z:1", "a:1"]
    assert servers.closed == ["z:1"]


async def test_two_that_name_each_other_are_not_asked_for_ever() -> None:
    servers = Servers(a=stands_by("b:1"), b=stands_by("a:1"))
    with pytest.raises(Unreachable, match="stands by"):
        await ask(LeaderCalls(lambda: ["a:1", "b:1"], servers.connect))
    assert servers.asked == ["a:1", "b:1"]


@pytest.mark.parametrize("leader", ["", "nonsense", "a:1"])
async def test_a_name_that_leads_nowhere_is_passed_over(leader: str) -> None:
    servers = Servers(a=stands_by(leader), b=leads)
    await ask(LeaderCalls(lambda: ["a:1", "b:1"], servers.connect))
    assert servers.asked == ["a:1", "b:1"]


def test_a_host_that_does_not_answer_leaves_time_for_the_others() -> None:
    async def scenario() -> None:
        servers = Servers(a=lambda: "silent", b=leads)
        began_s = anyio.current_time()
        await ask(LeaderCalls(lambda: ["a:1", "b:1"], servers.connect))
        assert anyio.current_time() - began_s <= DEADLINE_S / 2

    run_seeded(2, scenario)


def test_silence_everywhere_ends_at_the_deadline() -> None:
    async def scenario() -> None:
        servers = Servers(a=lambda: "silent", b=lambda: "silent")
        began_s = anyio.current_time()
        with pytest.raises(Unreachable, match="did not answer"):
            await ask(LeaderCalls(lambda: ["a:1", "b:1"], servers.connect))
        assert anyio.current_time() - began_s <= DEADLINE_S

    run_seeded(2, scenario)


async def test_a_refusal_of_the_leader_is_its_answer() -> None:
    servers = Servers(a=lambda: Refused(StreamingCode.INNER, "no"), b=leads)
    calls = LeaderCalls(lambda: ["a:1", "b:1"], servers.connect)
    with pytest.raises(Refused, match="no"):
        await ask(calls)
    assert servers.asked == ["a:1"]


async def test_closed_calls_open_nothing() -> None:
    servers = Servers(a=leads)
    calls = LeaderCalls(lambda: ["a:1"], servers.connect)
    await ask(calls)
    calls.close()
    with pytest.raises(Unreachable, match="is closed"):
        await ask(calls)
    assert servers.closed == ["a:1"]
    assert len(servers.asked) == 1


async def test_those_that_become_known_later_are_asked_and_those_forgotten_are_not() -> None:
    servers = Servers(a=leads)
    known: list[str] = []
    calls = LeaderCalls(lambda: known, servers.connect)
    with pytest.raises(Unreachable, match="no coordinator is known"):
        await ask(calls)
    known.append("a:1")
    await ask(calls)
    # It dies, and one at another address has its place.
    servers.answers = {"b:1": leads}
    known[:] = ["b:1"]
    await ask(calls)
    assert servers.asked == ["a:1", "a:1", "b:1"]
    assert servers.closed == ["a:1"]


async def test_a_dead_one_is_told_of_although_none_is_known_any_more() -> None:
    servers = Servers()
    known = ["a:1"]
    calls = LeaderCalls(lambda: known, servers.connect)

    def forgets() -> Unreachable:
        known.clear()
        return Unreachable("away")

    servers.answers["a:1"] = forgets
    with pytest.raises(Unreachable, match="away"):
        await ask(calls)


@pytest.mark.parametrize(
    ("known", "absent"),
    [
        (["b:1", "a:1"], False),
        (["a:1", "b:1"], False),
        (["a:1", "c:1"], True),
        ([], True),
    ],
)
async def test_nobody_is_there_only_if_nothing_listens_at_any_of_the_addresses(
    known: list[str], absent: bool
) -> None:
    calls = LeaderCalls(lambda: known, Servers(b=stands_by("a:1")).connect)
    with pytest.raises(Unreachable) as failure:
        await ask(calls)
    assert failure.value.absent is absent
