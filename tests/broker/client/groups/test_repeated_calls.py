"""Which calls about groups are made again where a server stops, and which are the program's own."""

import errno
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from grpclib.const import Cardinality, Handler
from grpclib.protocol import H2Protocol
from grpclib.server import Stream

from broker.client import Client, connect
from broker.client.errors import (
    AlreadyExists,
    InvalidArgument,
    NoSuchGroup,
    ServerFailed,
    ServerRefusal,
    UnknownRefusal,
)
from broker.client.groups.group_calls import NewGroup
from broker.core.groups.group_rules import LEASE_MS
from broker.model.failure import StreamingCode
from broker.transport import Channel
from schemas.generated.tidemark import v1
from tests.broker.client.scripted import VCHANNEL, refusal_of, scripted_broker

GROUPS = "/tidemark.v1.Groups/"
Use = Callable[[Client], Awaitable[Any]]


class ScriptedGroups:
    """Refuses so often, and counts what it carries out."""

    def __init__(self, *refusals: StreamingCode) -> None:
        self.refusals = deque(refusals)
        self.asked: list[str] = []

    def __mapping__(self) -> Mapping[str, Handler]:
        info = self.info()
        calls = {
            "Create": (v1.CreateGroupRequest, info),
            "Alter": (v1.AlterGroupRequest, info),
            "Seek": (v1.SeekGroupRequest, info),
            "Drop": (v1.DropGroupRequest, v1.DropGroupResponse()),
            "List": (v1.ListGroupsRequest, v1.ListGroupsResponse(groups=[info])),
        }
        return {
            GROUPS + method: self._handler(method, request, answer)
            for method, (request, answer) in calls.items()
        }

    def info(self) -> v1.GroupInfo:
        """The group as it is there."""
        shared = v1.GroupMode.SHARED
        return v1.GroupInfo(vchannel=VCHANNEL, group="g", lease_ms=LEASE_MS, mode=shared)

    def _handler(self, method: str, request: type[Any], answer: Any) -> Handler:
        async def answered(call: Stream[Any, Any]) -> None:
            await call.recv_message()
            self.asked.append(method)
            if self.refusals:
                raise refusal_of(self.refusals.popleft(), "it stops")
            await call.send_message(answer)

        return Handler(answered, Cardinality.UNARY_UNARY, request, type(answer))


def create(log: Client) -> Awaitable[Any]:
    return log.group("g").create(VCHANNEL, exist_ok=True)


def create_anew(log: Client) -> Awaitable[Any]:
    return log.group("g").create(VCHANNEL)


def describe(log: Client) -> Awaitable[Any]:
    return log.group("g").describe(VCHANNEL)


def ensure(log: Client) -> Awaitable[Any]:
    """As a member does before it joins."""
    new = NewGroup("g", 1000, "all", {}, None)
    return log.group("g")._parts.calls.ensure([VCHANNEL], new)


def seek(log: Client) -> Awaitable[Any]:
    return log.group("g").seek(VCHANNEL, "all")


def drop(log: Client) -> Awaitable[Any]:
    return log.group("g").drop(VCHANNEL)


@pytest.mark.parametrize("code", [StreamingCode.UNKNOWN, StreamingCode.INNER])
@pytest.mark.parametrize(
    ("use", "method"), [(create, "Create"), (describe, "List"), (ensure, "List")]
)
async def test_what_does_no_harm_twice_is_repeated_while_a_server_stops(
    use: Use, method: str, code: StreamingCode
) -> None:
    groups = ScriptedGroups(code, StreamingCode.CHANNEL_NOT_EXIST, code)
    async with scripted_broker(groups) as broker, connect(broker.address) as log:
        await use(log)
    assert groups.asked == [method] * 4


@pytest.mark.parametrize("use", [create_anew, seek, drop])
@pytest.mark.parametrize(
    ("code", "error"),
    [(StreamingCode.UNKNOWN, UnknownRefusal), (StreamingCode.INNER, ServerFailed)],
)
async def test_what_may_have_been_carried_out_is_left_to_the_program(
    use: Use, code: StreamingCode, error: type[ServerRefusal]
) -> None:
    groups = ScriptedGroups(code)
    async with scripted_broker(groups) as broker, connect(broker.address) as log:
        with pytest.raises(error, match="it stops"):
            await use(log)
    assert len(groups.asked) == 1


