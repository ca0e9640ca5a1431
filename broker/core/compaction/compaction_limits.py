"""Which compaction a collection may have; the names are those of Kafka's topics."""

from dataclasses import dataclass
from typing import Final

from broker.model.failure import invalid_argument
from broker.model.retention.compaction import Compaction

COMPACT: Final = "compact"
DELETE: Final = "delete"
TIME_MS_MAX: Final = 100 * 366 * 86_400_000
"""A hundred years: more is a mistake of the unit."""


@dataclass(frozen=True, slots=True)
class CompactionAsked:
    """What a request names; None: it stays as it is."""

    cleanup: str | None = None
    lag_ms: int | None = None
    tombstone_ms: int | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether nothing is named."""
        return (self.cleanup, self.lag_ms, self.tombstone_ms) == (None, None, None)


def changed_compaction(
    collection: str, before: Compaction | None, asked: CompactionAsked, *, rows: bool
) -> Compaction | None:
    """The compaction after a request; None: it has none. `rows`: it takes rows. Refused."""
    if asked.cleanup not in (None, COMPACT, DELETE):
        raise _refused(
            collection,
            f"cleanup is {asked.cleanup!r}; it must be {COMPACT!r}, which keeps the newest message"
            f" of each key, or {DELETE!r}, which keeps all that retention does not remove",
        )
    compacts = asked.cleanup == COMPACT or (asked.cleanup is None and before is not None)
    if not compacts:
        if (asked.lag_ms, asked.tombstone_ms) != (None, None):
            raise _refused(
                collection,
                "compaction_lag_ms and tombstone_ms are of a compacted collection; set cleanup to"
                f" {COMPACT!r}, or leave them out",
            )
        return None
    if rows:
        raise _refused(
            collection,
            "it has a schema, and rows have no keys, so it cannot be compacted; use a collection"
            " of messages",
        )
    known = before or Compaction()
    return Compaction(
        _checked(collection, "compaction_lag_ms", asked.lag_ms, known.lag_ms),
        _checked(collection, "tombstone_ms", asked.tombstone_ms, known.tombstone_ms),
    )


def _checked(collection: str, name: str, value: int | None, known: int) -> int:
    if value is None:
        return known
    if 0 <= value <= TIME_MS_MAX:
        return value
    raise _refused(collection, f"{name} is {value}; it must be 0 to {TIME_MS_MAX}; check its unit")


def _refused(collection: str, cause: str) -> Exception:
    return invalid_argument(f"collection '{collection}': {cause}")
