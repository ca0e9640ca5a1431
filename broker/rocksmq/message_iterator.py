"""The endless iterator over the messages of a group."""

from collections import deque
from typing import Self

from broker.model.rocksmq.queue_messages import ConsumerMessage
from broker.rocksmq.group_places import GroupPlace
from broker.rocksmq.place_reader import PlaceReader

FETCH_MESSAGES = 256


class MessageIterator:
    """`async for message in mq.messages("workers", "orders")`: waits for more at the end.

    The step that returns a message says that the one before it is processed. Several iterators and
    consumers of a group share its messages. It ends with UnknownChannel or UnknownConsumerGroup
    when those are destroyed, and with RocksMQClosed.
    """

    def __init__(self, reader: PlaceReader, group: str, channel: str) -> None:
        self._reader, self._group, self._channel = reader, group, channel
        self._place: GroupPlace | None = None
        self._ahead: deque[ConsumerMessage] = deque()
        self._expected = 0
        """Where the group is when nobody else moved it, so that what was read ahead is next."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerMessage:
        while True:
            place = await self._reader.place(self._group, self._channel)
            self._reader.came_back(place)
            if self._ahead and self._next_is(place):
                message = self._ahead.popleft()
                place.answered = self._expected = message.msg_id + 1
                return message
            await self._reader.wait(self._group, self._channel)
            await self._fetch()

    def _next_is(self, place: GroupPlace) -> bool:
        same = place is self._place and place.answered == self._expected
        return same and not place.lock.locked()

    async def _fetch(self) -> None:
        place = await self._reader.place(self._group, self._channel)
        async with place.lock:
            self._ahead = deque(await self._reader.read(place, FETCH_MESSAGES))
            self._place, self._expected = place, place.answered
