"""Which calls about groups are made again where a server stops, and which are the program's own."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from grpclib.const import Cardinality, Handler
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
from broker.model.failure import StreamingCode
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
        info = v1.GroupInfo(vchannel=VCHANNEL, group="g", mode=v1.GroupMode.SHARED)
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
