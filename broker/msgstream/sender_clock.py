"""Windows of a time tick stream by the clock of the senders: TimeTick messages end them."""

from collections.abc import Mapping, Sequence

import anyio.lowlevel

from broker.core.msgstream.sender_windows import Resume, SenderWindow, SenderWindows, Sent
from broker.msgstream.backends.stream_backend import Feed, FeedStep, Lot
from broker.msgstream.feed_race import first_of
from broker.msgstream.message_reader import MessageReader, log
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.messages.ts_msg import TsMsg
from broker.msgstream.stream_errors import TooMuchWaits
from broker.msgstream.stream_options import StreamOptions


class SenderClock:
    """Of one stream, with one feed for each channel, so that one that is ahead can wait."""

    def __init__(
        self,
        feeds: Sequence[Feed],
        options: StreamOptions,
        resumed: Mapping[str, Resume],
        reader: MessageReader,
    ) -> None:
        self._feeds = {it.name: it for it in feeds}
        self._windows = SenderWindows[TsMsg](self._feeds, resumed, bytes_max=options.buffer_bytes)
        self._options = options
        self._reader = reader
        self._unread: dict[str, tuple[Lot, int]] = {}
        """Of each channel what was delivered, and not looked at since its tick had come."""
        self._destroyed: FeedStep | None = None

    @property
    def end(self) -> int:
        """The end of the newest window."""
        return self._windows.end

    @property
    def ready(self) -> bool:
        """Whether a window can be taken."""
        return self._windows.ready

    @property
    def unmet(self) -> bool:
        """Whether every channel has had a newer tick, though not the same one."""
        return self._windows.unmet

    @property
    def full(self) -> bool:
        """Whether as much waits as may."""
        return self._windows.full

    @property
    def behind(self) -> list[str]:
        """The channels whose time tick the window waits for."""
        return self._windows.behind

    def ended(self, channel: str, tick: int) -> bool:
        """Whether the next window waits for a tick of this channel, of which all was looked at."""
        return channel in self._windows.behind and channel not in self._unread

    async def step(self) -> FeedStep | None:
        """Read from the channels that are behind. Cancelling it loses nothing.

        TooMuchWaits when the buffer is full, and some channel has had no tick.
        """
        if self._windows.full and not self._windows.unmet:
            raise TooMuchWaits(self._windows.behind, self._options.buffer_bytes)
        wanted = [it for it in self._feeds if self._windows.wants(it)]
        unread = [it for it in wanted if it in self._unread]
        for name in unread:
            self._look_at(name)
        if unread:
            await anyio.lowlevel.checkpoint()
        elif wanted:
            await first_of([self._feeds[it] for it in wanted], self._came)
        return self._destroyed

    def take(self) -> SenderWindow[TsMsg]:
        """The next window: at the tick that all channels have had, or at the smallest one."""
        counters = self._reader.counters
        if self._windows.ready:
            window = self._windows.take()
        else:
            window = self._windows.take_unmet()
            counters.unmet += 1
            log.warning("the ticks of the channels did not meet; a window ends at %d", window.end)
        if window.late:
            counters.late += window.late
            log.warning("%d messages came behind their time tick; see counters", window.late)
        return window

    def _came(self, feed: Feed, delivered: FeedStep) -> None:
        if delivered.destroyed:
            self._destroyed = delivered
        if delivered.lot is not None:
            self._unread[feed.name] = (delivered.lot, 0)
            self._look_at(feed.name)

    def _look_at(self, name: str) -> None:
        """Take messages up to the tick at which the channel has to wait."""
        lot, index = self._unread.pop(name)
        size = max(1, lot.nbytes // max(1, len(lot.ticks)))
        while index < len(lot.ticks):
            if not self._windows.wants(name):
                self._unread[name] = (lot, index)
                return
            msg = self._reader.read(lot, index)
            place = lot.place(index)
            index += 1
            if msg is None:
                continue
            if msg.type != MsgType.TIME_TICK:
                self._windows.add(name, Sent(msg.end_ts, place, size, msg))
            elif not self._windows.tick(name, msg.end_ts, place):
                self._reader.counters.ticks_back += 1
                log.warning(
                    "time tick %d on %s is below an earlier one and was ignored; its sender %d"
                    " must not go back",
                    msg.end_ts,
                    name,
                    msg.source_id,
                )
