"""RocksMQ: durable queues embedded in one process, in one folder."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from anyio import CancelScope, to_thread

from actors.clock import Clock, SystemClock
from broker.core.rocksmq import queue_keys, queue_rules
from broker.core.rocksmq.page_retention import PageRules
from broker.core.rocksmq.queue_channel import QueueChannel
from broker.core.rocksmq.queue_rules import EARLIEST
from broker.core.rocksmq.queue_table import no_channel
from broker.model.rocksmq.ordered_writes import Put
from broker.model.rocksmq.queue_messages import (
    ConsumerMessage,
    ProducerMessage,
    QueueChannelView,
)
from broker.ports.queues.ordered_store import OrderedStoreError
from broker.rocksmq.message_iterator import MessageIterator
from broker.rocksmq.opened_queue import OpenedQueue
from broker.rocksmq.place_reader import PlaceReader
from broker.rocksmq.queue_errors import RocksMQClosed, RocksMQError, check, refused, store_error
from broker.rocksmq.queue_ids import IDAllocator, StoredIds
from broker.rocksmq.queue_sweeper import QueueSweeper
from broker.rocksmq.queue_writer import QueueWriter

SWEEP_INTERVAL_S = 600.0
READ_THREADS = 4


class RocksMQ:
    """The queues of one folder, which one process has open at a time.

        async with await RocksMQ.open("queues") as mq:
            await mq.create_channel("orders")
            await mq.create_consumer_group("workers", "orders")
            await mq.produce("orders", [b"one", b"two"])
            for message in await mq.consume("workers", "orders", 10):
                print(message.msg_id, message.payload)

    An object belongs to one event loop; its methods may be called by any number of tasks at once.
    Every call may be cancelled: it then takes effect as a whole, or not at all. Calls raise what
    `broker/rocksmq/queue_errors.py` has.
    """

    def __init__(
        self, opened: OpenedQueue, rules: PageRules, clock: Clock, ids: IDAllocator | None
    ) -> None:
        """Use `open`."""
        self._opened, self._rules, self._clock = opened, rules, clock
        self._table, self._store = opened.table, opened.store
        self._closed = False
        self._write_thread = ThreadPoolExecutor(1, "rocksmq-write")
        self._read_threads = ThreadPoolExecutor(READ_THREADS, "rocksmq-read")
        self._stored_ids = StoredIds(opened.window, self._save_bound, clock.wall_ms)
        self.ids: IDAllocator = ids or self._stored_ids
        self._own_ids = ids is None
        self._id_order = asyncio.Lock()
        self._writer = QueueWriter(self._store, self._table, rules, self._write_thread, clock)
        self._writer.changed = self._changed
        self._reader = PlaceReader(
            self._store, self._table, self._writer, self._read_threads, self._check_open
        )
        self._sweeper = QueueSweeper(opened, self._writer, rules, self._read_threads, clock)

    @classmethod
    async def open(
        cls,
        folder: Path | str,
        *,
        id_allocator: IDAllocator | None = None,
        rules: PageRules | None = None,
        sweep_interval_s: float = SWEEP_INTERVAL_S,
        clock: Clock | None = None,
    ) -> Self:
        """Open a folder, or make it. Close what this returns, or use it as a context manager.

        `id_allocator`: whose ids messages get; without one, those of the folder itself. `rules`:
        when messages that all groups have read are removed; looked at every `sweep_interval_s`.
        Raises FolderInUse, FolderVersionRefused, FolderRefused, RocksdictMissing, and RocksMQFull.
        """
        clock = clock or SystemClock()
        work = partial(OpenedQueue.open, Path(folder), clock.wall_ms())
        opening = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_let_go)
            raise
        queue = cls(opened, rules or PageRules(), clock, id_allocator)
        queue._sweeper.begin(sweep_interval_s)
        return queue

    async def create_channel(self, channel: str, *, exist_ok: bool = False) -> None:
        """Create a channel. Raises ChannelExists unless `exist_ok`, BadQueueName."""
        check(queue_rules.name_fault("channel", channel))
        self._check_open()
        if exist_ok and channel in self._table.channels:
            return
        await self._writer.submit(lambda draft: draft.create_channel(channel))

    async def destroy_channel(self, channel: str) -> None:
        """Remove a channel with its messages and the positions of its groups.

        Its consumers end with UnknownChannel. Raises UnknownChannel.
        """
        self._check_open()
        await self._writer.submit(
            lambda draft: draft.destroy_channel(channel),
            applied=partial(self._reader.drop_channel, channel),
        )

    async def create_consumer_group(
        self, group: str, channel: str | None = None, *, exist_ok: bool = False
    ) -> None:
        """Create a group on a channel, at the first message that retention has left.

        Without a channel, the group joins each channel at its first use there. Raises
        ConsumerGroupExists unless `exist_ok`, UnknownChannel, BadQueueName.
        """
        check(queue_rules.name_fault("consumer group", group))
        self._check_open()
        if exist_ok and self.consumer_group_exists(group, channel):
            return
        await self._writer.submit(lambda draft: draft.create_group(group, channel))

    async def destroy_consumer_group(self, group: str, channel: str | None = None) -> None:
        """Remove a group from a channel; without a channel, from all of them.

        Its consumers end with UnknownConsumerGroup. Raises UnknownConsumerGroup, UnknownChannel.
        """
        self._check_open()
        names = list(self._table.channels) if channel is None else [channel]

        def gone() -> None:
            for name in names:
                self._reader.drop_group(group, name)

        await self._writer.submit(lambda draft: draft.destroy_group(group, channel), applied=gone)

    def channel_exists(self, channel: str) -> bool:
        """Whether there is such a channel."""
        return channel in self._table.channels

    def consumer_group_exists(self, group: str, channel: str | None = None) -> bool:
        """Whether there is such a group on the channel; without one, made for all channels."""
        if channel is None:
            return group in self._table.groups
        state = self._table.channels.get(channel)
        return state is not None and group in state.positions

    def channels(self) -> list[str]:
        """The names of all channels, sorted."""
        return sorted(self._table.channels)

    def describe_channel(self, channel: str) -> QueueChannelView:
        """What a channel holds. Raises UnknownChannel."""
        state = self._state(channel)
        page_bytes = sum(page.size_bytes for page in state.pages)
        return QueueChannelView(
            channel,
            state.begin_id,
            state.end_id,
            state.open_bytes,
            len(state.pages),
            page_bytes,
            dict(state.positions),
        )

    async def produce(self, channel: str, messages: Sequence[ProducerMessage | bytes]) -> list[int]:
        """Append messages to a channel, all or none; their ids, contiguous and in order.

        Durable when it returns. Calls that wait at once share a sync. Raises UnknownChannel,
        BadQueueArgument for too many or too large ones, RocksMQFull, RocksMQFailed.
        """
        payloads = [it.payload if isinstance(it, ProducerMessage) else it for it in messages]
        check(queue_rules.batch_fault(payloads))
        self._check_open()
        self._state(channel)
        if not payloads:
            return []
        await self._writer.room()
        async with self._id_order:  # ids grow in the order in which batches are queued
            first = await self._take_ids(len(payloads))
            self._check_open()
            written = self._writer.submit(
                lambda draft: draft.append(channel, first, payloads), size=sum(map(len, payloads))
            )
        await written
        return list(range(first, first + len(payloads)))

    async def consume(
        self, group: str, channel: str, n: int, *, auto_commit: bool = True
    ) -> list[ConsumerMessage]:
        """Up to `n` messages from the position of the group on, in order; at once, if none: [].

        The group goes on behind them. Its stored position follows when a consumer of the group
        calls again, as it has processed them by then; with `auto_commit=False` only by `commit`.
        After a crash, what was given out last may come again, and nothing is skipped. Raises
        UnknownChannel, UnknownConsumerGroup, BadQueueArgument.
        """
        check(queue_rules.take_fault(n))
        return await self._reader.take(group, channel, n, manual=not auto_commit)

    async def commit(self, group: str, channel: str, msg_id: int | None = None) -> None:
        """Store where the group is: all that it was given, or up to `msg_id`, is processed.

        Durable on return. Raises SeekOutOfRange for what it was not given, UnknownConsumerGroup,
        UnknownChannel.
        """
        await self._reader.commit(group, channel, msg_id)

    async def wait(self, group: str, channel: str) -> None:
        """Return when there is a message for the group to consume.

        Raises UnknownConsumerGroup, UnknownChannel, also when those are destroyed meanwhile.
        """
        await self._reader.wait(group, channel)

    def messages(self, group: str, channel: str) -> MessageIterator:
        """An endless async iterator over the messages of the group, from its position on."""
        return MessageIterator(self._reader, group, channel)

    async def seek(self, group: str, channel: str, msg_id: int, *, inclusive: bool = True) -> None:
        """Move the group, forward or back: the next message it gets is `msg_id`, or the one after.

        An id that no message has stands for the next message above it; -1 for the first one. With
        `inclusive=False` the group goes on after `msg_id`. Durable on return. Raises SeekOutOfRange
        beyond the end, and below what retention has left; UnknownConsumerGroup, UnknownChannel.
        """
        await self._reader.seek(group, channel, lambda _: msg_id + (not inclusive))

    async def seek_to_latest(self, group: str, channel: str) -> None:
        """Move the group behind the newest message. Durable on return."""
        await self._reader.seek(group, channel, lambda state: state.end_id or EARLIEST)

    async def rewind(self, group: str, channel: str) -> None:
        """Move the group back to its stored position: what was not committed comes again."""
        await self._reader.rewind(group, channel)

    async def latest_message(self, channel: str) -> ConsumerMessage | None:
        """The newest message of a channel; None if it has none."""
        self._check_open()
        state = self._state(channel)
        if state.begin_id == state.end_id:
            return None
        found = await self._reader.scan(channel, state.end_id - 1, state.end_id, 1)
        return found[0] if found else None

    async def sweep(self) -> None:
        """Apply the rules of retention to all channels now, and give the space back."""
        self._check_open()
        await self._sweeper.sweep()

    async def close(self) -> None:
        """Finish what was called, store the positions, close the folder. Idempotent.

        All that consumers were given counts as processed: they had it, and closed in good order.
        Calls that wait for messages end with RocksMQClosed.
        """
        for place in [] if self._closed else self._reader.places.everywhere():
            self._reader.came_back(place)
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        # After an error, what was given out last may not be processed: it comes again.
        await (self.close() if error is None else self._close())

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._sweeper.stop()
        self._reader.places.wake_all()
        try:
            with suppress(RocksMQError):  # the positions come later or not; messages come again
                await self._writer.idle()
        finally:
            self._writer.stop()
            with CancelScope(shield=True):
                await to_thread.run_sync(self._end)

    def _end(self) -> None:
        """On a thread: end ours, then the store. What is being written is written."""
        self._write_thread.shutdown()
        self._read_threads.shutdown()
        with suppress(OrderedStoreError):  # each write was durable before
            self._opened.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RocksMQClosed(self._opened.folder.root)

    def _state(self, channel: str) -> QueueChannel:
        self._check_open()
        state = self._table.channels.get(channel)
        if state is None:
            raise refused(no_channel(channel))
        return state

    def _changed(self, channels: Mapping[str, QueueChannel | None]) -> None:
        self._reader.places.wake(channels)

    async def _take_ids(self, count: int) -> int:
        """The first of `count` ids. Without a wait, as long as the reserved ones last."""
        if self._own_ids:
            first = self._stored_ids.take(count)
            if first is not None:
                return first
        start, end = await self.ids.alloc(count)
        check(queue_rules.range_fault(count, start, end))
        return start

    async def _save_bound(self, bound_ms: int) -> None:
        self._check_open()
        write = Put(queue_keys.ID_BOUND_KEY, queue_keys.number(bound_ms))
        saving = partial(self._store.write, [write])
        try:
            await asyncio.get_running_loop().run_in_executor(self._write_thread, saving)
        except OrderedStoreError as error:
            raise store_error(error) from error


def _let_go(opening: "asyncio.Future[OpenedQueue]") -> None:
    """Close what was opened for a call that was cancelled: the folder would stay locked."""
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, opening.result().close)
