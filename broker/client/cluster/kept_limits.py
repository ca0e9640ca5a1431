"""The limits of what a collection keeps, as callers name them."""

from typing import Literal, TypedDict

from broker.client.errors import BadTarget
from broker.model.collection import Collection
from broker.model.retention.compaction import Compaction
from schemas.generated.tidemark import v1


class KeptLimits(TypedDict, total=False):
    """How much each vchannel of a collection keeps.

    `retention_ms`: messages that are older are removed, 1,000 to a hundred years.
    `retention_bytes`: the oldest messages are removed while newer ones have as many bytes, 65,536
    to 2**60. -1: no limit. None, or left out: the limit stays; a new collection has none.
    """

    retention_ms: int | None
    retention_bytes: int | None


def limits_on_wire(limits: KeptLimits) -> KeptLimits:
    """Both, if the wire can carry them; the server checks the rest. Raises BadTarget."""
    return KeptLimits(
        retention_ms=_number("retention_ms", limits.get("retention_ms")),
        retention_bytes=_number("retention_bytes", limits.get("retention_bytes")),
    )


def limit_differences(found: Collection, limits: KeptLimits) -> list[str]:
    """How the limits of a collection differ from those that were named."""
    has = found.retention
    each = (
        ("retention_ms", limits.get("retention_ms"), has.age_ms_max or -1),
        ("retention_bytes", limits.get("retention_bytes"), has.bytes_max or -1),
    )
    return [
        f"its {name} is {kept}, not {asked}"
        for name, asked, kept in each
        if asked is not None and asked != kept
    ]


def _number(name: str, value: int | None) -> int | None:
    if value is None or -(1 << 63) <= value < 1 << 63:
        return value
    raise BadTarget(f"{name} is {value}, which takes more than 64 bits; -1 is no limit")


class CleanupOptions(KeptLimits, total=False):
    """With how superseded messages are removed; see `Collections.alter`.

    `cleanup`: "compact" or "delete". `compaction_lag_ms`, `tombstone_ms`: 0 to a hundred years.
    None, or left out: it stays; a new collection is not compacted.
    """

    cleanup: Literal["compact", "delete"] | None
    compaction_lag_ms: int | None
    tombstone_ms: int | None


def options_on_wire(options: CleanupOptions) -> CleanupOptions:
    """All of them, if the wire can carry them; the server checks the rest. Raises BadTarget."""
    for name in ("compaction_lag_ms", "tombstone_ms"):
        value = options.get(name)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise BadTarget(f"{name} is {value}, which takes more than 64 bits")
    return CleanupOptions(
        **limits_on_wire(options),
        cleanup=options.get("cleanup"),
        compaction_lag_ms=options.get("compaction_lag_ms"),
        tombstone_ms=options.get("tombstone_ms"),
    )


def cleanup_differences(found: Collection, options: CleanupOptions) -> list[str]:
    """How a collection differs from what was named."""
    differences = limit_differences(found, options)
    has, asked = found.compaction, options.get("cleanup")
    cleanup = "delete" if has is None else "compact"
    if asked is not None and asked != cleanup:
        differences.append(f"its cleanup is {cleanup!r}, not {asked!r}")
    if has is not None:
        times = ("compaction_lag_ms", has.lag_ms), ("tombstone_ms", has.tombstone_ms)
        differences += [
            f"its {name} is {value}, not {options[name]}"  # type: ignore[literal-required]
            for name, value in times
            if options.get(name) not in (None, value)
        ]
    return differences


def compaction_from(found: v1.Compaction | None) -> Compaction | None:
    """The compaction on the wire; None: it has none."""
    return None if found is None else Compaction(found.lag_ms, found.tombstone_ms)
