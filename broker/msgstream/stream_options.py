"""The limits of a stream, and what it counts."""

from dataclasses import dataclass
from typing import Any, Literal

from broker.client.errors import BadTarget

StreamClock = Literal["log", "sender"]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Limits of streams. BadTarget for a value out of range.

    `clock`: whose time ticks end the windows of a time tick stream. "log": those that the log gives
    each message; windows are exact, and nobody sends ticks. "sender": the timestamps in the
    messages, and TimeTick messages.
    """

    clock: StreamClock = "log"
    buffer_bytes: int = 64 << 20
    """Messages that may wait for the end of their window, by the clock of the senders."""
    pack_bytes: int = 4 << 20
    """A reader that is behind gets windows of about so much, by the clock of the log."""
    linger_s: float = 0.002
    """How long a window that could end waits for more, while it has less than `pack_bytes`."""
    warn_s: float = 5.0
    """After so long without a window a warning names the channels that it waits for."""
    silent_s: float = 30.0
    """After so long `consume` raises SilentChannel."""
    deadline_s: float = 10.0
    """Of `produce`, `broadcast` and each step of opening."""

    def __post_init__(self) -> None:
        """Check every value."""
        if self.clock not in ("log", "sender"):
            raise BadTarget(f'clock is "log" or "sender", not {self.clock!r}')
        for name in ("buffer_bytes", "pack_bytes", "linger_s", "warn_s", "silent_s", "deadline_s"):
            value = getattr(self, name)
            least = 0 if name == "linger_s" else 0.001
            if type(value) not in (int, float) or not value >= least:
                raise BadTarget(f"{name} must be a positive number, not {value!r}")


@dataclass(slots=True)
class StreamCounters:
    """What a stream has passed over or done in another way, since it was made."""

    no_template: int = 0
    """Messages of types without a template, passed over."""
    undecodable: int = 0
    """Messages that could not be decoded, passed over."""
    late: int = 0
    """Messages that came behind a time tick that covered them, given out in the next pack."""
    ticks_back: int = 0
    """Time ticks below an earlier one of their channel, ignored."""
    unmet: int = 0
    """Windows that ended at the smallest tick, since the ticks of the channels never met."""


def options_of(params: dict[str, Any], base: StreamOptions) -> StreamOptions:
    """Options by their names as parameters; early Milvus's names of buffers are known, too.

    Unknown names are ignored, as there. BadTarget for a bad value.
    """
    known = {it: params[it] for it in StreamOptions.__slots__ if it in params}
    return StreamOptions(**({it: getattr(base, it) for it in StreamOptions.__slots__} | known))
