"""How much a collection keeps, in words."""

from broker.cli.show.figures import size_text
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention

UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def retention_text(it: Retention) -> str:
    """What each vchannel keeps."""
    limits: list[str] = []
    if it.age_ms_max:
        limits.append(f"messages for {age_text(it.age_ms_max)}")
    if it.bytes_max:
        limits.append(f"the newest {size_text(it.bytes_max)} of each vchannel")
    return ", at most ".join(limits) or "everything"


def retention_fields(it: Retention) -> dict[str, int | None]:
    """The limits for programs; None: no limit."""
    return {"retention_ms": it.age_ms_max or None, "retention_bytes": it.bytes_max or None}


def age_text(age_ms: int) -> str:
    """In the largest unit that gives a whole number."""
    size, unit = next((size, unit) for size, unit in UNITS if age_ms % size == 0)
    return f"{age_ms // size:,} {unit}"


def compaction_text(it: Compaction | None) -> str:
    """Whether of each key only the newest message is kept, in words."""
    if it is None:
        return "not compacted"
    return (
        f"compacted by key after {it.lag_ms / 1000:g} s, tombstones stay"
        f" {it.tombstone_ms / 1000:g} s"
    )
