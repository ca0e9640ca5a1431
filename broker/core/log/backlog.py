"""The number of bytes queued for appending on one pchannel, and its limit."""

import sys


class Backlog:
    """Queued bytes of one log, shared by everybody who appends to it."""

    __slots__ = ("bytes_max", "bytes_waiting")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0, bytes_max
        self.bytes_max = bytes_max
        self.bytes_waiting = 0

    def admit(self, size_bytes: int) -> bool:
        """Count the bytes if they fit; an empty backlog takes a batch of any size.

        Each True must be followed by one `release` of the same size.
        """
        # An empty one takes any batch: a batch above the limit would else be refused for ever.
        if self.bytes_waiting > 0 and self.bytes_waiting + size_bytes > self.bytes_max:
            return False
        self.bytes_waiting += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self.bytes_waiting -= size_bytes
        assert self.bytes_waiting >= 0, self.bytes_waiting

    def retire(self) -> None:
        """The log has another owner: lift the limit, so that waiting appends get that refusal."""
        self.bytes_max = sys.maxsize
