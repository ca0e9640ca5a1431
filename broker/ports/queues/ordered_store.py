"""An ordered key-value store of this process: synchronous, few calls, easy to replace by faulty.

Every call may block, so call them on threads; any number at once, but one `write` at a time.
"""

from collections.abc import Sequence
from typing import Protocol

from broker.model.rocksmq.ordered_writes import OrderedWrite


class OrderedStoreError(Exception):
    """A call failed. `full`: for lack of disk space.

    A write that failed is not visible now; after a crash it may be, as a whole.
    """

    def __init__(self, cause: str, *, full: bool = False) -> None:
        super().__init__(cause)
        self.full = full


class OrderedStore(Protocol):
    """Keys are bytes, ordered as such. Raises OrderedStoreError."""

    def write(self, writes: Sequence[OrderedWrite]) -> None:
        """Apply the parts in order, all or none of them; durable when it returns."""
        ...

    def scan(
        self, begin: bytes, end: bytes, *, limit: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        """The first `limit` entries from `begin` on, below `end`, by key: a consistent snapshot.

        It ends before the values have more than `bytes_max` together, unless that is the first one.
        """
        ...

    def compact(self, begin: bytes, end: bytes) -> None:
        """Give the space of removed entries of a range back to the file system."""
        ...

    def close(self) -> None:
        """Idempotent. No other call runs, or follows."""
        ...
