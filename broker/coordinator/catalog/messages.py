"""The messages of the Catalog. Requests that fail raise Refused."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from actors import Request
from broker.core.name_lookup import FoundName
from broker.model.collection import Collection
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
class GetCollection(Request[Collection]):
    """The collection of this name. Refused(CHANNEL_NOT_EXIST) when there is none.

    `database` "": the default one.
    """

    name: str
    database: str = ""


@dataclass(frozen=True, slots=True)
class FindName(Request[FoundName]):
    """What a name stands for. Refused(CHANNEL_NOT_EXIST) for a name of nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class ListCollections(Request[tuple[Collection, ...]]):
    """The first `limit` collections of all databases by database and name, the default one first.

    `after`: the database and the name of the last one of the page before. `all_collections` asks
    for all.
    """

    after: tuple[str, str] = ("", "")
    limit: int = PAGE


CatalogMessage = GetCollection | FindName | ListCollections


async def all_collections(
    ask: Callable[[ListCollections], Awaitable[tuple[Collection, ...]]],
) -> list[Collection]:
    """The collections of all databases, asked for page by page: other requests go in between."""
    found: list[Collection] = []
    while True:
        after = (found[-1].database, found[-1].name) if found else ("", "")
        page = await ask(ListCollections(after))
        found += page
        if len(page) < PAGE:
            return found
