"""Who holds back the retention of the collections of one pchannel."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from broker.model.retention.holders import Holding, Passed


@dataclass(slots=True)
class CollectionHolders:
    """`held`: by vchannel, at the last look. Who was passed is named in the purges of the log."""

    held: dict[str, Sequence[Holding]] = field(default_factory=dict)

    def note(self, vchannel: str, holders: Sequence[Holding]) -> None:
        """Who holds this vchannel now."""
        if holders:
            self.held[vchannel] = tuple(holders)
        else:
            self.held.pop(vchannel, None)

    def forget(self, vchannel: str) -> None:
        """Its collection has no retention any more."""
        self.held.pop(vchannel, None)

    def warnings(self, passed: Iterable[tuple[str, Passed]]) -> Iterator[str]:
        """What an operator should know. `passed`: who was, with the vchannel."""
        for vchannel, holders in self.held.items():
            most = max(holders, key=lambda it: it.bytes)
            yield (
                f"{most.kind} {most.name!r} holds back the retention of {vchannel}: it keeps"
                f" {most.bytes:,} bytes of the log"
            )
        for vchannel, it in passed:
            yield (
                f"{it.kind} {it.name!r} was passed by the retention of {vchannel}: it held back"
                f" {it.bytes:,} bytes, limit {it.limit:,} ({it.cause}); messages up to tick"
                f" {it.removed_tick} are removed"
            )
