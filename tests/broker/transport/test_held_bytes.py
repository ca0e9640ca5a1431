"""How much open calls may hold."""

from broker.transport.held_bytes import (
    HELD_BYTES_MAX,
    LONG_BYTES,
    UNFINISHED_BYTES_MAX,
    UNFINISHED_BYTES_MIN,
    HeldHeaders,
    UnfinishedMessages,
)


def test_short_headers_are_not_counted() -> None:
    held = HeldHeaders(range(100_000))
    assert all(held.add(number, LONG_BYTES - 1) for number in range(20_000))


def test_long_headers_of_open_calls_are_bounded() -> None:
    held = HeldHeaders(range(100_000))
    size = HELD_BYTES_MAX // 100
    assert [held.add(number, size) for number in range(101)] == [True] * 100 + [False]


def test_calls_that_have_ended_hold_nothing() -> None:
    open_calls: set[int] = set()
    held = HeldHeaders(open_calls)
    for number in range(5_000):
        open_calls.add(number)
        assert held.add(number, HELD_BYTES_MAX // 2)
        open_calls.clear()


def test_messages_that_have_begun_are_bounded_together_until_they_end() -> None:
    unfinished = UnfinishedMessages()
    part = UNFINISHED_BYTES_MAX // 4
    first = [unfinished.begin(part) for _ in range(5)]
    assert first == [part] * 4 + [None]
    unfinished.end(part)
    assert unfinished.begin(part) == part
    assert unfinished.begin(UNFINISHED_BYTES_MIN) is None


def test_small_unfinished_messages_are_not_counted() -> None:
    unfinished = UnfinishedMessages()
    assert unfinished.begin(UNFINISHED_BYTES_MAX) == UNFINISHED_BYTES_MAX
    assert unfinished.begin(UNFINISHED_BYTES_MIN - 1) == 0
