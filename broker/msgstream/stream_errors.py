"""The errors of message streams, beside those of the client."""

from collections.abc import Sequence

from broker.client.errors import TidemarkError


class BadMessage(TidemarkError):
    """A body cannot be decoded, or is not of the type that its header names."""


class NoTemplate(TidemarkError):
    """The dispatcher has no template for a message type; `add_msg_template` adds one."""


class RepackFailed(TidemarkError):
    """A pack could not be spread over the channels; nothing of it was sent."""


class WrongOrder(TidemarkError):
    """A call came at a moment when it is not allowed, such as `seek` after `start`."""


class BadPosition(TidemarkError):
    """A position is not one of this stream: of another channel, kind of log, or kind of stream."""


class ChannelDestroyed(TidemarkError):
    """The channel was destroyed. What it had was read before; nothing more will come."""

    def __init__(self, channel: str) -> None:
        super().__init__(
            f"channel {channel} was destroyed; its messages were read. Read other channels, or"
            " close the stream"
        )
        self.channel = channel

    def __reduce__(self) -> tuple[type["ChannelDestroyed"], tuple[str]]:
        return type(self), (self.channel,)


class SilentChannel(TidemarkError):
    """Channels sent no time tick for so long that no window could end; nothing was lost.

    The next `consume` goes on waiting, so a program may try again as long as it likes.
    """

    retriable = True

    def __init__(self, channels: Sequence[str], tick: int, waited_s: float) -> None:
        super().__init__(
            f"no time tick above {tick} came from {', '.join(channels)} within {waited_s:g} s;"
            " see that its sender lives and sends ticks, or read the log's own clock"
        )
        self.channels = tuple(channels)
        self.tick = tick
        self.waited_s = waited_s

    def __reduce__(self) -> tuple[type["SilentChannel"], tuple[tuple[str, ...], int, float]]:
        return type(self), (self.channels, self.tick, self.waited_s)


class TooMuchWaits(TidemarkError):
    """The messages that wait for a time tick fill the buffer, and the tick has not come."""

    def __init__(self, channels: Sequence[str], bytes_max: int) -> None:
        super().__init__(
            f"{bytes_max:,} bytes wait for a time tick of {', '.join(channels)}; see that its"
            " sender sends ticks, or give the stream a larger buffer_bytes"
        )
        self.channels = tuple(channels)
        self.bytes_max = bytes_max

    def __reduce__(self) -> tuple[type["TooMuchWaits"], tuple[tuple[str, ...], int]]:
        return type(self), (self.channels, self.bytes_max)
