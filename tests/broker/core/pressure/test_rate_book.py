"""Rates of many subjects: every limit that concerns a take holds, or nothing is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.pressure import rate_book
from broker.core.pressure.limit_rules import Scope, Subject, parsed_limits
from broker.core.pressure.rate_book import BURST_S, Direction, RateBook
from broker.core.pressure.token_bucket import Exhausted, Taken, TokenBucket

CLICKS, TRAINS = Subject(Scope.COLLECTION, "clicks"), Subject(Scope.COLLECTION, "trains")
ALICE = Subject(Scope.IDENTITY, "alice")
RULES = parsed_limits(
    "collection:clicks in_bytes=64 in_messages=4 out_bytes=32; identity:alice in_bytes=128"
)
WAIT = 2.0
IN, OUT = Direction.IN, Direction.OUT


def test_without_limits_nothing_ever_waits() -> None:
    book = RateBook()
    assert book.take((CLICKS, ALICE), IN, 1 << 60, 1 << 60, 0.0, 0.0) == Taken(0.0)
    assert book.take((CLICKS, ALICE), OUT, 1 << 60, 1 << 60, 0.0, 0.0) == Taken(0.0)
    assert book.bytes_s((CLICKS, ALICE), IN) == 0


def test_a_neighbour_does_not_notice_who_is_over_a_limit() -> None:
    book = RateBook(RULES)
    book.take((CLICKS,), IN, 10_000, 1, 0.0, WAIT)
    assert isinstance(book.take((CLICKS,), IN, 1, 1, 0.0, WAIT), Exhausted)
    assert book.take((TRAINS, ALICE), IN, 100, 1, 0.0, 0.0) == Taken(0.0)
    assert book.take((CLICKS,), OUT, 100, 1, 0.0, 0.0) == Taken(0.0), "reads have their own"


def test_what_one_limit_refuses_counts_against_no_other() -> None:
    book = RateBook(RULES)
    book.take((CLICKS,), IN, 1, 400, 0.0, WAIT)
    assert isinstance(book.take((CLICKS, ALICE), IN, 10_000, 1, 0.0, WAIT), Exhausted)
    assert book.take((ALICE,), IN, 1, 1, 0.0, 0.0) == Taken(0.0)


def test_the_lowest_rate_of_bytes_is_told() -> None:
    book = RateBook(RULES)
    assert book.bytes_s((CLICKS, ALICE), IN) == 64
    assert book.bytes_s((ALICE,), IN) == 128
    assert book.bytes_s((CLICKS,), OUT) == 32


def test_calls_have_a_rate_of_their_own() -> None:
    book = RateBook(parsed_limits("identity:alice calls=2 in_messages=1"))
    taken = [book.take((ALICE,), Direction.CALL, 0, 1, 0.0, WAIT) for _ in range(4)]
    assert taken == [Taken(0.0), Taken(0.0), Taken(0.0), Taken(0.5)]
    assert book.take((ALICE,), Direction.CALL, 0, 1, 0.0, 0.9) == Exhausted(1.0)
    assert book.take((ALICE,), IN, 1, 1, 0.0, 0.0) == Taken(0.0), "appends have their own"


def test_changed_rules_hold_at_once_and_debts_stay() -> None:
    book = RateBook(RULES)
    book.take((CLICKS,), IN, 64 * 3, 1, 0.0, WAIT)
    book.rules = parsed_limits("collection:clicks in_bytes=256")
    assert book.take((CLICKS,), IN, 1, 1, 0.0, WAIT) == Taken(0.5)
    book.rules = parsed_limits("")
    assert book.take((CLICKS,), IN, 1, 1, 0.0, WAIT) == Taken(0.0)


def test_the_buckets_used_the_longest_time_ago_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_book, "BUCKETS_MAX", 2)
    book = RateBook(parsed_limits("collection:* in_bytes=10"))
    names = [Subject(Scope.COLLECTION, it) for it in "abc"]
    for each in names[:2]:
        book.take((each,), IN, 100, 1, 0.0, 100)
    book.take(names[:1], IN, 0, 0, 0.0, 100)
    book.take(names[2:], IN, 0, 0, 0.0, 100)
    assert book.take(names[:1], IN, 1, 1, 0.0, 100) == Taken(9.0)
    assert book.take(names[1:2], IN, 1, 1, 0.0, 100) == Taken(0.0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 16), st.sampled_from([(CLICKS,), (ALICE,), (CLICKS, ALICE), (TRAINS,)]),
            st.integers(0, 300), st.integers(1, 8),
        ),
        max_size=50,
    )
)  # fmt: skip
def test_the_book_answers_as_buckets_side_by_side(
    steps: list[tuple[int, tuple[Subject, ...], int, int]],
) -> None:
    book, now = RateBook(RULES), 0.0
    rates = {(CLICKS, 0): 64, (CLICKS, 1): 4, (ALICE, 0): 128}
    naive = {key: TokenBucket(rate, rate * BURST_S, 0.0) for key, rate in rates.items()}
    for eighths, subjects, size, count in steps:
        now += eighths / 8
        mine = {key: it for key, it in naive.items() if key[0] in subjects}
        waits = [it.wait_s(now) for it in mine.values()]
        taken = book.take(subjects, IN, size, count, now, WAIT)
        if max(waits, default=0.0) > WAIT:
            assert taken == Exhausted(max(waits))
            continue
        assert taken == Taken(max(waits, default=0.0))
        for (_, what), bucket in mine.items():
            bucket.take((size, count)[what], now, WAIT)
