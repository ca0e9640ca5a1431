"""Who holds back the retention of the collections of one pchannel, and who was passed by it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from broker.model.retention.holders import Holding, Passed

PASSED_MAX = 64
"""Named for each pchannel: those that were passed last, since it was opened here."""


@dataclass(slots=True)
class CollectionHolders:
    """`held`: by vchannel, at the last look. `passed`: by vchannel and name."""

    held: dict[str, Sequence[Holding]] = field(default_factory=dict)
    passed: dict[tuple[str, str, str], Passed] = field(default_factory=dict)

    def note(self, vchannel: str, holders: Sequence[Holding]) -> None:
        """Who holds this vchannel now."""
        if holders:
            self.held[vchannel] = tuple(holders)
        else:
            self.held.pop(vchannel, None)

    def pass_over(self, vchannel: str, lost: Sequence[Passed]) -> None:
        """These lose messages of the vchannel."""
        for it in lost:
            key = (vchannel, str(it.kind), it.name)
            self.passed.pop(key, None)  # anew, behind the others
            self.passed[key] = it
        for key in list(self.passed)[:-PASSED_MAX]:
            del self.passed[key]

    def forget(self, vchannel: str) -> None:
        """Its collection has no retention any more."""
        self.held.pop(vchannel, None)

    def warnings(self) -> Iterator[str]:
        """What an operator should know."""
        for vchannel, holders in self.held.items():
            most = max(holders, key=lambda it: it.bytes)
            yield (
                f"{most.kind} {most.name!r} holds back the retention of {vchannel}: it keeps"
                f" {most.bytes:,} bytes of the log"
            )
        for (vchannel, kind, name), it in self.passed.items():
            yield (
                f"{kind} {name!r} was passed by the retention of {vchannel}: it held back"
                f" {it.bytes:,} bytes, limit {it.limit:,} ({it.cause}); messages up to tick"
                f" {it.removed_tick} are removed"
            )
