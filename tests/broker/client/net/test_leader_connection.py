"""A client of several coordinators: which failures send it to another one, which are answers."""

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.client.errors import (
    BadAddress,
    ConnectionLost,
    DeadlineExceeded,
    InvalidArgument,
    NotLeader,
    NotTrusted,
    OperationIgnored,
    ProtocolBroken,
    ServerFailed,
    ServerStopping,
    TidemarkError,
)
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection
from broker.client.net.leader_connection import (
    RETRY_MS_MAX,
    SILENT_S,
    LeaderConnection,
    split_servers,
)
from schemas.generated.tidemark import v1

DEADLINE_S = 10.0
Reply = Callable[[], v1.HealthResponse]


class Coordinators:
    """What each address answers; those without an answer do not listen."""

    def __init__(self, *addresses: str, **answers: Reply) -> None:
        self.answers = {f"{host}:1": answer for host, answer in answers.items()}
        self.asked: list[str] = []
        self.limited: set[str] = set()
        self.silent: set[str] = set()
        self.leading = LeaderConnection(
            addresses, lambda it: ConnectionFake(self, it), ClientLifetime(), random.Random(1)
        )

    async def ask(self, method: str = "Create") -> v1.HealthResponse:
        return await self.leading.call(
            f"/x/{method}", v1.HealthRequest(), v1.HealthResponse, deadline_s=DEADLINE_S
        )


class ConnectionFake(Connection):
    def __init__(self, of: Coordinators, address: str) -> None:
        self._of = of
        self.address = address

    async def call(self, path: str, request: Any, response_type: Any, *, deadline_s: float) -> Any:
        assert 0 < deadline_s <= DEADLINE_S
        self._of.asked.append(self.address)
        if self.address not in self._of.answers:
            raise unsent(self.address)
        if self.address in self._of.silent:
            await anyio.sleep_forever()
        return self._of.answers[self.address]()

    def limit_dialling(self, seconds: float) -> None:
        """A host that is away must not take the whole deadline."""
        assert seconds < DEADLINE_S
        self._of.limited.add(self.address)


def unsent(address: str) -> ConnectionLost:
    error = ConnectionLost(f"cannot reach {address}")
    error.unsent = True
    return error


def leads() -> v1.HealthResponse:
    return v1.HealthResponse(state="healthy")


def stands_by(leader: str) -> Reply:
    def refuse() -> v1.HealthResponse:
        error = NotLeader("stands by")
        error.leader = leader
        raise error

    return refuse


def fails(error: TidemarkError) -> Reply:
    def fail() -> v1.HealthResponse:
        raise error

    return fail


def test_the_leader_is_found_behind_others_and_kept() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", "b:1", "c:1", b=stands_by(""), c=leads)
        await found.ask()
        assert found.asked == ["a:1", "b:1", "c:1"]
        await found.ask()
        assert found.asked[3:] == ["c:1"]

    run_seeded(1, scenario)


def test_a_leader_that_is_named_is_asked_next_though_it_was_not_given() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", "b:1", a=stands_by("z:1"), b=leads, z=leads)
        await found.ask()
        assert found.asked == ["a:1", "z:1"]
        del found.answers["z:1"]
        found.answers["a:1"] = leads
        await found.ask()
        assert found.asked[2:] == ["z:1", "a:1"]

    run_seeded(1, scenario)


def test_a_call_waits_while_a_standby_has_not_taken_over_yet() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", "b:1", b=stands_by("a:1"))
        until_s = anyio.current_time() + DEADLINE_S / 2

        async def take_over() -> None:
            await anyio.sleep(DEADLINE_S / 2)
            found.answers["b:1"] = leads

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_over)
            await found.ask()
        # It was asked about twice each 250 ms, the dead one in between.
        assert anyio.current_time() <= until_s + 3 * RETRY_MS_MAX / 1000
        assert len(found.asked) < 100

    run_seeded(1, scenario)


def test_a_deadline_ends_the_wait_with_the_newest_cause() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", a=stands_by(""))
        began_s = anyio.current_time()
        with pytest.raises(NotLeader) as refused:
            await found.ask()
        assert refused.value.retriable
        assert anyio.current_time() - began_s <= DEADLINE_S

    run_seeded(1, scenario)


def test_nobody_anywhere_is_told_at_once_and_anew_by_each_call() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", "b:1")
        for _ in range(2):
            began_s = anyio.current_time()
            with pytest.raises(ConnectionLost):
                await found.ask()
            assert anyio.current_time() - began_s < 1.0

    run_seeded(1, scenario)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("went away"),
        DeadlineExceeded("silent"),
        ServerStopping("stops"),
        ServerFailed("x"),
        InvalidArgument("y"),
    ],
)
def test_what_may_have_been_carried_out_is_not_sent_again(error: TidemarkError) -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", "b:1", a=fails(error), b=leads)
        with pytest.raises(type(error)):
            await found.ask()
        assert found.asked == ["a:1"]

    run_seeded(1, scenario)


