"""Numbered messages: what is a repeat, what is new, and what nobody remembers any more."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.producers import Forgotten, Gap, ProducerLimits, Producers, Stored
from broker.model.ids import MessageId, TimeTick
from broker.model.message import Appended
from broker.model.producer import Produced

MS = 1 << 18


def run(
    producer: str, sequence: int, count: int, tick: int, confirmed: int | None = None
) -> Produced:
    id = MessageId(tick // 10)
    last_confirmed = id if confirmed is None else MessageId(confirmed)
    return Produced(producer, sequence, count, id, TimeTick(tick), last_confirmed)


def test_of_a_producer_that_is_not_known_everything_is_new() -> None:
    assert Producers().look_up("p", 7, 3) == Stored(())


def test_a_repeat_is_answered_with_where_each_message_landed() -> None:
    producers = Producers()
    producers.learn(run("p", 0, 2, 100))
    producers.learn(run("p", 2, 2, 200, confirmed=5))
    assert producers.look_up("p", 1, 3) == Stored(
        (
            Appended(MessageId(11), TimeTick(101), MessageId(11)),
            Appended(MessageId(20), TimeTick(200), MessageId(5)),
            Appended(MessageId(21), TimeTick(201), MessageId(5)),
        )
    )


def test_of_a_batch_that_is_stored_in_part_the_rest_is_new() -> None:
    producers = Producers()
    producers.learn(run("p", 0, 4, 100))
    found = producers.look_up("p", 2, 10)
    assert isinstance(found, Stored)
    assert len(found.outcomes) == 2
    assert producers.look_up("p", 4, 10) == Stored(())


def test_a_number_left_out_is_a_gap_and_one_too_old_is_forgotten() -> None:
    producers = Producers(ProducerLimits(runs_max=2))
    for number in range(4):
        producers.learn(run("p", number * 2, 2, 100 + number * 10))
    assert producers.look_up("p", 9, 1) == Gap(8)
    assert producers.look_up("p", 3, 1) == Forgotten(4)
    assert producers.look_up("p", 4, 4) != Forgotten(4)


def test_a_gap_in_the_log_begins_the_producer_anew() -> None:
    producers = Producers()
    producers.learn(run("p", 0, 2, 100))
    producers.learn(run("p", 9, 1, 200))
    assert producers.look_up("p", 0, 1) == Forgotten(9)


def test_the_one_longest_silent_is_forgotten_first_and_whoever_is_silent_too_long() -> None:
    producers = Producers(ProducerLimits(producers_max=2, silent_ms_max=100))
    producers.learn(run("a", 0, 1, 1 * MS))
    producers.learn(run("b", 0, 1, 2 * MS))
    producers.learn(run("a", 1, 1, 3 * MS))
    producers.learn(run("c", 0, 1, 4 * MS))
    assert [each.producer for each in producers.runs()] == ["a", "a", "c"]
    producers.learn(run("c", 1, 1, 104 * MS))
    assert len(producers) == 1


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_learning_the_log_again_from_anywhere_ends_in_the_same_window(rng: random.Random) -> None:
    limits = ProducerLimits(producers_max=3, runs_max=2, silent_ms_max=10)
    log, sequences, tick = list[Produced](), dict[str, int](), 0
    for _ in range(rng.randrange(40)):
        producer, count = rng.choice("abcde"), rng.randint(1, 3)
        tick += rng.choice((10, 10, 10, 3 * MS))
        sequence = sequences.get(producer, 0) + rng.choice((0, 0, 0, 5))
        log.append(run(producer, sequence, count, tick))
        sequences[producer] = sequence + count
    straight = Producers(limits)
    for each in log:
        straight.learn(each)
    saved_at = rng.randint(0, len(log))
    saved = Producers(limits)
    for each in log[:saved_at]:
        saved.learn(each)
    again = Producers(limits, saved.runs(), saved.tick)
    for each in log[rng.randint(0, saved_at) :]:
        again.learn(each)
    assert again.runs() == straight.runs()


@pytest.mark.parametrize("count", [1, 3])
def test_the_same_run_stored_twice_keeps_its_first_answer(count: int) -> None:
    producers = Producers()
    producers.learn(run("p", 0, count, 100))
    producers.learn(run("p", 0, count, 200))
    found = producers.look_up("p", 0, 1)
    assert isinstance(found, Stored)
    assert found.outcomes[0].tick == 100
