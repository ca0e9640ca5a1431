"""What collections store, and which of them may store no more.

Each node counts the vchannels that it serves, and tells the others what has changed by a share of
the limit; so all know the whole collection. Figures lag behind appends, so a collection may exceed
its limit by what is appended in a second or two, and by a 64th.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.core.pressure.limit_rules import LimitRules
from broker.model.failure import StreamingCode, Throttled

RETRY_MS: Final = 1000
"""Figures are summed so often."""
NEARLY: Final = 0.9
"""From this share of the limit on the health says so."""
GRAINS: Final = 64
WARNINGS_MAX: Final = 20
TO_DO: Final = "purge it, give it a retention, or raise `storage` in the setting limits"


@dataclass(frozen=True, slots=True)
class StorageUse:
    """Of one collection. `limit`: how many bytes it may store; above 0."""

    collection: str
    limit: int
    bytes: Mapping[str, int]
    """By vchannel."""

    @property
    def total(self) -> int:
        return sum(self.bytes.values())

    @property
    def is_over(self) -> bool:
        """Whether it may store no more."""
        return self.total >= self.limit

    def warning(self) -> str:
        """What an operator should know; "": nothing."""
        found = f"collection {self.collection!r} has {self.total} bytes stored"
        if self.is_over:
            return (
                f"{found}, and its limit of storage is {self.limit}: appends are refused, reads go"
                f" on; {TO_DO}"
            )
        if self.total >= NEARLY * self.limit:
            return f"{found}, and its limit of storage is {self.limit}; {TO_DO}"
        return ""


@dataclass(frozen=True, slots=True)
class StorageUses:
    """Of all collections with a limit, the fullest first."""

    uses: Sequence[StorageUse] = ()
    refusals: Mapping[str, Throttled] = field(default_factory=dict)
    """By vchannel, for those of collections that may store no more."""

    def warnings(self) -> list[str]:
        """Of the fullest collections, which are near their limit or beyond it."""
        return [text for it in self.uses[:WARNINGS_MAX] if (text := it.warning())]


class StorageBook:
    """One per node. `now`: what was found at the last look."""

    def __init__(self) -> None:
        self.now = StorageUses()

    def refusal(self, vchannel: str) -> Throttled | None:
        """Why a vchannel takes no rows; None: it does."""
        return self.now.refusals.get(vchannel)


Named = Mapping[tuple[str, str], Sequence[str]]
"""The vchannels of collections, by their database, "" for the default one, and their name."""


@dataclass(frozen=True, slots=True)
class LimitedCollection:
    """A collection with a limit of storage."""

    collection: str
    limit: int
    vchannels: Sequence[str]

    def use(self, sizes: Mapping[str, int]) -> StorageUse:
        """What it stores, by the size of each vchannel."""
        found = {it: sizes.get(it, 0) for it in self.vchannels}
        return StorageUse(self.collection, self.limit, found)


def limited_collections(rules: LimitRules, named: Named) -> list[LimitedCollection]:
    """Those with a limit; a name stands for one in each database."""
    return [
        LimitedCollection(f"{database}/{name}" if database else name, limit, its)
        for (database, name), its in named.items()
        if its and (limit := rules.storage_of(name))
    ]


def uses_of(found: Iterable[StorageUse]) -> StorageUses:
    """All of them, with what they refuse."""
    uses = sorted(found, key=lambda it: it.total / it.limit, reverse=True)
    refusals: dict[str, Throttled] = {}
    for it in uses:
        if it.is_over:
            refused = storage_refusal(it.collection, it.total, it.limit)
            refusals |= dict.fromkeys(it.bytes, refused)
    return StorageUses(uses, refusals)


def storage_refusal(collection: str, total: int, limit: int) -> Throttled:
    """Why an append to a collection that has reached its limit is refused."""
    cause = (
        f"collection {collection!r} has {total} bytes stored, and its limit of storage is {limit};"
        f" nothing was stored: {TO_DO}"
    )
    return Throttled(StreamingCode.RATE_LIMIT_REJECTED, cause, RETRY_MS)


def worth_telling(
    use: StorageUse, told: Mapping[str, int], own: Iterable[str], *, everything: bool
) -> dict[str, int]:
    """Which figures of one's own vchannels others should know.

    What has changed by so much that the errors of all vchannels together stay below a 64th of the
    limit; or by anything, with `everything`, and when others would think otherwise of whether the
    collection is over its limit.
    """
    as_told = sum([told.get(it, 0) for it in use.bytes])
    whole = everything or (as_told >= use.limit) is not use.is_over
    least = 1 if whole else max(1, use.limit // (GRAINS * len(use.bytes)))
    return {it: use.bytes[it] for it in own if abs(use.bytes[it] - told.get(it, 0)) >= least}
