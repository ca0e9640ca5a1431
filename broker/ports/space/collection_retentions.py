"""Which vchannels have a retention of their own, as the collections say.

Implemented by `broker/coordinator/catalog/stored_retentions.py` over the metadata store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from broker.model.retention.policy import Retention


@dataclass(frozen=True, slots=True)
class Retentions:
    """`limits`: of each vchannel of a collection with a limit. `revision`: of the last change."""

    revision: int = 0
    limits: Mapping[str, Retention] = field(default_factory=dict)


class CollectionRetentions(Protocol):
    """Read again and again: one read of the store while nothing has changed."""

    async def newer(self, revision: int) -> Retentions | None:
        """All of them, when the last change is another one than `revision`; None: it is not.

        Raises Refused(INNER) if the store does not answer.
        """
        ...


class NoRetentions:
    """For a process that knows of no collections."""

    async def newer(self, revision: int) -> Retentions | None:
        """See CollectionRetentions."""
        return None
