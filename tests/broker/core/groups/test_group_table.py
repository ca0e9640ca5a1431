"""The fold of changes: the same from the whole log, and from any snapshot on."""

import random

import pytest

from broker.core.groups.group_changes import (
    GroupAltered,
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
    MessagesAcked,
    MessagesDying,
    MessagesTried,
)
from broker.core.groups.group_table import GroupTable
from broker.model.groups.consumer_group import DeliveryLimit, GroupKey, TickSpan
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import GROUP_CHANGE
from broker.model.record import Record
from tests.broker.core.groups.made_changes import V, random_changes, record_of


class Naive:
    """A group as a set of acknowledged ticks, up to some last tick, and what is known of others."""

    def __init__(self, floor: int) -> None:
        self.acked = set(range(1, floor + 1))
        self.tried: dict[int, int] = {}
        self.dying: set[int] = set()

    def left(self, spans: tuple[TickSpan, ...]) -> set[int]:
        ticks = {tick for it in spans for tick in range(it.after + 1, it.upto + 1)}
        return ticks - self.acked - self.dying

    def ack(self, spans: tuple[TickSpan, ...]) -> None:
        for it in spans:
            self.acked |= set(range(it.after + 1, it.upto + 1))
        self.dying -= self.acked
        self.tried = {tick: n for tick, n in self.tried.items() if tick not in self.acked}

    def die(self, spans: tuple[TickSpan, ...]) -> None:
        self.dying |= self.left(spans)
        self.tried = {tick: n for tick, n in self.tried.items() if tick not in self.dying}


def naive_fold(changes: list[tuple[str, GroupChange, TimeTick]]) -> dict[GroupKey, Naive]:
    groups: dict[GroupKey, Naive] = {}
    for vchannel, change, tick in changes:
        key = GroupKey(vchannel, change.name)
        match change:
            case GroupCreated(_, _, floor, _):
                groups[key] = Naive(tick if floor is None else floor)
            case GroupDropped():
                groups.pop(key, None)
            case GroupSought(_, floor) if key in groups:
                groups[key] = Naive(tick if floor is None else floor)
            case MessagesAcked(_, spans) if key in groups:
                groups[key].ack(spans)
            case MessagesTried(_, spans, times) if key in groups:
                groups[key].tried |= dict.fromkeys(groups[key].left(spans), times)
            case GroupAltered(_, _, DeliveryLimit(most)) if key in groups:
                tried = groups[key].tried
                groups[key].tried = {tick: min(times, most - 1) for tick, times in tried.items()}
            case MessagesDying(_, spans, _, _) if key in groups:
                groups[key].die(spans)
    return groups


Shown = tuple[set[int], dict[int, int], set[int]]


def ticks_of(spans: tuple[TickSpan, ...]) -> set[int]:
    return {tick for it in spans for tick in range(it.after + 1, it.upto + 1)}


def shown(table: GroupTable) -> dict[GroupKey, Shown]:
    found = {}
    for snapshot in table.snapshots():
        tried = {tick: it.times for it in snapshot.tried for tick in ticks_of(it.spans)}
        dying = {tick for it in snapshot.dying for tick in ticks_of(it.spans)}
        acked = set(range(1, snapshot.floor + 1))
        for it in snapshot.acked:
            assert it.after > snapshot.floor, "what touches the floor belongs to it"
            acked |= set(range(it.after + 1, it.upto + 1))
        assert not (acked & tried.keys()) | (acked & dying) | (dying & tried.keys())
        found[snapshot.key] = acked, tried, dying
    return found


@pytest.mark.parametrize("seed", range(200))
def test_from_any_snapshot_also_a_newer_one_the_fold_is_that_of_the_whole_log(seed: int) -> None:
    rng = random.Random(seed)
    changes = random_changes(rng, 40)
    naive = naive_fold(changes)
    expected = {key: (it.acked, it.tried, it.dying) for key, it in naive.items()}
    whole = GroupTable()
    for each in changes:
        whole.apply(*each)
    assert shown(whole) == expected
    # Objects of a snapshot may be newer than where the replay begins.
    saved, begin = rng.randrange(40), rng.randrange(40)
    first = GroupTable()
    for each in changes[: max(saved, begin)]:
        assert first.observe(record_of(*each)) == []
    again = GroupTable(first.snapshots())
    for each in changes[min(saved, begin) :]:
        assert again.observe(record_of(*each)) == []
    assert shown(again) == expected


@pytest.mark.parametrize("seed", range(50))
def test_changes_saved_one_after_the_other_make_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    table, stored = GroupTable(), dict[GroupKey, object]()
    for each in random_changes(rng, 40):
        table.apply(*each)
        if rng.random() < 0.3:
            stored |= {it.key: it for it in table.changes()}
            for key in table.gone:
                stored.pop(key, None)
            table.clear_changes()
    stored |= {it.key: it for it in table.changes()}
    for key in table.gone:
        stored.pop(key, None)
    assert stored == {it.key: it for it in table.snapshots()}


def test_what_cannot_be_read_is_reported_and_changes_nothing() -> None:
    table = GroupTable()
    body = b'{"group":"g","change":"paused"}'
    record = Record(
        Term(1), MessageId(9), TimeTick(9), MessageId(9), GROUP_CHANGE, V, (len(body),), body
    )
    (wrong,) = table.observe(record)
    assert wrong.startswith("message 9: ")
    assert table.snapshots() == ()


@pytest.mark.parametrize("seed", range(50))
def test_acknowledgements_may_become_known_in_another_order_than_they_lie_in_the_log(
    seed: int,
) -> None:
    rng = random.Random(seed)
    changes = random_changes(rng, 40)
    live, waiting = GroupTable(), list[tuple[str, GroupChange, TimeTick]]()
    for each in changes:
        if isinstance(each[1], MessagesAcked):
            waiting.append(each)
            rng.shuffle(waiting)
        else:
            live.apply(*each)
        while waiting and rng.random() < 0.5:
            live.apply(*waiting.pop())
    for each in waiting:
        live.apply(*each)
    replayed = GroupTable()
    for each in changes:
        replayed.observe(record_of(*each))
    assert shown(live) == shown(replayed)