def test_a_read_that_a_leader_took_with_it_is_made_again() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", "b:1", a=fails(ConnectionLost("went away")), b=leads)
        await found.ask("List")
        assert found.asked == ["a:1", "b:1"]

    run_seeded(1, scenario)


@pytest.mark.parametrize(
    "error", [ConnectionLost("went away"), DeadlineExceeded("silent"), ServerStopping("stops")]
)
def test_the_call_after_a_lost_server_goes_to_another_one(error: TidemarkError) -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", "b:1", a=fails(error), b=leads)
        with pytest.raises(type(error)):
            await found.ask()
        await found.ask()
        assert found.asked == ["a:1", "b:1"]

    run_seeded(1, scenario)


def test_who_knows_one_that_stands_by_follows_it_to_the_leader() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", a=stands_by("b:1"), b=leads)
        assert (await found.ask()).state == "healthy"
        await found.ask()
        assert found.asked == ["a:1", "b:1", "b:1"], "the leader is asked at once from then on"

        # The leader goes, and the one that is known takes its place.
        del found.answers["b:1"]
        found.answers["a:1"] = leads
        await found.ask()
        assert found.asked[3:] == ["b:1", "a:1"]
        assert found.limited == {"b:1"}, "not the one that may be the only server"

    run_seeded(1, scenario)


@pytest.mark.parametrize("leader", ["", "b:1"])
def test_the_error_names_the_leader_that_is_not_reached(leader: str) -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", a=stands_by(leader))
        with pytest.raises((NotLeader, ConnectionLost)) as raised:
            await found.ask()
        assert anyio.current_time() > DEADLINE_S - 1, "a leader may be chosen, or come back"
        if isinstance(raised.value, NotLeader):
            assert raised.value.leader == leader
        else:
            assert leader in str(raised.value)

    run_seeded(1, scenario)


@pytest.mark.parametrize("error", [ConnectionLost("broke"), ServerStopping("bye"), unsent("a:1")])
def test_the_only_server_is_asked_once(error: TidemarkError) -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", a=fails(error))
        for method in ("Create", "List"):
            with pytest.raises(type(error)):
                await found.ask(method)
        assert found.asked == ["a:1", "a:1"]
        assert not found.leading.tries_on(error)
        assert not found.leading.tries_on(DeadlineExceeded("silent"))
        assert found.leading.first_answer_s(60.0) == 60.0

    run_seeded(1, scenario)


def test_a_leader_that_was_followed_has_less_time_to_answer() -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", a=stands_by("b:1"), b=leads)
        await found.ask()
        assert found.leading.first_answer_s(60.0) < 60.0

    run_seeded(1, scenario)


def test_a_leader_that_was_followed_and_is_silent_is_not_all_that_there_is() -> None:
    """Its first answer was waited for only so long because the address that is known is there."""

    async def scenario() -> None:
        silent = DeadlineExceeded("silent")
        found = Coordinators("a:1", a=stands_by("b:1"), b=fails(silent))
        with pytest.raises(DeadlineExceeded):
            await found.ask()
        assert found.asked == ["a:1", "b:1"]
        assert found.leading.tries_on(silent)

    run_seeded(1, scenario)


@pytest.mark.parametrize(
    "error",
    [
        OperationIgnored("another cluster"),
        BadAddress("not HOST:PORT"),
        NotTrusted("its certificate"),
        ProtocolBroken("no gRPC"),
    ],
)
def test_the_address_of_a_leader_that_another_has_by_now_is_left(error: TidemarkError) -> None:
    async def scenario() -> None:
        found = Coordinators("a:1", a=stands_by("b:1"), b=leads)
        await found.ask()
        found.answers.update({"a:1": leads, "b:1": fails(error)})
        with pytest.raises(type(error)):
            await found.ask()
        await found.ask()
        assert found.asked[2:] == ["b:1", "a:1"]

    run_seeded(1, scenario)


async def test_each_address_is_checked_before_anything_is_sent() -> None:
    lifetime = ClientLifetime()
    with pytest.raises(BadAddress, match="'nonsense' is not HOST:PORT"):
        LeaderConnection(
            split_servers("a:1, nonsense"),
            lambda it: Connection(it, cluster="c", lifetime=lifetime),
            lifetime,
            random.Random(1),
        )


def test_a_call_that_its_caller_gave_up_leaves_a_coordinator_that_is_silent() -> None:
    """The deadline of a commit of a cursor is shorter than that of the call it makes."""

    async def scenario() -> None:
        found = Coordinators("a:1", "b:1", a=leads, b=leads)
        found.silent.add("a:1")
        for seconds in (SILENT_S / 2, SILENT_S, DEADLINE_S):
            with anyio.move_on_after(seconds) as limit:
                await found.ask()
        assert found.asked == ["a:1", "a:1", "b:1"]
        assert not limit.cancelled_caught

    run_seeded(1, scenario)
