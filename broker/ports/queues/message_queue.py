"""A queue with consumer groups, as far as positions and leases promise the same.

`RocksQueue` (`broker/rocksmq`) has a position for each group: one consumer of a group at a time.
`GroupQueue` (`broker/client`) leases messages to any number of members. Common to both is
what stands here, for one consumer of a group at a time; two at once are not part of the contract.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class QueueDelivery(Protocol):
    """Messages that a consumer has, in order; at least one."""

    @property
    def payloads(self) -> Sequence[bytes]: ...

    async def ack(self) -> None:
        """The messages are processed. Durable on return: they are never delivered again.

        Deliveries of a consumer are acknowledged in their order, each at most once.
        """
        ...


class QueueConsumer(Protocol):
    """The consumer of a group, until its block ends."""

    async def receive(self) -> QueueDelivery:
        """The next messages; waits until there are some. A cancelled call loses none of them.

        Messages come in the order in which `send` acknowledged them. Raises an error of the driver
        when the group or the queue is gone.
        """
        ...


class MessageQueue(Protocol):
    """One channel of messages, each delivered to every group until the group acknowledges it."""

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Append messages in order, all or none; durable on return. No messages: no-op."""
        ...

    async def create_group(self, group: str) -> None:
        """Create a group at the first message. Raises an error of the driver if it exists."""
        ...

    async def drop_group(self, group: str) -> None:
        """Drop a group that has no consumer. Raises an error of the driver for an unknown one."""
        ...

    def consumer(self, group: str) -> AbstractAsyncContextManager[QueueConsumer]:
        """Consume for a group that exists.

        What was received and not acknowledged when the block ends, or the process dies, is
        delivered again, to the next consumer of the group.
        """
        ...
