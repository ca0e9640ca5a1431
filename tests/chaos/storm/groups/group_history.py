"""What members of groups took and acknowledged, and what they were told: values only.

A message is known by its id: a payload of a broadcast may lie in a log twice.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.chaos.storm.ddl_history import Told

ORDERED = "ordered"
"""The group that is ordered by key."""


class OnVChannel(NamedTuple):
    """A group on one vchannel."""

    group: str
    vchannel: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A member got messages, as payloads by id. `joined_s`: when it began to join.

    `keys`: of those that have one.
    """

    at: OnVChannel
    member: str
    joined_s: float
    taken_s: float
    messages: dict[int, bytes]
    keys: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acked:
    """A member asked to have messages acknowledged."""

    at: OnVChannel
    member: str
    began_s: float
    ended_s: float
    told: Told
    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Reset:
    """Somebody had the group begin anew: sought to its first message, or dropped."""

    at: OnVChannel
    how: str
    began_s: float
    ended_s: float
    told: Told


@dataclass(slots=True)
class GroupHistory:
    """`drained`: groups that acknowledged, behind all faults, whatever was left."""

    taken: list[Taken] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    drained: list[OnVChannel] = field(default_factory=list)

    def of(self, at: OnVChannel) -> "GroupHistory":
        """The part of one group on one vchannel."""
        return GroupHistory(
            [it for it in self.taken if it.at == at],
            [it for it in self.acked if it.at == at],
            [it for it in self.resets if it.at == at],
            [it for it in self.drained if it == at],
        )

    def only(self, vchannel: str, ids: Collection[int]) -> "GroupHistory":
        """The part that these messages have there."""
        taken = [
            replace(it, messages={id: it.messages[id] for id in ids if id in it.messages})
            for it in self.taken
            if it.at.vchannel == vchannel
        ]
        acked = [
            replace(it, ids=it.ids & frozenset(ids))
            for it in self.acked
            if it.at.vchannel == vchannel
        ]
        return GroupHistory(
            [it for it in taken if it.messages],
            [it for it in acked if it.ids],
            [it for it in self.resets if it.at.vchannel == vchannel],
            [it for it in self.drained if it.vchannel == vchannel],
        )

    def lines(self) -> Iterator[str]:
        """One for each thing that happened, in the order of time."""
        told = [(it.taken_s, f"{it.at} {it.member} took {it.messages}") for it in self.taken]
        told += [
            (it.began_s, f"{it.at} {it.member} acknowledged {sorted(it.ids)}: {it.told.value}")
            for it in self.acked
        ]
        told += [(it.began_s, f"{it.at} {it.how}: {it.told.value}") for it in self.resets]
        for at_s, text in sorted(told):
            yield f"{at_s:9.3f} {text}"
