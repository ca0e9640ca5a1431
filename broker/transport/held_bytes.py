"""How many bytes the open calls of a connection hold: of headers, and of messages that have begun.

HPACK makes 16 KiB of headers of 20 bytes, and a connection may have thousands of open calls. What
came of a message is taken out of the flow-control windows, so these do not bound it.
"""

from collections.abc import Container
from typing import Final

LONG_BYTES: Final = 2 * 1024
"""Shorter headers are not counted: 16,384 calls hold 32 MiB of them at most."""
HELD_BYTES_MAX: Final = 16 * 1024 * 1024
UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of messages that have begun: a client may send one of 16 MiB to each of 16 pchannels at once."""
UNFINISHED_BYTES_MIN: Final = 16 * 1024
"""Smaller ones are not counted: those of 16,384 calls have 256 MiB at most."""
_CALLS_AT_ONCE: Final = 1024
"""With more of them counted, those that have ended are looked for."""


class HeldHeaders:
    """Of one connection. `open_calls`: its streams that have not ended."""

    def __init__(self, open_calls: Container[int]) -> None:
        self._open_calls = open_calls
        self._sizes: dict[int, int] = {}
        self._total = 0

    def add(self, stream_id: int, size: int) -> bool:
        """Count the headers of a new call; False when all together are too much."""
        if size >= LONG_BYTES:
            self._sizes[stream_id] = size
            self._total += size
            if self._total > HELD_BYTES_MAX or len(self._sizes) > _CALLS_AT_ONCE:
                self._forget_ended()
        return self._total <= HELD_BYTES_MAX

    def _forget_ended(self) -> None:
        self._sizes = {it: size for it, size in self._sizes.items() if it in self._open_calls}
        self._total = sum(self._sizes.values())


class UnfinishedMessages:
    """Of one connection; counted at the lengths that they announce."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = 0

    def begin(self, length: int) -> int | None:
        """What to call `end` with; None when the messages that have begun are too large."""
        if length < UNFINISHED_BYTES_MIN:
            return 0
        if self._bytes + length > UNFINISHED_BYTES_MAX:
            return None
        self._bytes += length
        return length

    def end(self, length: int) -> None:
        """The message is whole, or its call has ended."""
        self._bytes -= length
