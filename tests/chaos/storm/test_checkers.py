"""Each checker finds what is planted, and nothing in a history that is as it should be."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.client import ResourceKey
from broker.model.master.table_change import RemoveAlias
from tests.chaos.storm.ddl_history import Change, Request, Told
from tests.chaos.storm.groups.planted_groups import PLANTED_GROUPS, good_groups
from tests.chaos.storm.history import (
    Call,
    CutTaken,
    History,
    Operation,
    Outcome,
    Owned,
    Place,
    Reading,
    Seen,
)
from tests.chaos.storm.judge import CHECKERS, judge, shortest, told
from tests.chaos.storm.planted_definitions import PLANTED_DEFINITIONS, good_definitions
from tests.chaos.storm.planted_segments import PLANTED_SEGMENTS, count_rows
from tests.chaos.storm.purging.planted_purges import PLANTED_PURGES, good_purges

ONE, OTHER = "p_0_7v0", "p_1_7v1"
KEYS = (ResourceKey.collection("c"),)
ACKNOWLEDGED, ABSENT = Outcome.ACKNOWLEDGED, Outcome.ABSENT


def good() -> History:
    """Two vchannels; two appends, a transaction, two broadcasts in conflict, a refused append."""
    history = History()
    history.final = {
        ONE: [
            Seen(b"a", 1, 10, 1),
            Seen(b"t0", 3, 20, 1),
            Seen(b"t1", 4, 20, 2),
            Seen(b"x", 6, 30, 2),
            Seen(b"y", 7, 40, 2),
            Seen(b"b", 8, 50, 2),
        ],
        OTHER: [Seen(b"x", 1, 31), Seen(b"y", 2, 41), Seen(b"r0", 3, 51), Seen(b"r1", 4, 52)],
    }
    txn = (Place(ONE, 3, 20), Place(ONE, 4, 20))
    xs, ys = (Place(ONE, 6, 30), Place(OTHER, 1, 31)), (Place(ONE, 7, 40), Place(OTHER, 2, 41))
    both, rows = (ONE, OTHER), (Place(OTHER, 3, 51), Place(OTHER, 4, 52))
    history.operations = [
        Operation("append", 0.0, 1.0, ACKNOWLEDGED, (ONE,), (b"a",), (Place(ONE, 1, 10),)),
        Operation(
            "txn", 1.5, 3.0, ACKNOWLEDGED, (ONE,), (b"t0", b"t1"), txn, end=Place(ONE, 5, 20)
        ),
        Operation("broadcast", 3.0, 5.0, ACKNOWLEDGED, both, (b"x",), xs, KEYS),
        Operation("broadcast", 6.0, 7.0, ACKNOWLEDGED, both, (b"y",), ys, KEYS),
        Operation("append", 6.0, 7.0, ABSENT, (ONE,), (b"refused",)),
        Operation("append", 8.0, 9.0, ACKNOWLEDGED, (ONE,), (b"b",), (Place(ONE, 8, 50),)),
        Operation("rows", 8.0, 9.0, ACKNOWLEDGED, (OTHER,), (b"r0", b"r1"), rows),
    ]
    history.readings = [
        Reading("all", ONE, 0, 0.0, list(history.final[ONE]), [(1, 15), (6, 60)], to_the_end=True),
        Reading("cut", ONE, 20, 4.0, history.final[ONE][3:], to_the_end=True),
        Reading("latest", ONE, None, 7.5, history.final[ONE][5:], to_the_end=True),
        Reading("left early", ONE, 0, 0.0, history.final[ONE][:3]),
        Reading(
            "until",
            ONE,
            0,
            0.0,
            bare(history.final[ONE][:4]),
            to_the_end=True,
            until_tick=30,
            bare=True,
        ),
        Reading("rows", OTHER, 0, 0.0, bare(history.final[OTHER][2:]), only="rows", bare=True),
    ]
    history.cuts = [CutTaken(7.2, 7.5, (ONE,), 45)]
    history.calls = [Call("append", 0.0, 5.0, 1.0)]
    history.owned = [Owned("p_0", 1, 1), Owned("p_0", 2, 3)]
    history.ddl = good_definitions()
    count_rows(history, OTHER)
    history.groups = good_groups(history, ONE)
    history.purges = good_purges()
    return history


def bare(seen: list[Seen]) -> list[Seen]:
    """As a reader of batches gets them, without terms."""
    return [it._replace(term=0) for it in seen]


def lose(history: History) -> None:
    del history.final[ONE][0]


def move(history: History) -> None:
    history.final[ONE][0] = Seen(b"a", 2, 10, 1)


def repeat(history: History) -> None:
    history.readings[0].seen.append(Seen(b"a", 9, 60, 2))


def show_refused(history: History) -> None:
    history.final[ONE].append(Seen(b"refused", 9, 60, 2))


def show_unasked(history: History) -> None:
    history.final[OTHER].append(Seen(b"a", 9, 60, 2))


def tear(history: History) -> None:
    history.readings[3].seen.pop()


def tear_ticks(history: History) -> None:
    history.final[ONE][2] = Seen(b"t1", 4, 21, 2)


def skip(history: History) -> None:
    del history.readings[1].seen[0]


def skip_first(history: History) -> None:
    history.readings[2].seen.clear()


def come_short(history: History) -> None:
    history.readings[0].seen.pop()


def break_off(history: History) -> None:
    history.readings[0].error = "ended"


def reopen(history: History) -> None:
    history.readings[0].closed[0] = (1, 20)


def leave_out(history: History) -> None:
    history.cuts[0] = replace(history.cuts[0], tick=15)


def let_in(history: History) -> None:
    history.cuts[0] = replace(history.cuts[0], tick=55)


def hang(history: History) -> None:
    history.calls[0] = replace(history.calls[0], ended_s=None)


def be_late(history: History) -> None:
    history.calls[0] = replace(history.calls[0], ended_s=11.0)


def swap(history: History) -> None:
    seen = history.readings[0].seen
    seen[3:5] = reversed(seen[3:5])


def share_tick(history: History) -> None:
    history.final[ONE][4] = Seen(b"y", 7, 30, 2)


def share_id(history: History) -> None:
    history.final[ONE][4] = Seen(b"y", 6, 40, 2)


def let_a_term_fall(history: History) -> None:
    history.final[ONE][4] = Seen(b"y", 7, 40, 1)


def let_two_own(history: History) -> None:
    history.owned.append(Owned("p_0", 2, 1))


def let_the_owner_fall(history: History) -> None:
    history.owned.append(Owned("p_0", 1, 1))


def go_too_far(history: History) -> None:
    history.readings[4].seen.append(Seen(b"y", 7, 40, 0))


def skip_a_row(history: History) -> None:
    history.readings[5].seen.pop(0)


def give_a_tick_twice(history: History) -> None:
    history.final[OTHER][1] = Seen(b"y", 2, 40)


def let_a_tick_fall(history: History) -> None:
    history.final[ONE][3:5] = [Seen(b"x", 6, 42, 2), Seen(b"y", 7, 40, 2)]


def commit_half(history: History) -> None:
    for name, payload in ((ONE, b"s0"), (OTHER, b"s1")):
        history.operations.append(
            Operation("staged", 8.0, 9.0, Outcome.UNKNOWN, (name,), (payload,), batch="a batch")
        )
    history.final[OTHER].append(Seen(b"s1", 5, 61))


def be_earlier(history: History) -> None:
    history.operations[0] = replace(history.operations[0], began_s=3.1, ended_s=3.2)


def come_to_one(history: History) -> None:
    del history.final[OTHER][0]


def disagree(history: History) -> None:
    history.final[OTHER][:2] = [Seen(b"y", 1, 31), Seen(b"x", 2, 41)]


def agree_against_time(history: History) -> None:
    history.operations[2] = replace(history.operations[2], began_s=7.1, ended_s=7.2)


PLANTED: list[tuple[Callable[[History], None], str]] = [
    (lose, "lost"),
    (move, "moved"),
    (repeat, "twice"),
    (show_refused, "not absent"),
    (show_unasked, "unasked"),
    (tear, "not whole"),
    (tear_ticks, "not whole"),
    (skip, "reader differs"),
    (skip_first, "reader differs"),
    (come_short, "reader differs"),
    (break_off, "reader ended"),
    (reopen, "tick reopened"),
    (leave_out, "cut"),
    (let_in, "cut"),
    (hang, "late"),
    (be_late, "late"),
    (swap, "order"),
    (share_tick, "order"),
    (share_id, "id or term"),
    (let_a_term_fall, "id or term"),
    (let_two_own, "two owners"),
    (let_the_owner_fall, "term fell"),
    (be_earlier, "order in time"),
    (come_to_one, "not everywhere"),
    (go_too_far, "reader differs"),
    (skip_a_row, "reader differs"),
    (give_a_tick_twice, "tick twice"),
    (let_a_tick_fall, "tick fell"),
    (commit_half, "half a batch"),
    (disagree, "broadcast order"),
    (agree_against_time, "broadcast order"),
    *PLANTED_DEFINITIONS,
    *PLANTED_SEGMENTS,
    *PLANTED_GROUPS,
    *PLANTED_PURGES,
]


def test_a_history_as_it_should_be_has_no_violation() -> None:
    assert judge(good()) == []


def test_a_reader_from_the_middle_may_see_the_second_copy_of_a_broadcast() -> None:
    history = good()
    history.readings[2].seen.insert(0, Seen(b"x", 7, 45, 2))
    history.readings[1].after_tick = 35
    history.readings[1].seen[0] = Seen(b"x", 7, 39, 2)
    assert judge(history) == []


def test_an_alias_may_be_dropped_beside_its_collection() -> None:
    history = good()
    drop = Change(9, 155, RemoveAlias("", "fleet"), ())
    history.ddl.control.insert(5, drop)
    history.ddl.requests.append(Request(drop.about, 39.0, 49.0, Told.DONE, 0, 155))
    assert judge(history) == []
    again = Change(10, 156, RemoveAlias("", "fleet"), ())
    history.ddl.control.insert(6, again)
    history.ddl.requests.append(Request(again.about, 39.0, 49.0, Told.DONE, 0, 156))
    assert {it.kind for it in judge(history)} == {"definition invalid"}


def test_what_a_dropped_collection_had_may_be_given_back() -> None:
    history = good()
    history.ddl.copies["p_1_100v0"] = [2, 5]
    assert judge(history) == []


def test_a_reader_from_the_first_message_on_may_not_see_another_copy() -> None:
    history = good()
    history.readings[0].seen[3] = Seen(b"x", 7, 35, 2)
    assert "reader differs" in {it.kind for it in judge(history)}


def resumed(*then: Seen) -> History:
    """A reader died behind tick 30, where the copy of `x` was, and got these from there on."""
    history = good()
    reading = Reading("packs", ONE, 0, 0.0, bare(history.final[ONE][:4]), bare=True)
    following = reading.continued(30)
    following.seen, following.to_the_end = bare([*then]), True
    history.readings += [reading, following]
    return history


def test_a_reader_that_resumes_behind_a_copy_of_a_broadcast_may_see_the_second() -> None:
    y, b = good().final[ONE][4:]
    x = Seen(b"x", 7, 45, 2)
    assert judge(resumed(y, b)) == []
    assert judge(resumed(y, x, b)) == []
    again = Seen(b"x", 9, 60, 2)
    assert {it.kind for it in judge(resumed(y, x, b, again))} == {"twice"}


def test_a_reader_that_resumes_neither_repeats_nor_skips() -> None:
    txn, y, b = good().final[ONE][2], *good().final[ONE][4:]
    assert {it.kind for it in judge(resumed(b))} == {"reader differs"}
    assert "reader differs" in {it.kind for it in judge(resumed(txn, y, b))}
    short = resumed(y, b)
    del short.readings[-2].seen[-1]
    assert {it.kind for it in judge(short)} == {"reader differs"}


def test_each_checker_finds_something_that_is_planted() -> None:
    """Who never finds anything judges nothing: a new checker needs a history that it refuses."""
    found = set[str]()
    for plant, _ in PLANTED:
        history = good()
        plant(history)
        found |= {it.checker for it in judge(history)}
    assert found == {checker.__name__ for checker in CHECKERS}


def test_broadcasts_that_only_three_vchannels_together_contradict_are_found() -> None:
    names = ("p_0_1v0", "p_1_1v1", "p_2_1v2")
    history = History()
    for at, pair in enumerate([(b"1", b"2"), (b"2", b"3"), (b"3", b"1")]):
        history.final[names[at]] = [Seen(it, n + 1, 10 * at + n + 1) for n, it in enumerate(pair)]
    for payload in (b"1", b"2", b"3"):
        there = [name for name in names if payload in {it.payload for it in history.final[name]}]
        places = tuple(Place(it, 0, 0) for it in there)
        history.operations.append(
            Operation("broadcast", 1.0, 9.0, ACKNOWLEDGED, tuple(there), (payload,), places, KEYS)
        )
    (found,) = judge(history)
    assert (found.kind, {*found.payloads}) == ("broadcast order", {b"1", b"2", b"3"})


def test_shared_keys_put_nobody_in_order() -> None:
    history = good()
    disagree(history)
    shared = (ResourceKey.collection("c", shared=True),)
    for at in (2, 3):
        history.operations[at] = replace(history.operations[at], keys=shared)
    history.readings = []
    assert judge(history) == []


@pytest.mark.parametrize(("plant", "kind"), PLANTED)
def test_what_is_planted_is_found_and_the_shortest_history_still_shows_it(
    plant: Callable[[History], None], kind: str
) -> None:
    history = good()
    plant(history)
    found = next(it for it in judge(history) if it.kind == kind)
    small = shortest(history, found)
    assert kind in {it.kind for it in judge(small)}
    assert len(small.operations) <= 2
    assert told(small)
