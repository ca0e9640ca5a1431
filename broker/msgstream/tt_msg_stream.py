"""The time tick stream: a pack has every message of one window, and the next one begins there."""

from typing import Any

import anyio

from broker.model.cut import Cut
from broker.msgstream.backends.stream_backend import FeedStep, RowShaper, StreamBackend
from broker.msgstream.log_clock import LogClock, LogPack
from broker.msgstream.message_reader import log
from broker.msgstream.messages.ts_msg import MsgPack, MsgPosition
from broker.msgstream.messages.unmarshal_dispatcher import UnmarshalDispatcher
from broker.msgstream.msg_stream import MsgStream
from broker.msgstream.sender_clock import SenderClock
from broker.msgstream.stream_errors import BadPosition, ChannelDestroyed, SilentChannel
from broker.msgstream.stream_options import StreamOptions
from broker.msgstream.stream_places import LOG_TICK, SENDER, resume_of, sender_id


class TtMsgStream(MsgStream):
    """A stream whose packs are windows of time: `consume` returns all messages in (begin, end].

    Packs follow each other without a gap, and empty ones come too: they move time on. Store the
    `end_positions` of the last pack that was processed, and `seek` them to continue. Whose time it
    is, `StreamOptions.clock` says. SilentChannel when no window ends for long, TooMuchWaits when
    the buffer is full: the stream can be used on.
    """

    def __init__(
        self, backend: StreamBackend, dispatcher: UnmarshalDispatcher, options: StreamOptions
    ) -> None:
        super().__init__(backend, dispatcher, options)
        self._by_log = options.clock == "log"
        self.kind = LOG_TICK if self._by_log else SENDER
        self._clock: LogClock | SenderClock | None = None
        self._shaper: RowShaper | None = None
        self._ended: tuple[str, int] | None = None

    async def cut(self, pack: MsgPack) -> Cut:
        """The end of a pack as a cut: where `log.read`, `read_arrow` and so on may start.

        BadPosition for the clock of the senders, whose ticks are not those of the log.
        """
        if not self._by_log:
            raise BadPosition("a pack by the clock of the senders ends at no tick of the log")
        return await self._backend.cut([it.channel_name for it in pack.end_positions], pack.end_ts)

    async def spark_offset(self, pack: MsgPack) -> dict[str, Any]:
        """The end of a pack as an offset of Spark's source, which continues behind the pack."""
        cut = await self.cut(pack)
        ends = {name: int(end) for name, end in sorted(cut.ends.items())}
        return {"ends": ends, "tick": int(cut.tick)}

    def _open_feeds(self) -> None:
        self._feeds = self._backend.feeds(self._starts, apart=not self._by_log)
        ticks = [
            self._positions[it].timestamp if it in self._positions else 0 for it in self._starts
        ]
        if self._by_log:
            self._clock = LogClock(self._feeds, self._options, min(ticks, default=0))
            # Channels that were not sought begin at their first message.
            return
        resumed = {name: resume_of(it) for name, it in self._positions.items()}
        self._clock = SenderClock(self._feeds, self._options, resumed, self._reader)

    async def _next_pack(self) -> MsgPack:
        clock = self._clock
        assert clock is not None
        await self._until_ready(clock)
        if isinstance(clock, LogClock):
            for delivered in await clock.gather():
                self._note(delivered)
            if clock.has_rows and self._shaper is None:
                self._shaper = await self._backend.row_shaper(self.channels)
            window = clock.take()
            pack: MsgPack = LogPack(window, self._reader, self._shaper)
            ends = {it: self._at_tick(it, window.end) for it in self._starts}
        else:
            taken = clock.take()
            pack = MsgPack(taken.messages, begin_ts=taken.begin, end_ts=taken.end)
            ends = {
                name: MsgPosition(name, sender_id(it), self._reader.group, it.tick)
                for name, it in taken.ends.items()
            }
        pack.start_positions = [self._positions[it] for it in ends if it in self._positions]
        pack.end_positions = list(ends.values())
        self._positions = ends
        return pack

    async def _until_ready(self, clock: LogClock | SenderClock) -> None:
        """Read until a window is there. Names those that it waits for, once it takes long."""
        began_s = anyio.current_time()
        warned = False
        while not clock.ready:
            self._check_destroyed(clock)
            patience_s = self._options.silent_s if warned else self._options.warn_s
            patience_s = min(patience_s, self._options.silent_s)
            if isinstance(clock, SenderClock) and clock.full and clock.unmet:
                return
            with anyio.CancelScope(deadline=began_s + patience_s):
                self._note(await clock.step())
            if anyio.current_time() < began_s + patience_s:
                continue
            if clock.unmet:
                return
            if patience_s >= self._options.silent_s and not clock.ready:
                raise SilentChannel(clock.behind, clock.end, self._options.silent_s)
            warned = True
            log.warning(
                "no time tick above %d came from %s within %g s; waiting on",
                clock.end,
                ", ".join(clock.behind[:4]),
                patience_s,
            )

    def _note(self, delivered: FeedStep | None) -> None:
        if self._ended is None and delivered is not None and delivered.destroyed:
            self._ended = (delivered.destroyed, delivered.closed)

    def _check_destroyed(self, clock: LogClock | SenderClock) -> None:
        """Raise once all windows were taken that the destroyed channel has a part in."""
        if self._ended is None:
            return
        channel, tick = self._ended
        if clock.ended(channel, tick):
            raise ChannelDestroyed(channel)