@pytest.mark.parametrize("use", [create, describe, ensure])
async def test_a_refusal_that_says_what_is_wrong_is_told_at_once(use: Use) -> None:
    groups = ScriptedGroups(StreamingCode.INVALID_ARGUMENT)
    async with scripted_broker(groups) as broker, connect(broker.address) as log:
        with pytest.raises(InvalidArgument, match="it stops"):
            await use(log)
    assert len(groups.asked) == 1


class LosingGroups(ScriptedGroups):
    """Carries out a change and ends the connection so often; then it refuses, as what is done."""

    def __init__(self, refused: StreamingCode, lost: int) -> None:
        super().__init__()
        self.refused = refused
        self.lost = lost

    def _handler(self, method: str, request: type[Any], answer: Any) -> Handler:
        if method == "List":
            return super()._handler(method, request, answer)

        async def change(call: Stream[Any, Any]) -> None:
            await call.recv_message()
            self.asked.append(method)
            if len(self.asked) > self.lost:
                raise refusal_of(self.refused, "it is done already")
            call._stream._transport.close()

        return Handler(change, Cardinality.UNARY_UNARY, request, type(answer))


# As a server refuses what is not there, and what is there.
CHANGES = [
    (StreamingCode.UNRECOVERABLE, drop, NoSuchGroup),
    (StreamingCode.IGNORED_OPERATION, create_anew, AlreadyExists),
]


@pytest.mark.parametrize(("code", "use", "error"), CHANGES, ids=["drop", "create"])
async def test_a_change_that_was_done_and_whose_answer_was_lost_is_not_refused(
    code: StreamingCode, use: Use, error: type[ServerRefusal]
) -> None:
    groups = LosingGroups(code, lost=1)
    async with scripted_broker(groups) as broker, connect(broker.address) as log:
        await use(log)
        # The next call is another one, and has not done it.
        with pytest.raises(error):
            await use(log)
    assert [it for it in groups.asked if it != "List"] == [groups.asked[0]] * 3


class OthersGroup(LosingGroups):
    """Another program made the group, in its own way, before the first answer is lost."""

    def __init__(self, **differs: Any) -> None:
        self.differs = differs
        super().__init__(StreamingCode.IGNORED_OPERATION, lost=1)

    def info(self) -> v1.GroupInfo:
        info = super().info()
        for name, value in self.differs.items():
            setattr(info, name, value)
        return info


LIMIT = v1.DeliveryLimit(deliveries_max=3, vchannel=VCHANNEL, origin="rows")


@pytest.mark.parametrize(
    "differs",
    [{"lease_ms": 1000}, {"limit": LIMIT}, {"mode": v1.GroupMode.ORDERED_BY_KEY}, {"floor": 6}],
    ids=["lease", "limit", "mode", "start"],
)
async def test_a_group_that_is_not_as_asked_for_is_not_told_as_the_own_one(
    differs: dict[str, Any],
) -> None:
    groups = OthersGroup(**differs)
    async with scripted_broker(groups) as broker, connect(broker.address) as log:
        with pytest.raises(AlreadyExists):
            await log.group("g").create(VCHANNEL, start=("tick", 8))
    assert [it for it in groups.asked if it != "List"] == ["Create"] * 2


async def test_a_group_whose_position_the_server_has_raised_may_be_the_own_one() -> None:
    groups = OthersGroup(floor=9)
    async with scripted_broker(groups) as broker, connect(broker.address) as log:
        (made,) = await log.group("g").create(VCHANNEL, start=("tick", 8))
    assert made.group.floor == 9


class ClosedDoor(Channel):
    """So many attempts to connect fail as when a host is away."""

    left = 0

    async def _create_connection(self) -> H2Protocol:
        if type(self).left:
            type(self).left -= 1
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        return await super()._create_connection()


@pytest.mark.parametrize(("code", "use", "error"), CHANGES, ids=["drop", "create"])
async def test_a_change_that_was_never_sent_is_not_taken_for_done(
    code: StreamingCode, use: Use, error: type[ServerRefusal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.client.net.connection.Channel", ClosedDoor)
    groups = LosingGroups(code, lost=0)
    async with scripted_broker(groups) as broker, scripted_broker(groups) as node:
        server, broker.address = broker.address, node.address
        async with connect(server) as log:
            monkeypatch.setattr(ClosedDoor, "left", 1)
            with pytest.raises(error):
                await use(log)
            assert ClosedDoor.left == 0
