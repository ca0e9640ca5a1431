"""When freed memory is returned, and what the tails may hold, from sizes that a test states."""

import pytest

from broker.core.log.resident_memory import (
    FREED_BYTES_MAX,
    OTHER_BYTES,
    RETURN_BYTES_MIN,
    RETURN_LOOKS,
    ResidentMemory,
)

MIB = 1 << 20
TAILS = 256 * MIB
LIMIT = TAILS + OTHER_BYTES
FIXED = 50 * MIB


def looks(memory: ResidentMemory, freed: int, times: int, used: int = 100 * MIB) -> list[bool]:
    return [memory.look(FIXED + used + freed, used, 0) for _ in range(times)]


def test_below_the_limit_memory_is_returned_that_was_free_at_several_looks() -> None:
    memory = ResidentMemory(TAILS)
    assert looks(memory, 0, 1) == [False]
    assert looks(memory, RETURN_BYTES_MIN, RETURN_LOOKS) == [False] * (RETURN_LOOKS - 1) + [True]


def test_memory_used_again_between_two_looks_is_not_returned() -> None:
    memory = ResidentMemory(TAILS)
    looks(memory, 0, 1)
    for _ in range(5):
        assert looks(memory, 90 * MIB, RETURN_LOOKS - 1) == [False] * (RETURN_LOOKS - 1)
        assert looks(memory, RETURN_BYTES_MIN - 1, 1) == [False]


def test_beyond_the_limit_memory_is_returned_at_once_but_not_a_little() -> None:
    memory = ResidentMemory(TAILS)
    looks(memory, 0, 1)
    used = LIMIT - FIXED - RETURN_BYTES_MIN
    assert looks(memory, RETURN_BYTES_MIN, 1, used) == [False], "that is the limit itself"
    assert looks(memory, RETURN_BYTES_MIN + 1, 1, used) == [True]
    assert looks(memory, 1, 5, LIMIT) == [False] * 5


def test_what_stays_after_a_return_is_not_counted_as_free_again() -> None:
    memory = ResidentMemory(TAILS)
    looks(memory, 0, 1)
    assert looks(memory, 40 * MIB, RETURN_LOOKS)[-1]
    memory.returned(FIXED + 130 * MIB, 100 * MIB)  # a library of 30 MiB, and 10 MiB were free
    assert looks(memory, 30 * MIB, 10) == [False] * 10
    assert looks(memory, 30 * MIB + RETURN_BYTES_MIN, RETURN_LOOKS)[-1]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (0, TAILS),
        (OTHER_BYTES - FREED_BYTES_MAX, TAILS),
        (OTHER_BYTES - FREED_BYTES_MAX + 10 * MIB, TAILS - 10 * MIB),
        (OTHER_BYTES + 10_000 * MIB, TAILS // 2),
    ],
)
def test_the_tails_get_what_the_rest_leaves_and_at_least_half(others: int, expected: int) -> None:
    memory, tails = ResidentMemory(TAILS), 200 * MIB
    for freed in (0, 90 * MIB):
        memory.look(tails + others + freed, tails, tails)
        assert memory.tails_bytes_max == expected, "freed memory takes nothing from them"


def test_nothing_is_decided_where_the_allocator_says_nothing() -> None:
    memory = ResidentMemory(TAILS)
    assert [memory.look(10 * LIMIT, 0, 0) for _ in range(9)] == [False] * 9
    assert memory.tails_bytes_max == TAILS
