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

    def used_bytes(self) -> int:
        """The blocks of the allocator that are in use, a part of `process_bytes`; 0 if unknown."""
        ...

    async def trim(self) -> None:
        """Return the allocator's unused memory to the system.

        Other threads cannot allocate large blocks meanwhile: about 0.2 ms per MB returned.
        """
        ...
