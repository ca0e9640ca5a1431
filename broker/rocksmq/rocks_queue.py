"""One channel of a RocksMQ as a MessageQueue (`broker/ports/queues/message_queue.py`)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from broker.core.rocksmq.queue_table import no_group
from broker.model.rocksmq.queue_messages import ConsumerMessage
from broker.rocksmq.queue_errors import UnknownChannel, UnknownConsumerGroup, refused
from broker.rocksmq.rocks_mq import RocksMQ

RECEIVE_MAX = 256
"""Messages of one delivery."""


class RocksDelivery:
    """See QueueDelivery."""

    def __init__(
        self, mq: RocksMQ, group: str, channel: str, messages: Sequence[ConsumerMessage]
    ) -> None:
        self.messages = messages
        self._mq, self._group, self._channel = mq, group, channel

    @property
    def payloads(self) -> Sequence[bytes]:
        """See QueueDelivery."""
        return [it.payload for it in self.messages]

    async def ack(self) -> None:
        """See QueueDelivery."""
        await self._mq.commit(self._group, self._channel, self.messages[-1].msg_id)


class RocksConsumer:
    """See QueueConsumer."""

    def __init__(self, mq: RocksMQ, group: str, channel: str) -> None:
        self._mq, self._group, self._channel = mq, group, channel

    async def receive(self) -> RocksDelivery:
        """See QueueConsumer."""
        while True:
            await self._mq.wait(self._group, self._channel)
            found = await self._mq.consume(
                self._group, self._channel, RECEIVE_MAX, auto_commit=False
            )
            if found:
                return RocksDelivery(self._mq, self._group, self._channel, found)


class RocksQueue:
    """See MessageQueue."""

    def __init__(self, mq: RocksMQ, channel: str) -> None:
        """The channel exists."""
        self._mq, self._channel = mq, channel

    async def send(self, payloads: Sequence[bytes]) -> None:
        """See MessageQueue. Raises as `RocksMQ.produce`."""
        await self._mq.produce(self._channel, payloads)

    async def create_group(self, group: str) -> None:
        """See MessageQueue. Raises ConsumerGroupExists."""
        await self._mq.create_consumer_group(group, self._channel)

    async def drop_group(self, group: str) -> None:
        """See MessageQueue. Raises UnknownConsumerGroup."""
        await self._mq.destroy_consumer_group(group, self._channel)

    @asynccontextmanager
    async def consumer(self, group: str) -> AsyncIterator[RocksConsumer]:
        """See MessageQueue. Raises UnknownConsumerGroup, UnknownChannel."""
        if not self._mq.consumer_group_exists(group, self._channel):
            raise refused(no_group(group, self._channel))
        try:
            yield RocksConsumer(self._mq, group, self._channel)
        finally:
            try:
                await self._mq.rewind(group, self._channel)
            except (UnknownChannel, UnknownConsumerGroup):
                pass  # it was dropped meanwhile
