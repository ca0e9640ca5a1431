"""The messages of the Catalog. Requests that fail raise Refused."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from actors import Request
from broker.core.name_lookup import FoundName
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Refused, StreamingCode

PAGE: Final = 200
"""Collections of one list: an actor answers nobody else meanwhile."""


class NameTaken(Refused):
    """A collection of this name exists already."""

    def __init__(self, collection: Collection) -> None:
        cause = f"collection '{collection.name}' exists already; drop it, or choose a new name"
        super().__init__(StreamingCode.INVALID_ARGUMENT, cause)
        self.collection = collection


@dataclass(frozen=True, slots=True)
class CreateCollection(Request[Collection]):
    """Create a collection. NameTaken; Refused(INVALID_ARGUMENT): bad name, bad shard count."""

    name: str
    shards: int
    schema: RowSchema | None = None


@dataclass(frozen=True, slots=True)
class GetCollection(Request[Collection]):
    """The collection of this name. Refused(CHANNEL_NOT_EXIST) when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class FindName(Request[FoundName]):
    """What a name stands for. Refused(CHANNEL_NOT_EXIST) for a name of nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class ListCollections(Request[tuple[Collection, ...]]):
    """The first `limit` collections by name, after `after`. `all_collections` asks for all."""

    after: str = ""
    limit: int = PAGE


@dataclass(frozen=True, slots=True)
class DropCollection(Request[Collection]):
    """Delete a collection and return it. Refused(CHANNEL_NOT_EXIST).

    Its messages stay in the log until retention removes them; its id is never used again.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ChangeSchema(Request[Collection | None]):
    """Replace a collection's schema; None when the current one is not `before` (any more).

    Compatibility is checked by the caller. Refused(CHANNEL_NOT_EXIST) when there is no collection.
    """

    name: str
    before: RowSchema
    after: RowSchema


CatalogMessage = (
    CreateCollection | GetCollection | FindName | ListCollections | DropCollection | ChangeSchema
)


async def all_collections(
    ask: Callable[[ListCollections], Awaitable[tuple[Collection, ...]]],
) -> list[Collection]:
    """All collections by name, asked for page by page: other requests go in between."""
    found: list[Collection] = []
    while True:
        page = await ask(ListCollections(found[-1].name if found else ""))
        found += page
        if len(page) < PAGE:
            return found
