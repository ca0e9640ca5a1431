"""What readers of topics share."""

from hypothesis import given
from hypothesis import strategies as st

from broker.wal.kafka.entries import TopicRecord
from broker.wal.kafka.fetched import Fetched

KIB = 1024


def record(offset: int, size: int = 10) -> TopicRecord:
    return TopicRecord(offset, b"key", bytes([offset % 256]) * size)


def offsets(records: list[TopicRecord]) -> list[int]:
    return [it.offset for it in records]


def test_a_reader_is_given_what_another_one_fetched_up_to_the_first_gap() -> None:
    fetched = Fetched()
    fetched.put("t", [record(it) for it in (3, 4, 5, 7)])
    assert offsets(fetched.find("t", 4, 100, KIB)) == [4, 5]
    assert offsets(fetched.find("t", 3, 5, KIB)) == [3, 4]
    assert offsets(fetched.find("t", 3, 100, 15)) == [3, 4]
    assert offsets(fetched.find("t", 3, 100, 1)) == [3]  # at least one
    assert fetched.find("t", 6, 100, KIB) == []
    assert fetched.find("another", 3, 100, KIB) == []


def test_what_was_removed_or_has_a_new_owner_is_asked_of_kafka_again() -> None:
    fetched = Fetched()
    for topic in "tu":
        fetched.put(topic, [record(it) for it in range(6)])
    fetched.forget("t", below=4)
    assert fetched.find("t", 3, 100, KIB) == []
    assert offsets(fetched.find("t", 4, 100, KIB)) == [4, 5]
    fetched.forget("t")
    assert fetched.find("t", 4, 100, KIB) == []
    assert offsets(fetched.find("u", 0, 100, KIB)) == [0, 1, 2, 3, 4, 5]


def test_what_was_not_used_for_the_longest_time_is_given_up() -> None:
    fetched = Fetched(16 * KIB)
    fetched.put("t", [record(it, KIB) for it in range(10)])
    assert fetched.find("t", 0, 1, KIB)
    fetched.put("t", [record(10, KIB)])
    assert fetched.find("t", 0, 1, KIB)
    assert fetched.find("t", 1, 2, KIB) == []


def test_a_record_that_would_leave_no_room_for_others_is_not_kept() -> None:
    fetched = Fetched(16 * KIB)
    fetched.put("t", [record(0), record(1, 4 * KIB), record(2)])
    assert offsets(fetched.find("t", 0, 100, KIB)) == [0]
    assert offsets(fetched.find("t", 2, 100, KIB)) == [2]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "find", "forget"]), st.integers(0, 40), st.integers(1, 9)
        ),
        max_size=60,
    )
)
def test_it_gives_only_what_was_put_and_holds_no_more_than_its_limit(
    steps: list[tuple[str, int, int]],
) -> None:
    fetched, low = Fetched(4 * KIB), 0
    for step, at, count in steps:
        match step:
            case "put":
                fetched.put("t", [record(it) for it in range(max(at, low), at + count)])
            case "forget":
                low = max(low, at)
                fetched.forget("t", below=low)
            case _:
                found = fetched.find("t", at, at + count, KIB)
                assert found == [record(it) for it in range(at, at + len(found))]
                assert not found or at >= low
        assert 0 <= fetched.held_bytes <= 4 * KIB
    fetched.forget("t")
    assert fetched.held_bytes == 0


def test_what_was_fetched_before_the_topic_was_forgotten_is_not_kept() -> None:
    fetched = Fetched()
    generation = fetched.generation("t")
    fetched.forget("t")
    fetched.put("t", [record(0)], generation)
    assert fetched.find("t", 0, 1, KIB) == []
    fetched.put("t", [record(0)], fetched.generation("t"))
    assert offsets(fetched.find("t", 0, 1, KIB)) == [0]
