"""The plain stream: each message is a pack of its own. Also what all streams have in common."""

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

import anyio

from broker.client.errors import BadTarget, ClosedClient, DeadlineExceeded
from broker.msgstream.backends.stream_backend import Feed, FeedStart, FeedStep, Lot, StreamBackend
from broker.msgstream.feed_race import first_of
from broker.msgstream.message_reader import MessageReader
from broker.msgstream.messages.encoded_pack import EncodedPack
from broker.msgstream.messages.ts_msg import MsgPack, MsgPosition
from broker.msgstream.messages.unmarshal_dispatcher import UnmarshalDispatcher
from broker.msgstream.repack_functions import RepackFunc, repacked
from broker.msgstream.stream_errors import BadPosition, ChannelDestroyed, WrongOrder
from broker.msgstream.stream_options import StreamCounters, StreamOptions
from broker.msgstream.stream_places import (
    LOG_TICK,
    MESSAGE,
    SENDER,
    Offset,
    check_kind,
    start_of,
    ticks_of,
)

Places = MsgPosition | Sequence[MsgPosition] | Offset | str
CHANNELS_MAX: Final = 4096


class MsgStream:
    """A stream over some channels, for one task at a time; made by a factory.

        stream = factory.new_msg_stream()
        await stream.as_consumer(["orders"], "billing")
        await stream.start()
        async for pack in stream.chan(): ...

    Reading is at least once: a program that stores the position of the last pack it has processed
    continues there with `seek`. A stream may produce and consume.
    """

    kind = MESSAGE

    def __init__(
        self, backend: StreamBackend, dispatcher: UnmarshalDispatcher, options: StreamOptions
    ) -> None:
        self._backend = backend
        self._options = options
        self._reader = MessageReader(dispatcher)
        self._producers: list[str] = []
        self._repack: RepackFunc | None = None
        self._produced = False
        self._starts: dict[str, FeedStart] = {}
        self._positions: dict[str, MsgPosition] = {}
        self._feeds: list[Feed] = []
        self._started = False
        self._closed = False
        self._consuming: anyio.CancelScope | None = None
        self._destroyed: ChannelDestroyed | None = None
        self._pending: deque[tuple[Lot, int]] = deque()

    @property
    def dispatcher(self) -> UnmarshalDispatcher:
        """Where `add_msg_template` sets how messages of a type are made."""
        return self._reader.dispatcher

    @property
    def counters(self) -> StreamCounters:
        """What was passed over, late, and so on."""
        return self._reader.counters

    @property
    def channels(self) -> list[str]:
        """The channels that are read."""
        return list(self._starts)

    # ---- Produce ------------------------------------------------------------------------------

    async def as_producer(self, channels: Iterable[str]) -> None:
        """Open channels to produce to; bucket i is the i-th of them, over all calls.

        WrongOrder after the first `produce`: it would move keys to other buckets. Raises for a
        channel that does not exist.
        """
        self._check_open()
        if self._produced:
            raise WrongOrder(
                "as_producer after produce would send the same hash key to another channel than"
                " before: name all channels first, or make another stream"
            )
        self._producers += await self._resolved(channels)

    def set_repack_func(self, repack: RepackFunc | None) -> None:
        """Spread packs by this rule instead of the default one; None: by the default one."""
        self._repack = repack

    async def produce(self, pack: MsgPack | None, *, deadline_s: float | None = None) -> None:
        """Send each message, or each of its rows, to the bucket of its hash key.

        Durable when it returns. The order within a channel is that of the pack; the channels are
        independent: after an error some messages may have been sent. An empty pack does nothing.
        RepackFailed when nothing was sent because the pack does not fit.
        """
        self._check_producer()
        encoded = {} if pack is None else self._encoded(pack)
        if not encoded:
            return
        self._produced = True
        within_s = deadline_s or self._options.deadline_s
        if len(encoded) == 1:
            ((channel, payloads),) = encoded.items()
            await self._backend.send(channel, payloads, within_s)
            return
        errors: list[Exception] = []

        async def send(channel: str, payloads: Sequence[object]) -> None:
            try:
                await self._backend.send(channel, payloads, within_s)
            except Exception as error:  # noqa: BLE001 - raised below, without a group round it
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for channel, payloads in encoded.items():
                tasks.start_soon(send, channel, payloads)
        if errors:
            raise errors[0]

    def _encoded(self, pack: MsgPack) -> dict[str, Sequence[object]]:
        """What to send to each channel. RepackFailed."""
        count, marshal = len(self._producers), self.dispatcher.marshal
        spread: Mapping[int, Sequence[object]]
        if self._repack is None and isinstance(pack, EncodedPack) and self.dispatcher.takes_bytes:
            spread = pack.spread(count)
        elif pack.msgs:
            found = repacked(pack.msgs, count, self._repack)
            spread = {bucket: marshal(msgs) for bucket, msgs in found.items()}
        else:
            spread = {}
        return {self._producers[bucket]: payloads for bucket, payloads in spread.items()}

    async def broadcast(self, pack: MsgPack | None, *, deadline_s: float | None = None) -> None:
        """Send every message to every channel: all channels get all of them, or none any.

        On a broker it is one staged batch, so no cut splits it, and whatever dies it is whole.
        """
        self._check_producer()
        if pack is None or not pack.msgs:
            return
        self._produced = True
        payloads = self.dispatcher.marshal(pack.msgs)
        within_s = deadline_s or self._options.deadline_s
        names = list(dict.fromkeys(self._producers))
        if len(names) == 1:
            await self._backend.send(names[0], payloads, within_s)
        else:
            await self._backend.send_to_all(names, payloads, within_s)

    # ---- Consume ------------------------------------------------------------------------------

    async def as_consumer(self, channels: Iterable[str], sub_name: str) -> None:
        """Read these channels from their first message on; one that is read already is skipped.

        `sub_name` goes into the positions. Two streams of one name both get everything: to share
        the messages use `log.group`. WrongOrder after `start`.
        """
        self._check_before_start("as_consumer")
        if not sub_name:
            raise BadTarget("a subscription needs a name, which its positions carry")
        self._reader.group = sub_name
        for name in await self._resolved(channels):
            self._starts.setdefault(name, FeedStart())
        if len(self._starts) > CHANNELS_MAX:
            raise BadTarget(f"a stream reads at most {CHANNELS_MAX} channels")

    async def seek(self, to: Places) -> None:
        """Continue from the position of a message that was processed: with the one behind it.

        Several positions, one for each channel; or an offset of Spark's source, as a mapping or
        its JSON text. Channels without one keep their start. Before `start` only (WrongOrder);
        BadPosition for one of a channel that is not read, of another log, or of a time tick stream:
        then nothing was changed.
        """
        self._check_before_start("seek")
        await anyio.lowlevel.checkpoint()
        if isinstance(to, str | Mapping):
            if self.kind == SENDER:
                raise BadPosition(
                    "an offset of Spark is a tick of the log, and the windows of this stream end at"
                    ' ticks of the senders: use clock="log"'
                )
            ticks = ticks_of(to, self.channels)
            given = [self._at_tick(name, tick) for name, tick in ticks.items()]
        else:
            given = [to] if isinstance(to, MsgPosition) else list(to)
            for position in given:
                self._check_subscribed(position)
                check_kind(position, self.kind)
        starts = {it.channel_name: start_of(it, self._backend) for it in given}
        self._starts |= starts
        self._positions |= {it.channel_name: it for it in given}

    async def start(self) -> None:
        """Begin to read; a stream that only produces needs no start. No-op when started."""
        self._check_open()
        if self._started:
            return
        await anyio.lowlevel.checkpoint()
        self._started = True
        self._open_feeds()

    async def consume(self, *, deadline_s: float | None = None) -> MsgPack | None:
        """The next pack; None after `close`, also for one that waits meanwhile.

        Cancelling it loses nothing. DeadlineExceeded at the deadline. ChannelDestroyed once
        all that the destroyed channel had was read.
        """
        if self._closed:
            await anyio.lowlevel.checkpoint()
            return None
        if not self._started:
            raise WrongOrder("consume before start: call start first")
        if self._consuming is not None:
            raise WrongOrder("two tasks consume one stream: give each a stream of its own")
        if not self._feeds:
            raise WrongOrder("this stream reads no channel: call as_consumer before start")
        pack: MsgPack | None = None
        self._consuming = anyio.CancelScope()
        try:
            with self._consuming, anyio.fail_after(deadline_s):
                pack = await self._next_pack()
        except TimeoutError:
            raise DeadlineExceeded(f"no pack came within {deadline_s} s") from None
        except ClosedClient:
            if not self._closed:
                raise
        finally:
            self._consuming = None
        return pack

    async def chan(self) -> AsyncIterator[MsgPack]:
        """Yield packs until the stream is closed."""
        while (pack := await self.consume()) is not None:
            yield pack

    def __aiter__(self) -> AsyncIterator[MsgPack]:
        return self.chan()

    async def close(self) -> None:
        """End reading and producing; may be called again. A waiting `consume` returns None."""
        self._closed = True
        if self._consuming is not None:
            self._consuming.cancel()
        with anyio.CancelScope(shield=True):
            for feed in self._feeds:
                await feed.close()
        await anyio.lowlevel.checkpoint()

    # ---- For the streams ------------------------------------------------------------------------

    def _open_feeds(self) -> None:
        self._feeds = self._backend.feeds(self._starts, apart=False)

    async def _next_pack(self) -> MsgPack:
        """The next message as a pack; time ticks are messages like others here."""
        while True:
            while self._pending:
                lot, index = self._pending.popleft()
                if index + 1 < len(lot.ticks):
                    self._pending.appendleft((lot, index + 1))
                msg = None if lot.has_rows else self._reader.read(lot, index)
                if msg is not None:
                    assert msg.position is not None
                    return MsgPack(
                        [msg], start_positions=[msg.position], end_positions=[msg.position]
                    )
            if self._destroyed is not None:
                raise self._destroyed
            await first_of(self._feeds, self._came)

    def _came(self, feed: Feed, delivered: FeedStep) -> None:
        if delivered.destroyed:
            self._destroyed = ChannelDestroyed(delivered.destroyed)
        if delivered.lot is not None:
            self._pending.append((delivered.lot, 0))

    def _at_tick(self, channel: str, tick: int) -> MsgPosition:
        """The position behind a tick of the log."""
        place = LOG_TICK + self._backend.end_of_tick(tick)
        return MsgPosition(channel, place, self._reader.group, tick)

    async def _resolved(self, channels: Iterable[str]) -> list[str]:
        names = [channels] if isinstance(channels, str) else list(channels)
        if not names or not all(names):
            raise BadTarget(f"{names} are no names of channels")
        try:
            with anyio.fail_after(self._options.deadline_s):
                return await self._backend.resolve(names)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{names[:4]} were not found within {self._options.deadline_s} s"
            ) from None

    def _check_subscribed(self, position: Any) -> None:
        if not isinstance(position, MsgPosition):
            raise BadPosition(f"{position!r} is no MsgPosition")
        if position.channel_name not in self._starts:
            raise BadPosition(
                f"this stream does not read {position.channel_name}, but"
                f" {', '.join(self._starts) or 'nothing'}: call as_consumer with it first"
            )

    def _check_producer(self) -> None:
        self._check_open()
        if not self._producers:
            raise WrongOrder("this stream has no channel to produce to: call as_producer first")

    def _check_before_start(self, call: str) -> None:
        self._check_open()
        if self._started:
            raise WrongOrder(
                f"{call} after start: what was read ahead would leak; make a new stream"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedClient("the stream is closed; make another one")
