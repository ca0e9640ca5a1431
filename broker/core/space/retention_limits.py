"""Which limits the retention of a collection may have.

As in Kafka, -1 is no limit, and bytes are those of one partition: here of one vchannel.
"""

from typing import Final

from broker.model.failure import invalid_argument
from broker.model.retention.policy import Retention

NO_LIMIT: Final = -1
RETENTION_MS_MIN: Final = 1000
RETENTION_MS_MAX: Final = 100 * 366 * 86_400_000
"""A hundred years: more is a mistake of the unit."""
RETENTION_BYTES_MIN: Final = 64 * 1024
"""Less is not worth a rewritten segment."""
RETENTION_BYTES_MAX: Final = 1 << 60


def changed_retention(
    collection: str, before: Retention, retention_ms: int | None, retention_bytes: int | None
) -> Retention:
    """The retention after a request, whose limits are None where they stay as they are. Refused."""
    age_ms, size = before.age_ms_max, before.bytes_max
    if retention_ms is not None:
        bounds = (RETENTION_MS_MIN, RETENTION_MS_MAX)
        age_ms = _checked(collection, "retention_ms", retention_ms, bounds)
    if retention_bytes is not None:
        bounds = (RETENTION_BYTES_MIN, RETENTION_BYTES_MAX)
        size = _checked(collection, "retention_bytes", retention_bytes, bounds)
    return Retention(bytes_max=size, age_ms_max=age_ms)


def _checked(collection: str, name: str, value: int, bounds: tuple[int, int]) -> int:
    """The limit as Retention has it: 0 for none."""
    least, most = bounds
    if value == NO_LIMIT:
        return 0
    if least <= value <= most:
        return value
    instead = "purge the collection to empty it" if value == 0 else "check its unit"
    raise invalid_argument(
        f"collection '{collection}': {name} is {value}; it must be {least} to {most}, or -1 for no"
        f" limit; {instead}"
    )
