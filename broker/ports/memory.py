"""How much memory there is, and how much of it this process takes."""

from typing import Protocol


class Memory(Protocol):
    """Both calls take microseconds and never raise."""

    def total_bytes(self) -> int:
        """What the process may take: the machine's memory, or less where it is confined."""
        ...

    def process_bytes(self) -> int:
        """What it takes now."""
        ...
