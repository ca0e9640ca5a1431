"""The memory of the machine and of this process."""

from typing import Protocol


class Memory(Protocol):
    """The plain calls take microseconds. None raises."""

    def total_bytes(self) -> int:
        """What the process may use: the machine's memory, or the limit of its container."""
        ...

    def process_bytes(self) -> int:
        """What the process uses now."""
        ...

    def unused_bytes(self) -> int:
        """What the allocator holds of this and nobody uses; 0 if unknown.

        It still counts what `trim` has returned.
        """
        ...

    async def trim(self) -> None:
        """Return unused memory to the system."""
        ...
