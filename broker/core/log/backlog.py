"""How many bytes wait to be appended on one pchannel, with a limit.

It owns one number. It never waits and never refuses by itself: whoever brings a batch asks first.
"""

import sys


class Backlog:
    """Bytes on their way into one log; shared by everybody who appends to it."""

    __slots__ = ("bytes_max", "bytes_waiting")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0, bytes_max
        self.bytes_max = bytes_max
        self.bytes_waiting = 0

    def admit(self, size_bytes: int) -> bool:
        """Count the bytes in when they fit; one batch always fits an empty backlog.

        Every True must be answered by one `release` of the same size, once the bytes are gone.
        """
        if self.bytes_waiting > 0 and self.bytes_waiting + size_bytes > self.bytes_max:
            return False
        self.bytes_waiting += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self.bytes_waiting -= size_bytes
        assert self.bytes_waiting >= 0, self.bytes_waiting

    def retire(self) -> None:
        """The log is appended to elsewhere: let everybody through, to be told so."""
        self.bytes_max = sys.maxsize
