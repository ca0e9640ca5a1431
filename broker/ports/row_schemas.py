"""What columns the rows of a collection have, for whoever takes them in.

Implemented by `broker/coordinator/catalog/stored_row_schemas.py` over the metadata store.
"""

from typing import Protocol

from broker.model.collection import RowSchema
from broker.model.ids import CollectionId


class RowSchemas(Protocol):
    """Asked seldom: whoever asks remembers, and asks again for what does not fit what it knows."""

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        """As it is stored now; None when the collection has none, or is not there.

        Raises Refused(INNER) when the store does not answer.
        """
        ...


class NoRowSchemas:
    """For a process whose collections have no rows."""

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        return None
