"""What the nodes tell each other of the bytes that collections store.

Implemented by `broker/coordinator/catalog/stored_sizes.py` over the metadata store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ToldSizes:
    """`bytes`: of each vchannel that was told. `revision`: of the last change."""

    revision: int = 0
    bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamedShards:
    """`vchannels`: of each collection, by database ("": the default one) and name.

    `revision`: of the catalog.
    """

    revision: int = -1
    vchannels: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)


class CollectionSizes(Protocol):
    """Every call raises Refused(INNER) if the store does not answer."""

    async def shards(self, revision: int) -> NamedShards | None:
        """All collections, when the catalog has another revision; None: it has not.

        One read while nothing has changed.
        """
        ...

    async def newer(self, revision: int) -> ToldSizes | None:
        """All that was told, when the last change is another one than `revision`; None: it is not.

        One read while nothing has changed.
        """
        ...

    async def of(self, vchannels: Sequence[str]) -> int:
        """What was told of these, in all."""
        ...

    async def tell(self, figures: Mapping[str, int], gone: Sequence[str]) -> None:
        """Tell these figures, and forget those of vchannels that are gone."""
        ...


class NoSizes:
    """For a process that knows of no collections."""

    async def shards(self, revision: int) -> NamedShards | None:
        """See CollectionSizes."""
        return None

    async def newer(self, revision: int) -> ToldSizes | None:
        """See CollectionSizes."""
        return None

    async def of(self, vchannels: Sequence[str]) -> int:
        """See CollectionSizes."""
        return 0

    async def tell(self, figures: Mapping[str, int], gone: Sequence[str]) -> None:
        """See CollectionSizes."""
