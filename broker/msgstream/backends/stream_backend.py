"""What a message stream needs of the log that it runs on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.model.cut import Cut

if TYPE_CHECKING:
    import pyarrow as pa


class Lot(Protocol):
    """Messages of one channel in the order of the log, as they were delivered together."""

    @property
    def channel(self) -> str: ...

    @property
    def ticks(self) -> Sequence[int]:
        """The tick that the log gave each message; never falls."""
        ...

    @property
    def nbytes(self) -> int: ...

    @property
    def payloads(self) -> Sequence[object]:
        """What was sent, made when asked for."""
        ...

    @property
    def has_rows(self) -> bool:
        """Whether the messages are Arrow rows."""
        ...

    def place(self, index: int) -> bytes:
        """The position of a message; places of one channel are compared, and grow."""
        ...


@dataclass(frozen=True, slots=True)
class FeedStep:
    """What a feed gives at once; after it `closed` is closed on all channels of the feed.

    `destroyed`: this channel of the feed has ended with the lot.
    """

    lot: Lot | None
    closed: int
    destroyed: str = ""


class Feed(Protocol):
    """Reads some channels, in the order of their ticks. Cancelling `next` loses nothing."""

    @property
    def name(self) -> str: ...

    @property
    def channels(self) -> Sequence[str]: ...

    async def next(self) -> FeedStep:
        """Wait for what comes next; without messages, for a tick that was closed meanwhile."""
        ...

    async def close(self) -> None:
        """End the feed; may be called again."""
        ...


@dataclass(frozen=True, slots=True)
class FeedStart:
    """Where a channel begins: behind a tick, and not before a place. Both 0: at its first message.

    `at`: the place of the first message to deliver; b"": any.
    """

    after_tick: int = 0
    at: bytes = b""


class StreamBackend(Protocol):
    """A log with channels. Every call has a deadline and raises the errors of `broker.client`."""

    async def resolve(self, names: Sequence[str]) -> list[str]:
        """The channels of these names, in order. Raises for a name of nothing."""
        ...

    async def send(self, channel: str, payloads: Sequence[object], deadline_s: float) -> None:
        """Append to one channel, in order; durable as the log promises."""
        ...

    async def send_to_all(
        self, channels: Sequence[str], payloads: Sequence[object], deadline_s: float
    ) -> None:
        """Append all to every channel: either every channel gets all of them, or none any."""
        ...

    def feeds(self, starts: Mapping[str, FeedStart], *, apart: bool) -> list[Feed]:
        """Readers of these channels; `apart`: one for each channel."""
        ...

    def tick_of(self, place: bytes) -> int:
        """The tick at which reading reaches this place. BadPosition for one of another log."""
        ...

    def end_of_tick(self, tick: int) -> bytes:
        """The place behind all messages of a tick."""
        ...

    async def cut(self, channels: Iterable[str], tick: int) -> Cut:
        """The closed `tick` as a cut, with the first id behind it on each channel."""
        ...

    async def row_shaper(self, channels: Sequence[str]) -> "RowShaper":
        """Makes Arrow rows. BadTarget unless the channels are of one collection with rows."""
        ...


RowShaper = Callable[[Sequence[tuple[Lot, int, int]]], "pa.Table"]
"""The rows of messages [first, stop) of each lot, with their channel, id and tick."""
