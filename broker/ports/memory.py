"""The memory of the machine and of this process."""

from typing import Protocol


class Memory(Protocol):
    """Both calls take microseconds and never raise."""

    def total_bytes(self) -> int:
        """What the process may use: the machine's memory, or the limit of its container."""
        ...

    def process_bytes(self) -> int:
        """What the process uses now."""
        ...
