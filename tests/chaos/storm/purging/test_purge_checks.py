"""When a reader may be told that a purge overtook it, in cases that no storm has to wait for."""

import pytest

from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.history import History
from tests.chaos.storm.purging.purge_checks import LANDS_S, purges_agree
from tests.chaos.storm.purging.purge_history import Look, Purged, PurgeHistory, Tried, Written
from tests.chaos.storm.purging.purge_load import purged_upto
from tests.chaos.storm.purging.retention_load import old_enough

V = "p_0_9v0"
LATE_S = LANDS_S + 100.0
WRITTEN = [Written(V, b"1", 10, 1.0), Written(V, b"2", 20, LATE_S), Written(V, b"3", 30, 200.0)]
PURGE = Purged(V, 25, 300.0, 301.0, Told.DONE)
HAS_ALL = Look(V, 299.0, 302.0, {b"1": 10, b"2": 20}, overtaken=25, read_to=20)


def kinds(look: Look, *tried: Tried, purge: Purged = PURGE) -> list[str]:
    history = PurgeHistory(WRITTEN, [purge], [], [look], list(tried), unread={V})
    return [it.kind for it in purges_agree(History(purges=history))]


def test_who_has_all_that_is_purged_is_not_to_be_told() -> None:
    assert kinds(HAS_ALL) == ["purge told to a reader that misses nothing"]
    assert not kinds(HAS_ALL._replace(found={b"1": 10}, read_to=10))


def test_what_may_be_stored_may_be_what_it_misses() -> None:
    assert not kinds(HAS_ALL, Tried(V, 150.0, 160.0))


@pytest.mark.parametrize(
    ("tried", "why"),
    [
        (Tried(V, 201.0, 210.0), "it began behind a message with a larger tick"),
        (Tried(V, 10.0, 20.0), "it was stored long before the newest that was read, or never"),
        (Tried(V, 303.0, 304.0), "the reader was told before"),
    ],
)
def test_what_cannot_lie_there_is_no_reason(tried: Tried, why: str) -> None:
    assert kinds(HAS_ALL, tried), why


def test_a_purge_without_an_answer_may_overtake_whoever_comes_later() -> None:
    late = HAS_ALL._replace(began_s=400.0, ended_s=401.0, found={}, read_to=0)
    assert kinds(late) == ["purge told to a reader behind it"]
    assert not kinds(late, purge=PURGE._replace(told=Told.OPEN))


def test_the_refusal_says_how_far_the_purge_goes() -> None:
    told = f"by-dev: removed by a purge: the messages of {V} up to tick 77 are gone, and message"
    assert purged_upto(told) == 77
    assert purged_upto("message 5 is in transaction 3, whose begin is missing") == 0


def test_what_has_a_tick_ahead_of_the_clock_is_not_old_yet() -> None:
    found = {b"old": 1000 << 18, b"young": 8500 << 18, b"ahead": 9500 << 18}
    assert old_enough(found, 9000) == {b"old": 1000 << 18}
    assert old_enough(found, 10_000) == {b"old": 1000 << 18, b"young": 8500 << 18}
    assert old_enough(found, 10_501) == found
