"""The tables of Assign, Remove and Locate, exhaustively."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.channel_lifetime import (
    ASKED_TERM_MAX,
    NEVER_SEEN,
    ChannelLifetime,
    NoAnswerYet,
    ServingState,
    answer_for,
    call_refusal,
    channel_refusal,
    closed,
    expect,
    failed,
    opened,
    read_only_refusal,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import Term

BROKEN = Refusal(StreamingCode.UNKNOWN, "the disk is gone")


def serve(term: int) -> ServingState:
    return ServingState(Term(term), removed=False)


def remove(term: int) -> ServingState:
    return ServingState(Term(term), removed=True)


def code(answer: object) -> StreamingCode | None:
    return answer.code if isinstance(answer, Refusal) else None


def accepted(lifetime: ChannelLifetime, stage: ServingState) -> ChannelLifetime:
    after = expect(lifetime, stage)
    assert isinstance(after, ChannelLifetime)
    return after


@pytest.mark.parametrize(
    ("expected", "asked", "is_taken"),
    [
        (serve(5), serve(4), False),
        (serve(5), serve(5), False),
        (remove(5), serve(5), False),
        (serve(5), serve(6), True),
        (serve(5), remove(4), False),
        (serve(5), remove(5), True),
        (remove(5), remove(5), False),
        (serve(5), remove(6), True),
    ],
)
def test_only_a_later_stage_is_taken(
    expected: ServingState, asked: ServingState, is_taken: bool
) -> None:
    answer = expect(ChannelLifetime(expected, expected), asked)
    assert isinstance(answer, ChannelLifetime) == is_taken
    assert is_taken or code(answer) is StreamingCode.IGNORED_OPERATION


def test_an_assign_waits_until_it_serves() -> None:
    lifetime = accepted(NEVER_SEEN, serve(3))
    assert answer_for(lifetime, serve(3)) == NoAnswerYet()
    assert answer_for(opened(lifetime, Term(3)), serve(3)) is None


def test_an_assign_that_is_overtaken_is_told_so() -> None:
    lifetime = accepted(accepted(NEVER_SEEN, serve(3)), serve(4))
    assert code(answer_for(lifetime, serve(3))) is StreamingCode.UNMATCHED_CHANNEL_TERM
    lifetime = accepted(accepted(NEVER_SEEN, serve(3)), remove(3))
    assert code(answer_for(lifetime, serve(3))) is StreamingCode.UNMATCHED_CHANNEL_TERM


def test_a_failed_open_gives_its_error_and_burns_the_term() -> None:
    lifetime = failed(accepted(NEVER_SEEN, serve(3)), serve(3), BROKEN)
    assert answer_for(lifetime, serve(3)) == BROKEN
    assert code(expect(lifetime, serve(3))) is StreamingCode.IGNORED_OPERATION
    assert answer_for(opened(accepted(lifetime, serve(4)), Term(4)), serve(4)) is None


def test_a_remove_at_a_term_that_failed_waits_for_what_was_served_before() -> None:
    lifetime = opened(accepted(NEVER_SEEN, serve(2)), Term(2))
    lifetime = accepted(failed(accepted(lifetime, serve(3)), serve(3), BROKEN), remove(3))
    assert answer_for(lifetime, remove(3)) == NoAnswerYet()
    assert answer_for(closed(lifetime, Term(3)), remove(3)) is None


def test_a_remove_that_failed_says_so_and_may_be_asked_for_again() -> None:
    lifetime = accepted(opened(accepted(NEVER_SEEN, serve(3)), Term(3)), remove(3))
    lifetime = failed(lifetime, remove(3), BROKEN)
    assert answer_for(lifetime, remove(3)) == BROKEN
    assert lifetime.expected == lifetime.current == serve(3)
    lifetime = accepted(lifetime, remove(3))
    assert answer_for(closed(lifetime, Term(3)), remove(3)) is None


def test_a_remove_that_fails_behind_a_later_stage_changes_no_expectation() -> None:
    lifetime = accepted(opened(accepted(NEVER_SEEN, serve(3)), Term(3)), remove(3))
    lifetime = failed(accepted(lifetime, serve(4)), remove(3), BROKEN)
    assert lifetime.expected == serve(4)


def test_a_term_that_failed_may_still_come_to_serve() -> None:
    lifetime = opened(failed(accepted(NEVER_SEEN, serve(3)), serve(3), BROKEN), Term(3))
    assert lifetime == ChannelLifetime(serve(3), serve(3))
    assert answer_for(accepted(lifetime, remove(3)), remove(3)) == NoAnswerYet()


def test_news_of_an_older_term_change_nothing() -> None:
    lifetime = opened(NEVER_SEEN, Term(5))
    assert opened(lifetime, Term(4)) == failed(lifetime, serve(4), BROKEN) == lifetime
    assert closed(lifetime, Term(4)) == lifetime


def test_a_channel_that_restarts_by_itself_moves_on() -> None:
    lifetime = opened(accepted(NEVER_SEEN, serve(3)), Term(3))
    lifetime = opened(lifetime, Term(4))
    assert lifetime.expected == lifetime.current == serve(4)
    assert code(expect(lifetime, serve(4))) is StreamingCode.IGNORED_OPERATION
    assert code(expect(lifetime, remove(3))) is StreamingCode.IGNORED_OPERATION


def test_a_remove_waits_until_it_is_released() -> None:
    lifetime = accepted(opened(accepted(NEVER_SEEN, serve(3)), Term(3)), remove(3))
    assert answer_for(lifetime, remove(3)) == NoAnswerYet()
    assert answer_for(closed(lifetime, Term(3)), remove(3)) is None


def test_a_remove_that_is_overtaken_has_succeeded() -> None:
    lifetime = accepted(opened(accepted(NEVER_SEEN, serve(3)), Term(3)), remove(3))
    assert answer_for(accepted(lifetime, serve(4)), remove(3)) is None


def test_a_remove_that_is_asked_for_again_at_a_higher_term_waits_as_well() -> None:
    lifetime = accepted(opened(accepted(NEVER_SEEN, serve(3)), Term(3)), remove(3))
    lifetime = accepted(lifetime, remove(4))
    assert answer_for(lifetime, remove(3)) == answer_for(lifetime, remove(4)) == NoAnswerYet()
    lifetime = closed(lifetime, Term(4))
    assert answer_for(lifetime, remove(3)) is answer_for(lifetime, remove(4)) is None


def test_a_remove_of_a_channel_never_seen_is_taken() -> None:
    lifetime = closed(accepted(NEVER_SEEN, remove(3)), Term(3))
    assert answer_for(lifetime, remove(3)) is None


STEPS = st.lists(
    st.tuples(st.sampled_from((expect, opened, failed, closed)), st.integers(1, 6), st.booleans()),
    max_size=20,
)


@given(STEPS)
def test_expectations_go_back_only_behind_a_remove_that_failed(
    steps: list[tuple[object, int, bool]],
) -> None:
    lifetime = NEVER_SEEN
    for step, term, removed in steps:
        before = lifetime.expected
        if step is expect:
            answer = expect(lifetime, ServingState(Term(term), removed))
            assert isinstance(answer, ChannelLifetime) == (
                ServingState(Term(term), removed) > before
            )
            lifetime = answer if isinstance(answer, ChannelLifetime) else lifetime
        elif step is failed:
            lifetime = failed(lifetime, ServingState(Term(term), removed), BROKEN)
            if before == ServingState(Term(term), removed=True) and removed:
                before = min(before, lifetime.current)
        else:
            lifetime = (opened if step is opened else closed)(lifetime, Term(term))
        assert lifetime.expected >= before


@pytest.mark.parametrize(
    ("name", "asked", "serving", "closing", "wanted"),
    [
        ("", 3, 3, True, StreamingCode.INVALID_ARGUMENT),
        ("p", 0, 3, True, StreamingCode.INVALID_ARGUMENT),
        ("p", -1, None, False, StreamingCode.INVALID_ARGUMENT),
        ("p", 3, 3, True, StreamingCode.ON_SHUTDOWN),
        ("p", 3, None, False, StreamingCode.CHANNEL_NOT_EXIST),
        ("p", None, None, False, StreamingCode.CHANNEL_NOT_EXIST),
        ("p", 2, 3, False, StreamingCode.UNMATCHED_CHANNEL_TERM),
        ("p", 4, 3, False, StreamingCode.UNMATCHED_CHANNEL_TERM),
        ("p", 3, 3, False, None),
        ("p", None, 3, False, None),
    ],
)
def test_the_checks_before_a_call_come_in_their_order(
    name: str, asked: int | None, serving: int | None, closing: bool, wanted: StreamingCode | None
) -> None:
    term = None if asked is None else Term(asked)
    now = None if serving is None else Term(serving)
    assert code(call_refusal(name, term, now, closing=closing)) is wanted


def test_a_channel_that_is_named_well_is_not_refused() -> None:
    assert channel_refusal("p", 1) is None


def test_a_term_without_room_for_a_next_one_is_an_invalid_argument() -> None:
    assert channel_refusal("c", ASKED_TERM_MAX) is None
    refusal = channel_refusal("c", ASKED_TERM_MAX + 1)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT


def test_a_writer_of_a_read_only_channel_learns_its_name_and_that_retrying_is_no_use() -> None:
    refusal = read_only_refusal("p")
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert refusal.cause.startswith("p is served read-only")
