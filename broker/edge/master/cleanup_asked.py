"""What a request says of the cleanup of a collection, checked."""

from broker.core.compaction.compaction_limits import CompactionAsked, changed_compaction
from broker.model.collection import Collection
from broker.model.failure import invalid_argument
from broker.model.retention.compaction import Compaction
from schemas.generated.tidemark import v1


def compaction_asked(
    request: v1.CreateCollectionRequest | v1.AlterCollectionRequest,
) -> CompactionAsked:
    """What it names of a compaction."""
    return CompactionAsked(request.cleanup, request.compaction_lag_ms, request.tombstone_ms)


def new_compaction(request: v1.CreateCollectionRequest) -> Compaction | None:
    """Of the collection that is created. Refused."""
    rows = bool(request.arrow_schema)
    return changed_compaction(request.name, None, compaction_asked(request), rows=rows)


def altered_compaction(found: Collection, request: v1.AlterCollectionRequest) -> Compaction | None:
    """Of the collection behind the request. Refused, also when the request changes nothing."""
    asked = compaction_asked(request)
    if asked.says_nothing and (request.retention_ms, request.retention_bytes) == (None, None):
        raise invalid_argument(
            "the request changes nothing; name retention_ms, retention_bytes or cleanup"
        )
    rows = found.schema is not None
    return changed_compaction(found.name, found.compaction, asked, rows=rows)


def wire_compaction(it: Compaction | None) -> v1.Compaction | None:
    """On the wire; None: it has none."""
    return None if it is None else v1.Compaction(lag_ms=it.lag_ms, tombstone_ms=it.tombstone_ms)
