"""Consumers of an embedded queue: what they are given, and where their groups are."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from broker.core.rocksmq import queue_channel, queue_keys, queue_rules
from broker.core.rocksmq.queue_channel import QueueChannel
from broker.core.rocksmq.queue_table import QueueTable, no_channel, no_group
from broker.model.rocksmq.queue_messages import ConsumerMessage
from broker.ports.queues.ordered_store import OrderedStore, OrderedStoreError
from broker.rocksmq.group_places import GroupPlace, GroupPlaces
from broker.rocksmq.queue_errors import RocksMQFailed, check, refused, store_error
from broker.rocksmq.queue_writer import QueueWriter


class PlaceReader:
    """Reads for groups. Reads run on the threads of `executor`, any number at once."""

    def __init__(
        self,
        store: OrderedStore,
        table: QueueTable,
        writer: QueueWriter,
        executor: Executor,
        check_open: Callable[[], None],
    ) -> None:
        self._store, self._table, self._writer = store, table, writer
        self._executor, self._check_open = executor, check_open
        self.places = GroupPlaces()

    async def take(
        self, group: str, channel: str, count: int, *, manual: bool
    ) -> list[ConsumerMessage]:
        """Up to `count` messages; the group goes on behind them."""
        place = await self.place(group, channel)
        async with place.lock:
            place.manual = manual
            self.came_back(place)
            found = await self.read(place, count)
            if found:
                place.answered = found[-1].msg_id + 1
            return found

    async def read(self, place: GroupPlace, count: int) -> list[ConsumerMessage]:
        """Up to `count` messages at the place, which stays where it is; its lock is held."""
        state = self._state(place.channel)
        self._check_current(place)
        if not count or not queue_channel.unread(state, place.answered):
            return []
        begin = max(place.answered, state.begin_id)
        found = await self.scan(place.channel, begin, state.end_id, count)
        self._check_current(place)
        if not found:  # or a consumer would look again and again
            told = f"channel {place.channel!r} lacks its messages from {begin} to {state.end_id}"
            raise RocksMQFailed(f"{told}: the store is damaged; restore the folder")
        return found

    async def scan(self, channel: str, begin: int, end: int, count: int) -> list[ConsumerMessage]:
        """Up to `count` messages with ids in [begin, end)."""
        read = partial(
            self._store.scan,
            queue_keys.data_key(channel, begin),
            queue_keys.data_key(channel, end),
            limit=count,
            bytes_max=queue_rules.BATCH_BYTES_MAX,
        )
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._executor, read)
        except OrderedStoreError as error:
            raise store_error(error) from error
        return [ConsumerMessage(queue_keys.id_of(key), payload) for key, payload in found]

    async def wait(self, group: str, channel: str) -> None:
        """Return when there is a message for the group."""
        while True:
            place = await self.place(group, channel)
            # Nothing runs between the look and the wait, so no wake-up is lost.
            if queue_channel.unread(self._state(channel), place.answered):
                return
            await self.places.next_change(channel).wait()
            self._check_open()

    async def seek(self, group: str, channel: str, choose: Callable[[QueueChannel], int]) -> None:
        """Move the group to the position that `choose` finds in the state of the channel."""
        place = await self.place(group, channel)
        async with place.lock:
            self._check_current(place)
            position = choose(self._state(channel))
            check(queue_channel.seek_fault(channel, self._state(channel), position))
            self._writer.forget_position(group, channel)
            await self._writer.submit(
                lambda draft: draft.set_position(group, channel, position),
                applied=partial(self._moved, place, position),
            )

    async def rewind(self, group: str, channel: str) -> None:
        """Move the group back to its stored position; no write."""
        place = await self.place(group, channel)
        async with place.lock:
            self._check_current(place)
            self._writer.forget_position(group, channel)
            place.answered = self._state(channel).positions[group]
            self.places.wake([channel])

    async def commit(self, group: str, channel: str, msg_id: int | None) -> None:
        """Make a position durable: all up to `msg_id`, or all that was answered, is processed."""
        place = await self.place(group, channel)
        position = place.answered if msg_id is None else msg_id + 1
        check(queue_channel.commit_fault(group, channel, position, place.answered))
        self._writer.forget_position(group, channel)
        await self._writer.submit(lambda draft: draft.set_position(group, channel, position))

    async def place(self, group: str, channel: str) -> GroupPlace:
        """The place of a group; one that was made without a channel is attached to this one."""
        self._check_open()
        found = self.places.find(group, channel)
        if found is not None:
            return found
        if group not in self._state(channel).positions:
            if group not in self._table.groups:
                raise refused(no_group(group, channel))
            await self._writer.submit(lambda draft: draft.attach(group, channel))
        stored = self._state(channel).positions.get(group)
        if stored is None:
            raise refused(no_group(group, channel))
        return self.places.find(group, channel) or self.places.add(group, channel, stored)

    def came_back(self, place: GroupPlace) -> None:
        """A consumer asks again, so what it was given is processed, unless it says so itself."""
        if place.manual:
            return
        state = self._table.channels.get(place.channel)
        if state is not None and state.positions.get(place.group) != place.answered:
            self._writer.note_position(place.group, place.channel, place.answered)

    def drop_group(self, group: str, channel: str) -> None:
        """Forget a group that was destroyed on this channel."""
        self.places.drop(group, channel)
        self._writer.forget_position(group, channel)

    def drop_channel(self, channel: str) -> None:
        """Forget a channel that was destroyed."""
        for place in self.places.on_channel(channel):
            self.drop_group(place.group, channel)

    def _moved(self, place: GroupPlace, position: int) -> None:
        place.answered = position
        self._writer.forget_position(place.group, place.channel)

    def _state(self, channel: str) -> QueueChannel:
        state = self._table.channels.get(channel)
        if state is None:
            raise refused(no_channel(channel))
        return state

    def _check_current(self, place: GroupPlace) -> None:
        """Raise when the group, or its channel, was destroyed since the place was found."""
        self._check_open()
        self._state(place.channel)
        if self.places.find(place.group, place.channel) is not place:
            raise refused(no_group(place.group, place.channel))
