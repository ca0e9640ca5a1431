"""The coordinator's view of a node in the same process: asks its Directory, raises Refused."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from actors import ActorError, Ref, Request
from broker.model.channel import ChannelOffsets, ChannelTicks, PChannel
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from broker.model.master.reservation import SegmentOrders
from broker.model.message import Appended, NewMessage
from broker.node.append.intake import append
from broker.node.appender_messages import ObeySegmentOrders
from broker.node.directory_messages import (
    AssignChannel,
    CollectStatus,
    Describe,
    DirectoryMessage,
    Locate,
    PauseConsumption,
    RemoveChannel,
)

ASSIGN_DEADLINE_S = 300.0
"""Includes the replay of a large log."""

DEADLINE_S = 30.0

R = TypeVar("R")


class LocalNode:
    """A `NodeControl`. `directory` gives the current incarnation of the node's Directory."""

    def __init__(
        self, node_id: NodeId, address: str, directory: Callable[[], Ref[DirectoryMessage]]
    ) -> None:
        self._node_id = node_id
        self._address = address
        self._directory = directory

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def address(self) -> str:
        return self._address

    async def assign(self, channel: PChannel) -> None:
        await self._ask(AssignChannel(channel), ASSIGN_DEADLINE_S)

    async def remove(self, name: PChannelName, term: Term) -> None:
        await self._ask(RemoveChannel(name, term), DEADLINE_S)

    async def status(self) -> Sequence[ChannelTicks]:
        status = await self._ask(CollectStatus(), DEADLINE_S)
        return [
            ChannelTicks(each.channel, each.mvcc_tick, each.recovery_tick)
            for each in status.channels
        ]

    async def describe(
        self, names: Sequence[PChannelName]
    ) -> Mapping[PChannelName, ChannelOffsets]:
        described = await self._ask(Describe(tuple(names)), DEADLINE_S)
        return {it.name: it for it in described if isinstance(it, ChannelOffsets)}

    async def append(
        self, name: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        located = await self._ask(Locate(name, None, writes=True), DEADLINE_S)
        return await append(located, tuple(messages), deadline_s=DEADLINE_S)

    async def order_segments(self, name: PChannelName, orders: SegmentOrders) -> None:
        located = await self._ask(Locate(name, None, writes=True), DEADLINE_S)
        try:
            located.appender.tell(ObeySegmentOrders(orders))
        except ActorError as error:
            raise Refused(StreamingCode.INNER, f"{name}: {error}") from error

    async def pause_consumption(self, *, paused: bool) -> None:
        try:
            await self._directory().ask(PauseConsumption(paused), deadline_s=DEADLINE_S)
        except ActorError as error:
            raise Refused(StreamingCode.INNER, f"node {self._node_id}: {error}") from error

    async def refresh_settings(self, revision: int) -> int:
        """There is no lease: the settings of this process are those of the coordinator."""
        return revision

    def release(self) -> None:
        """Nothing to release: the node is this process."""

    async def _ask(self, request: Request[R | Refusal], deadline_s: float) -> R:
        try:
            answer = await self._directory().ask(request, deadline_s=deadline_s)
        except ActorError as error:
            raise Refused(StreamingCode.INNER, f"node {self._node_id}: {error}") from error
        if isinstance(answer, Refusal):
            raise Refused(answer.code, answer.cause)
        return answer
