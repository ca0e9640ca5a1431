"""When a member lets the server send more: in halves of its window, and not with each batch.

What the server may send limits the size of its next lease. Credit in small pieces makes small
leases, each of which is read, sent and acknowledged by itself.
"""

PARTS = 2


class MemberCredit:
    """The credit of one stream, whose server may send `window_bytes` ahead of the program."""

    def __init__(self, window_bytes: int) -> None:
        self._part_bytes = window_bytes // PARTS
        self._owed_bytes = 0

    def taken(self, size_bytes: int) -> None:
        """The program took so much of what was sent."""
        self._owed_bytes += size_bytes

    @property
    def due_bytes(self) -> int:
        """What to grant with the next request: at least half of the window, or nothing.

        While it is nothing and the program has taken all that came, the server has more than half
        of the window left: so a window of any size leaves it something to send.
        """
        owed_bytes = self._owed_bytes
        return owed_bytes if owed_bytes >= self._part_bytes else 0

    def granted(self, size_bytes: int) -> None:
        """A request with so much credit was sent."""
        self._owed_bytes -= size_bytes
