"""The messages of the Catalog. Requests that fail raise Refused."""

from dataclasses import dataclass

from actors import Request
from broker.model.collection import Collection, RowSchema


@dataclass(frozen=True, slots=True)
class CreateCollection(Request[Collection]):
    """A new collection. Refused(INVALID_ARGUMENT): bad name, bad number of shards, name taken."""

    name: str
    shards: int
    schema: RowSchema | None = None


@dataclass(frozen=True, slots=True)
class GetCollection(Request[Collection]):
    """One collection by name. Refused(CHANNEL_NOT_EXIST) when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class ListCollections(Request[tuple[Collection, ...]]):
    """All collections, by name."""


@dataclass(frozen=True, slots=True)
class DropCollection(Request[Collection]):
    """Forget a collection and give it back one last time. Refused(CHANNEL_NOT_EXIST).

    Its messages stay in the log until retention takes them; its id is never used again.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ChangeSchema(Request[Collection | None]):
    """Give a collection the next version of its schema; None when it is not as `before` any more.

    What may follow what is for the caller to know. Refused(CHANNEL_NOT_EXIST) when there is none.
    """

    name: str
    before: RowSchema
    after: RowSchema


CatalogMessage = CreateCollection | GetCollection | ListCollections | DropCollection | ChangeSchema
