"""The rule by which entries count, against every order in which owners' entries can arrive.

What an owner decides depends on the entries before its own alone, which never change. So the order
of arrival is all there is: an answer that is late, or never read, changes nothing but what is
acknowledged. A retry may make any entry arrive a second time, whenever it likes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from broker.wal.kafka.entries import NOWHERE, EntryHead, EntryKind
from broker.wal.kafka.fence import counts, newer_term

Log = tuple[EntryHead, ...]
Newer = Callable[[int, Sequence[EntryHead]], int]


@dataclass(frozen=True, slots=True)
class Owner:
    """One that believes in a term: what it will send next, and what it knows."""

    term: int
    groups: int
    kind: EntryKind | None = EntryKind.CLAIM
    position: int = NOWHERE
    next_id: int = 1
    sent: int = 0
    acknowledged: tuple[int, ...] = ()
    found: tuple[int, ...] | None = None

    def entry(self) -> EntryHead:
        assert self.kind is not None
        ids = (self.next_id, self.next_id + (self.kind is EntryKind.GROUP))
        return EntryHead(self.kind, self.term, self.position, NOWHERE, *ids)

    def answered(self, log: Log, newer: Newer) -> "Owner":
        """After its entry arrived as the last one of the log."""
        at = len(log) - 1
        if self.kind is EntryKind.CLAIM:
            before = numbers(log[:at])
            terms = max((it.term for it in log[:at]), default=0)
            if terms >= self.term:
                return replace(self, kind=None)
            next_id = before[-1] + 1 if before else 1
            return replace(
                self, kind=EntryKind.STATE, position=at, next_id=next_id, found=tuple(before)
            )
        if newer(self.term, log[self.position + 1 : at]):
            return replace(self, kind=None)
        if self.kind is EntryKind.STATE:
            kind = EntryKind.GROUP if self.groups else None
            return replace(self, kind=kind, position=at)
        sent, told = self.sent + 1, (*self.acknowledged, self.next_id)
        kind = EntryKind.GROUP if sent < self.groups else None
        return replace(
            self, kind=kind, position=at, next_id=self.next_id + 1, sent=sent, acknowledged=told
        )


def is_counted(log: Log, at: int, low: int = 0) -> bool:
    return counts(log[at], log[max(log[at].prev + 1, low) : at])


def numbers(log: Log, low: int = 0) -> list[int]:
    """The ids of the groups that count, in the order of the log."""
    found = (it.base_id for at, it in enumerate(log) if at >= low and it.kind is EntryKind.GROUP and
             is_counted(log, at, low))  # fmt: skip
    return list(found)


def by_all(log: Log) -> list[int]:
    """The same by reading all of the log: a group counts under the newest claim before it."""
    term, found, seen = 0, list[int](), set[tuple[int, int]]()
    for head in log:
        if head.kind is EntryKind.CLAIM:
            term = max(term, head.term)
        elif (
            head.kind is EntryKind.GROUP and head.term == term and (term, head.base_id) not in seen
        ):
            seen.add((term, head.base_id))
            found.append(head.base_id)
    return found


@dataclass(slots=True)
class Explored:
    """Every order of arrival, depth first."""

    newer: Newer = newer_term
    lost: int = 0
    delivered: int = 0
    logs: set[Log] = field(default_factory=set)

    def explore(self, owners: tuple[Owner, ...], log: Log, copies: int) -> None:
        # Also where all owners die before they go on.
        if log not in self.logs:
            self.logs.add(log)
            self.check(owners, log)
        for at, owner in enumerate(owners):
            if owner.kind is not None:
                grown = (*log, owner.entry())
                after = owner.answered(grown, self.newer)
                self.explore((*owners[:at], after, *owners[at + 1 :]), grown, copies)
        if copies:
            for again in set(log):
                self.explore(owners, (*log, again), copies - 1)

    def check(self, owners: Sequence[Owner], log: Log) -> None:
        held = numbers(log)
        told = [it for owner in owners for it in owner.acknowledged]
        found = next((it.found for it in reversed(owners) if it.found is not None), ())
        self.lost += len(told) != len([it for it in told if it in held]) or len(set(told)) != len(
            told
        )
        self.delivered += held[: len(found)] != list(found) or held != list(range(1, len(held) + 1))
        if self.newer is newer_term:
            assert held == by_all(log)
            for low in truncations(log):
                assert numbers(log, low) == [
                    it.base_id
                    for at, it in enumerate(log)
                    if at >= low and it.kind is EntryKind.GROUP and is_counted(log, at)
                ]


def truncations(log: Log) -> Iterator[int]:
    """Where truncation may cut: a state that counts stays as the first entry."""
    for at, head in enumerate(log):
        if head.kind is EntryKind.STATE and is_counted(log, at):
            yield at


@pytest.mark.parametrize(
    ("groups", "copies", "logs"),
    [
        ((3, 3), 0, 111),
        ((2, 2, 2), 0, 1_605),
        ((2, 2), 1, 1_125),
        ((1, 1), 2, 3_203),
        ((1, 1, 1), 1, 12_097),
    ],
)
def test_in_no_order_of_arrival_is_a_group_lost_or_one_of_a_fenced_owner_read(
    groups: tuple[int, ...], copies: int, logs: int
) -> None:
    owners = tuple(Owner(term, number) for term, number in enumerate(groups, 1))
    explored = Explored()
    explored.explore(owners, (), copies)
    assert (explored.lost, explored.delivered) == (0, 0)
    assert len(explored.logs) == logs, "every one"


def test_an_owner_that_does_not_look_into_gaps_loses_groups_in_many_orders() -> None:
    explored = Explored(newer=lambda _term, _between: 0)
    explored.explore((Owner(1, 3), Owner(2, 3)), (), 0)
    assert explored.lost > len(explored.logs) // 4


def test_a_claim_never_counts_and_an_equal_one_stands_in_no_way() -> None:
    claim, group = EntryHead(EntryKind.CLAIM, 2, NOWHERE), EntryHead(EntryKind.GROUP, 2, 0)
    assert not counts(claim, ())
    assert counts(group, (claim,))
    assert not counts(group, (claim._replace(term=3),))
    assert not counts(group, (group,))
    assert not counts(group, (group._replace(prev=1),)), "a late copy"
    assert counts(group._replace(prev=1), (group,)), "behind the copy of an earlier one"
    assert not counts(group, (group._replace(kind=EntryKind.STATE, term=3),))
    assert counts(group, (group._replace(term=1),))


def test_the_newest_of_all_newer_terms_is_told() -> None:
    heads = [EntryHead(EntryKind.CLAIM, it, NOWHERE) for it in (3, 7, 1)]
    assert newer_term(2, heads) == 7
    assert newer_term(7, heads) == 0
