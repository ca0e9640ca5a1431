"""The schemas of collections, for checking appended rows.

Implemented by `broker/coordinator/catalog/stored_row_schemas.py` over the metadata store.
"""

from typing import Protocol

from broker.model.collection import RowSchema
from broker.model.ids import CollectionId


class RowSchemas(Protocol):
    """Called seldom: callers cache schemas, and ask again when rows do not fit."""

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        """The stored schema; None if the collection has none or does not exist.

        Raises Refused(INNER) if the store does not answer.
        """
        ...


class NoRowSchemas:
    """For a process whose collections have no rows."""

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        return None
