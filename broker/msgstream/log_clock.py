"""Windows of a time tick stream by the clock of the log: a pack decodes its messages when asked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from broker.client.errors import BadTarget, ProtocolBroken
from broker.core.msgstream.log_windows import BrokenPromise, LogWindow, LogWindows, Run, WindowPart
from broker.msgstream.backends.stream_backend import Feed, FeedStep, Lot, RowShaper
from broker.msgstream.message_reader import MessageReader
from broker.msgstream.messages.ts_msg import MsgPack, TsMsg
from broker.msgstream.stream_options import StreamOptions

if TYPE_CHECKING:
    import pyarrow as pa


class LogPack(MsgPack):
    """A pack of the window (begin_ts, end_ts], whose ticks are those that the log gave."""

    __slots__ = ("_parts", "_reader", "_shaper")

    def __init__(
        self, window: LogWindow[Lot], reader: MessageReader, shaper: RowShaper | None
    ) -> None:
        super().__init__(begin_ts=window.begin, end_ts=window.end)
        self._msgs = None
        self._parts: Sequence[WindowPart[Lot]] = window.parts
        self._reader = reader
        self._shaper = shaper

    def __len__(self) -> int:
        """How many messages of the log it has, decodable or not."""
        return sum(it.stop - it.first for it in self._parts)

    @property
    def has_rows(self) -> bool:
        """Whether some of it was appended as Arrow rows."""
        return any(it.body.has_rows for it in self._parts)

    def __bool__(self) -> bool:
        return True  # an empty pack moves time on

    @property
    def msgs(self) -> Sequence[TsMsg]:
        """Its messages, decoded at the first call; Arrow rows are in `rows` only."""
        if self._msgs is None:
            parts = [it for it in self._parts if not it.body.has_rows]
            found = [self._reader.read_all(it.body, it.first, it.stop) for it in parts]
            self._msgs = [msg for some in found for msg in some]
        return self._msgs

    def rows(self) -> "pa.Table":
        """Its Arrow rows: the columns of the collection, then channel, id and tick of each.

        No object is made for a row. BadTarget when its channels carry no rows, or the pack came
        before the first one of them.
        """
        if self._shaper is None:
            raise BadTarget("nothing in this stream was appended as Arrow rows yet: take the msgs")
        return self._shaper(
            [(it.body, it.first, it.stop) for it in self._parts if it.body.has_rows]
        )


class LogClock:
    """Of one stream. `after`: where the first window begins."""

    apart = False

    def __init__(self, feeds: Sequence[Feed], options: StreamOptions, after: int) -> None:
        self._feeds = {it.name: it for it in feeds}
        self._windows = LogWindows[Lot](self._feeds, after)
        self._options = options
        self.has_rows = False

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
        """Never: any ticks have a minimum."""
        return False

    @property
    def behind(self) -> list[str]:
        """The channels that the window waits for."""
        return list(self._feeds[self._windows.lowest].channels)

    def ended(self, channel: str, tick: int) -> bool:
        """Whether every window was taken that a channel has a part in, which ended at a tick."""
        return self._windows.end >= tick

    async def step(self) -> FeedStep:
        """Read from the source that is lowest. Cancelling it loses nothing."""
        feed = self._feeds[self._windows.lowest]
        delivered = await feed.next()
        if delivered.lot is None:
            self._windows.close(feed.name, delivered.closed)
        else:
            lot = delivered.lot
            self.has_rows = self.has_rows or lot.has_rows
            try:
                self._windows.add(feed.name, Run(lot.ticks, lot.nbytes, lot), delivered.closed)
            except BrokenPromise as error:
                raise ProtocolBroken(str(error)) from None
        return delivered

    async def gather(self) -> Sequence[FeedStep]:
        """Read on while the window is small and more is there at once."""
        found: list[FeedStep] = []
        with anyio.move_on_after(self._options.linger_s):
            while self._windows.held_bytes < self._options.pack_bytes:
                found.append(await self.step())
        return found

    def take(self) -> LogWindow[Lot]:
        """The next window."""
        return self._windows.take()
