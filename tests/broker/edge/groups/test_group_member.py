"""A served member whose Group is busy: what it asks for once is done all the same."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from actors import Ref
from actors.testing import run_seeded
from broker.core.groups.group_rules import LEASE_MS
from broker.edge.groups.group_member import ServedMember
from broker.edge.rpc.incoming.request_reader import RequestReader
from broker.model.failure import Refused, StreamingCode
from broker.model.groups.consumer_group import GroupView
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick
from broker.node.group_messages import CreateGroup, GroupJoined, GroupMessage, JoinGroup
from broker.transport import WireMessage
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1
from tests.broker.edge.groups.test_lease_delivery import Pace
from tests.broker.edge.groups.test_member_place import fill_mailbox, opened
from tests.broker.node.groups.test_group_leases import KEY, MIB, keeper
from tests.broker.node.world import World, running_node

PREFIX = len(frame(b""))
Q = TypeVar("Q", bound=WireMessage)


class Peer:
    """The stream of a member, as its server has it."""

    def __init__(self) -> None:
        self.owners: list[str] = []
        self.flooded = asyncio.Event()
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, request: v1.JoinGroupRequest) -> None:
        self._requests.put_nowait(bytes(request))

    async def read_batch(self) -> list[bytes]:
        return [await self._requests.get()]

    def take_at_once(self, _: Callable[[bytes], bool]) -> None:
        pass

    async def write_framed(self, framed: bytes) -> None:
        told = v1.JoinGroupResponse.parse(framed[PREFIX:]).ownership
        if told is not None:
            self.owners.append(told.owner)


class FloodingReader(RequestReader):
    """Fills the mailbox of the Group before the member's request is taken."""

    def __init__(self, group: Ref[GroupMessage], flooded: asyncio.Event) -> None:
        super().__init__()
        self._group = group
        self._flooded = flooded

    async def read(self, data: bytes, request_type: type[Q]) -> Q:
        request = await super().read(data, request_type)
        fill_mailbox(self._group)
        self._flooded.set()
        return request


async def joined(group: Ref[GroupMessage], name: str) -> GroupJoined:
    answer = await group.ask(JoinGroup(name, name), deadline_s=60)
    assert isinstance(answer, GroupJoined), answer
    return answer


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[World, Peer, "asyncio.Task[None]"]]:
    """Ann, who owns the vchannel and is served, and Bob, who has joined after her."""
    async with running_node() as world:
        await world.assign()
        request = CreateGroup(
            KEY, LEASE_MS, TimeTick(0), exist_ok=False, mode=GroupMode.BY_VCHANNEL
        )
        assert isinstance(await (await keeper(world)).ask(request, deadline_s=60), GroupView)
        group, peer = await opened(world), Peer()
        stream: Any = peer
        member = ServedMember(stream, group, await joined(group, "ann"), MIB, Pace(limited=False))
        member.reader = FloodingReader(group, peer.flooded)
        await joined(group, "bob")
        running = asyncio.create_task(member.run([]))  # noqa: TID251 - ended below
        try:
            await world.clock.sleep(1.0)
            assert peer.owners == ["ann"]
            yield world, peer, running
        finally:
            running.cancel()
            await asyncio.wait([running])


def test_a_vchannel_is_given_away_although_the_mailbox_of_its_group_was_full() -> None:
    async def scenario() -> None:
        async with serving() as (world, peer, running):
            peer.send(v1.JoinGroupRequest(give=v1.GiveVChannel(identity="bob")))
            await world.clock.sleep(1.0)
            # The client asks once, and not again before it is told of a change.
            assert peer.owners == ["ann", "bob"]
            assert not running.done()

    run_seeded(1, scenario)


def test_a_stream_ends_with_its_group_while_a_vchannel_waits_to_be_given() -> None:
    async def scenario() -> None:
        async with serving() as (world, peer, running):
            peer.send(v1.JoinGroupRequest(give=v1.GiveVChannel(identity="bob")))
            await peer.flooded.wait()
            world.system.kill(world.path(f"groups/{KEY.name}@{KEY.vchannel}"))
            await world.clock.sleep(1.0)
            with pytest.raises(Refused, match="the group ended") as caught:
                await running
            assert caught.value.refusal.code is StreamingCode.ON_SHUTDOWN

    run_seeded(1, scenario)
