"""Users, roles and tokens, as they are kept for every process of a cluster.

Implemented by `broker/coordinator/access/stored_access.py` over the metadata store.
"""

from collections.abc import Callable
from typing import Protocol

from broker.core.security.access_book import AccessBook
from broker.model.failure import invalid_argument


class AccessRecords(Protocol):
    """Every call raises Refused(INNER) when the store does not answer."""

    async def epoch(self) -> int:
        """Grows with each change; 0 before the first one. One read of the store."""
        ...

    async def read(self) -> AccessBook:
        """Everything, of one moment."""
        ...

    async def change(self, change: Callable[[AccessBook], AccessBook]) -> AccessBook:
        """Make a change durable, and return the book after it.

        `change` may be called again, when somebody else changed the book meanwhile. What it raises
        is raised here, and nothing was changed then.
        """
        ...


class NoAccessRecords:
    """Of a process that keeps none: nobody can change them there."""

    async def epoch(self) -> int:
        """See AccessRecords."""
        return 0

    async def read(self) -> AccessBook:
        """See AccessRecords."""
        return AccessBook()

    async def change(self, change: Callable[[AccessBook], AccessBook]) -> AccessBook:
        """See AccessRecords."""
        raise invalid_argument("this server keeps no users; ask the coordinator")
