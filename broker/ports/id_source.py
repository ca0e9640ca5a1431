"""The source of ids that are unique in the cluster."""

from typing import Protocol

from broker.model.master.id_range import IdRange

IDS_COUNT_MAX = 65_536
"""The most ids of one request."""


class IdSource(Protocol):
    """Gives out ids: positive, signed 64-bit, each larger than all before it, over restarts."""

    async def take(self, count: int = 1) -> IdRange:
        """Consecutive ids, 1 <= count <= IDS_COUNT_MAX, within a bounded time.

        Raises Refused(INNER) if none are available now, Refused(INVALID_ARGUMENT) for other counts,
        Refused(UNRECOVERABLE) when all 64-bit ids are used up.
        """
        ...
