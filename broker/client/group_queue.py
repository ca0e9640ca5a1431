"""A consumer group's view of one vchannel as a queue, in the terms of every queue.

It fits `MessageQueue` of `broker/ports/queues/message_queue.py`, which has the contract: programs
that are written for an embedded queue move to a broker without another change.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from broker.client.client import Client
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember


class GroupConsumer:
    """A member of a group, as the consumer of a queue."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    async def receive(self) -> LeasedBatch:
        """The next messages on lease; waits for some. Raises NoSuchGroup when it is dropped."""
        return await self._member.__anext__()


class GroupQueue:
    """Messages of a collection with one shard, or of one vchannel, delivered to groups."""

    def __init__(self, log: Client, target: str) -> None:
        """`target`: what messages are appended to; with several shards there is no one order."""
        self._log, self._target = log, target

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Append messages in order, all or none; durable on return."""
        if payloads:
            await self._log.append_batch(self._target, payloads)

    async def create_group(self, group: str) -> None:
        """Create a group at the first message. Raises AlreadyExists."""
        await self._log.group(group).create(self._target)

    async def drop_group(self, group: str) -> None:
        """Drop a group. Raises NoSuchGroup, and ResourceAcquired while it has a consumer."""
        await self._log.group(group).drop(self._target)

    @asynccontextmanager
    async def consumer(self, group: str) -> AsyncIterator[GroupConsumer]:
        """Consume for a group that exists. Raises NoSuchGroup."""
        await self._log.group(group).describe(self._target)
        async with self._log.group(group).join(self._target) as member:
            yield GroupConsumer(member)
