"""How many bytes of headers the open calls of a connection hold.

HPACK makes 16 KiB of headers of 20 bytes, and a connection may have thousands of open calls.
"""

from collections.abc import Container
from typing import Final

LONG_BYTES: Final = 2 * 1024
"""Shorter headers are not counted: 16,384 calls hold 32 MiB of them at most."""
HELD_BYTES_MAX: Final = 16 * 1024 * 1024
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
